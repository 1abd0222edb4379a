#!/usr/bin/env python3
"""Builds all packages twice, installs each into an empty place, and sends each server its first request.

    run.py [--binary PATH] [TEST...]

Without --binary it packages ROWHOUSE_BIN, or target/dist/rowhouse. The Debian package is installed in the system that
`scripts/setup debootstrap` makes, the image is unpacked and started as PID 1; both need root. Run it with the Python of
.work/venv, which make prepares.
"""
import argparse
import base64
import csv
import email
import hashlib
import http.client
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from urllib.parse import urlsplit

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "sdk"))
from azure.core.exceptions import HttpResponseError  # noqa: E402
from azure.data.tables import TableServiceClient  # noqa: E402

from server import ACCOUNT, KEY  # noqa: E402  (the path above is what makes it importable)

FIRST_REQUEST_SECONDS = 10      # from the end of the installation
STOP_SECONDS = 5                # from SIGTERM to the end of the server
COMMAND_SECONDS = 180          # on a machine that is busy with other tests
NOTICES = "THIRD-PARTY-NOTICES.txt"
DEBIAN = ROOT / ".work" / "debian-bookworm.tar"
# Any free ports: other servers may run on this machine.
PORTS = ("--table-port=0", "--queue-port=0", "--admin-port=0")
PLAIN_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


class NotVerified(Exception):
    """This machine lacks what the test needs."""


def clean_env(**more):
    """The environment without options of the developer's own server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROWHOUSE_")} | more


def run(*command, status=0, **options):
    """The output of a command that must end with this status."""
    options.setdefault("env", clean_env())
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=COMMAND_SECONDS, **options)
    assert done.returncode == status, f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-2000:]}"
    return done.stdout


def need_root():
    if os.geteuid() != 0:
        raise NotVerified("only root can change the root directory")


class Running:
    """A server in a session of its own, which ends with the block."""

    def __init__(self, command, ready, log, env=None, cwd=None):
        self.ready, self.log = ready, log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                            env=env or clean_env(), cwd=cwd, start_new_session=True)

    def __enter__(self):
        try:
            deadline = time.monotonic() + FIRST_REQUEST_SECONDS
            while not (self.ready.exists() and self.ready.read_text().endswith("\n")):
                assert self.process.poll() is None and time.monotonic() < deadline, f"not ready: {self.log.read_text()[-2000:]}"
                time.sleep(0.01)
            told = json.loads(self.ready.read_text())
            self.addresses = {name: urlsplit(told[name]) for name in ("table", "queue", "admin")}
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.ready.unlink(missing_ok=True)

    @property
    def table(self):
        return f"http://127.0.0.1:{self.addresses['table'].port}"

    @property
    def admin(self):
        return f"http://127.0.0.1:{self.addresses['admin'].port}"

    def stop(self, send=None):
        """Sends SIGTERM, or what `send` sends; returns the exit status and the seconds it took."""
        began = time.monotonic()
        (send or self.process.terminate)()
        try:
            return self.process.wait(STOP_SECONDS), time.monotonic() - began
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server runs {STOP_SECONDS} s after it was told to stop") from None


def development(endpoint):
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};TableEndpoint={endpoint}/{ACCOUNT};"


def first_request(connection, installed):
    """Creates a table, inserts an entity and reads it; returns the seconds since the installation ended."""
    with TableServiceClient.from_connection_string(connection, retry_total=0) as service:
        people = service.create_table("People")
        people.create_entity({"PartitionKey": "sales", "RowKey": "ann", "Age": 42})
        assert people.get_entity("sales", "ann")["Age"] == 42
    seconds = time.monotonic() - installed
    assert seconds < FIRST_REQUEST_SECONDS, f"the first request was answered {seconds:.1f} s after the installation"
    return seconds


class Suite:
    def __init__(self, binary, scratch):
        self.binary, self.scratch = binary, scratch
        self.dist = scratch / "dist"
        self.lines = []

    def directory(self, name):
        path = self.scratch / name
        path.mkdir()
        return path

    def package(self, pattern):
        [path] = self.dist.glob(pattern)
        return path

    def say(self, line):
        print(f"dist: {line}", flush=True)

    def build(self, twice):
        """Builds, perhaps twice at the same time: in two time zones and with two umasks."""
        began = time.monotonic()
        builds = []
        for name, zone, umask in (("dist", "UTC", 0o022), ("again", "Asia/Tokyo", 0o077))[:1 + twice]:
            log = open(self.scratch / f"{name}.log", "w+")
            builds.append((log, subprocess.Popen(
                [sys.executable, ROOT / "scripts" / "dist", "--binary", self.binary, "--out", self.scratch / name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_env(TZ=zone), umask=umask)))
        try:
            for log, process in builds:
                status = process.wait(COMMAND_SECONDS * 3)
                log.seek(0)
                assert status == 0, log.read()
        finally:
            for log, process in builds:
                process.terminate()
                process.wait()
                log.close()
        self.say(f"built {'twice' if twice else 'once'} in {time.monotonic() - began:.1f} s")

    # The tests. Each name without `test_` is one that the command line takes.

    def test_identical(self):
        again = self.scratch / "again"
        names = sorted(path.name for path in self.dist.iterdir())
        assert names == sorted(path.name for path in again.iterdir()) and len(names) == 7, names
        different = [name for name in names if (self.dist / name).read_bytes() != (again / name).read_bytes()]
        assert not different, f"two builds differ in {different}"
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=self.dist)
        listed = [line.split()[1] for line in (self.dist / "SHA256SUMS").read_text().splitlines()]
        assert sorted([*listed, "SHA256SUMS"]) == names, listed

    def test_size_limit(self):
        place = self.directory("size")
        with open(place / "padding", "wb") as padding:
            padding.truncate(30_000_000)
        large = place / "rowhouse"
        run("objcopy", "--strip-all", f"--add-section=.padding={place / 'padding'}", self.binary, large)
        output = run(ROOT / "scripts" / "dist", "--binary", large, "--out", place / "out", status=1)
        assert "the limit is 25,000,000" in output, output
        assert not list((place / "out").glob("*")), "files were written"

    def test_notices(self):
        """Every package contains the same licence notices, at the place that its format gives them."""
        with tarfile.open(self.package("*.tar.gz")) as archive:
            [top] = {name.split("/")[0] for name in archive.getnames()}
            found = {"tar": archive.extractfile(f"{top}/{NOTICES}").read()}
        deb = subprocess.run(["dpkg-deb", "--fsys-tarfile", self.package("*.deb")], check=True, stdout=subprocess.PIPE,
                             timeout=COMMAND_SECONDS).stdout
        with tarfile.open(fileobj=io.BytesIO(deb)) as archive:
            found["deb"] = archive.extractfile(f"./usr/share/doc/rowhouse/{NOTICES}").read()
        with zipfile.ZipFile(self.package("*.whl")) as archive:
            [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            licences = metadata.replace("METADATA", "licenses/")
            found["wheel"] = archive.read(licences + NOTICES)
            named = email.message_from_bytes(archive.read(metadata)).get_all("License-File")
            assert sorted(licences + name for name in named) == sorted(n for n in archive.namelist() if n.startswith(licences)), named
        with tarfile.open(self.package("*.tgz")) as archive:
            found["npm"] = archive.extractfile(f"package/{NOTICES}").read()
        config, layers = self.read_image()
        with tarfile.open(fileobj=layer_file(layers[-1], config["rootfs"]["diff_ids"][-1])) as archive:
            found["oci"] = archive.extractfile(f"usr/share/doc/rowhouse/{NOTICES}").read()

        text = found["tar"].decode()
        assert [kind for kind in found if found[kind] != found["tar"]] == [], "the packages have different notices"
        missing = [name for name in ("rustls", "rusqlite", "tokio") if not re.search(rf"(?m)^{name} \d", text)]
        assert not missing, f"the notices do not name {missing}"
        assert "SQLite C library" in text and "For Zstandard software" in text and "on crates.io" in text
        assert not re.search(r"(?m)^rowhouse-", text), "a crate of this workspace is listed"
        assert str(ROOT) not in text and "/registry/src/" not in text, "a path of this machine is in the notices"
        self.say(f"notices: {len(text):,} characters")

    def test_notices_faults(self):
        """What `scripts/dist` prints where cargo is missing or fails, and what it writes for crates without licence files."""
        place = self.directory("notices")
        sources, bin_directory = place / "sources", place / "bin"
        bin_directory.mkdir()

        def dist():
            output = run(sys.executable, ROOT / "scripts" / "dist", "--binary", self.binary, "--out", place / "out", status=1,
                         env=clean_env(PATH=str(bin_directory)))
            assert output.startswith("scripts/dist: ") and "Traceback" not in output, output
            assert not (place / "out").exists(), "files were written"
            return output

        def fake_cargo(metadata, tree):
            """Both arguments are shell commands."""
            cargo = bin_directory / "cargo"
            cargo.write_text(f'#!/bin/sh\nif [ "$1" = metadata ]; then {metadata}; else {tree}; fi\n')
            cargo.chmod(0o755)

        def echo(packages):
            listed = [{"id": name, "name": name, "version": "1.0.0", "license": licence, "source": "registry+x",
                       "manifest_path": str(sources / name / "Cargo.toml")} for name, licence in packages.items()]
            return f"echo '{json.dumps({'packages': listed, 'workspace_members': ['rowhouse-cli']})}'"

        assert "cargo is not installed" in dist()
        fake_cargo("echo no lock file >&2; exit 101", "exit 0")
        output = dist()
        assert "`cargo metadata" in output and "status 101" in output and "no lock file" in output, output
        fake_cargo("exit 0", "exit 0")
        assert "`cargo metadata` printed no JSON" in dist()
        fake_cargo(echo({}), "echo 'plain v1.0.0'")
        assert "`cargo tree` lists plain 1.0.0, and `cargo metadata` does not" in dist()
        packages = {"plain": "MIT", "copyleft": "MPL-2.0", "rowhouse-cli": "Apache-2.0"}
        fake_cargo(echo(packages), "; ".join(f"echo '{name} v1.0.0'" for name in packages))
        assert "the source of copyleft 1.0.0 is not on this machine" in dist()

        for name in packages:
            (sources / name).mkdir(parents=True)
        (sources / "copyleft" / "LICENCE.md").write_bytes(b"one\r\ntext\r\n")
        text = run(sys.executable, "-B", "-c", "from packaging import notices; print(notices.collect().decode())",
                   cwd=ROOT / "scripts", env=clean_env(PATH=str(bin_directory)))
        assert "\nplain 1.0.0\n    licence: MIT\n    texts: none, its source has no licence file\n" in text, text
        assert "source code: the crate copyleft, version 1.0.0, on crates.io" in text, text
        assert "Text 1, of copyleft 1.0.0 (LICENCE.md)" in text and "\none\ntext\n" in text, text
        assert "rowhouse-cli" not in text and "Text 2" not in text, text

    def test_debug_file(self):
        if ".debug_line" not in run("readelf", "--section-headers", "--wide", self.binary):
            raise NotVerified("the binary has no line tables: `make dist-test` packages one that has")
        debug = self.package("*.debug")
        binary = self.unpack_tar("debug")
        link = run("readelf", "--string-dump=.gnu_debuglink", binary)
        assert debug.name in link, link
        section = self.scratch / "debug" / "link"
        run("objcopy", "--dump-section", f".gnu_debuglink={section}", binary, "/dev/null")
        # The last four bytes are the checksum of the file.
        assert int.from_bytes(section.read_bytes()[-4:], sys.byteorder) == zlib.crc32(debug.read_bytes())
        assert ".debug_line" in run("readelf", "--section-headers", "--wide", debug)
        assert ".debug_line" not in run("readelf", "--section-headers", "--wide", binary)

    def unpack_tar(self, name):
        place = self.directory(name)
        run("tar", "-xf", self.package("*.tar.gz"), "-C", place)
        [top] = place.iterdir()
        return top / "rowhouse"

    def serve_here(self, name, command, **options):
        """Starts an installed server for development in an empty directory."""
        place = self.directory(f"{name}-run")
        return Running([*command, "serve", "--data", place / "data", "--ready-file", place / "ready", *PORTS],
                       place / "ready", place / "log", **options)

    def test_tar(self):
        binary = self.unpack_tar("tar")
        installed = time.monotonic()
        with self.serve_here("tar", [binary]) as server:
            self.report("tar", first_request(development(server.table), installed))
            assert server.stop()[0] == 0
        names = {str(path.relative_to(binary.parent)) for path in binary.parent.rglob("*")}
        wanted = {"LICENSE", "README.md", "deploy/rowhouse.service", "deploy/rowhouse.toml", "docs/operating/install.md"}
        assert wanted <= names, wanted - names
        assert not names & {"docs/lab", "docs/design"}, "pages for developers are in the archive"
        broken = [(page, link) for page in names if page.endswith(".md")
                  for link in re.findall(r"\]\(([^)#\s]+)", (binary.parent / page).read_text())
                  if "://" not in link and os.path.normpath(os.path.join(os.path.dirname(page), link)) not in names]
        assert not broken, broken

    def test_wheel(self):
        wheel, environment = self.package("*.whl"), self.scratch / "venv"
        self.check_record(wheel)
        run(sys.executable, "-m", "venv", environment)
        run(environment / "bin" / "pip", "--disable-pip-version-check", "install", "--no-index", wheel)
        installed = time.monotonic()
        with self.serve_here("wheel", [environment / "bin" / "rowhouse"]) as server:
            self.report("wheel", first_request(development(server.table), installed))
            assert server.stop()[0] == 0
        run(environment / "bin" / "pip", "--disable-pip-version-check", "uninstall", "--yes", "rowhouse")
        assert not (environment / "bin" / "rowhouse").exists()

    @staticmethod
    def check_record(wheel):
        with zipfile.ZipFile(wheel) as archive:
            [record] = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
            rows = list(csv.reader(archive.read(record).decode().splitlines()))
            assert sorted(row[0] for row in rows) == sorted(archive.namelist())
            for name, digest, size in rows:
                data = archive.read(name)
                expected = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (("", "") if name == record else (expected, str(len(data)))), name

    def test_npm(self):
        if not shutil.which("npm"):
            raise NotVerified("npm is not installed")
        place, package = self.directory("npm"), self.package("*.tgz")
        (place / "package.json").write_text("{}\n")
        env = clean_env(npm_config_cache=str(self.scratch / "npm-cache"), npm_config_offline="true", npm_config_audit="false",
                        npm_config_fund="false", npm_config_update_notifier="false", npm_config_loglevel="error", npm_config_yes="true")
        run("npm", "install", package, cwd=place, env=env)
        installed = time.monotonic()
        with self.serve_here("npm", ["npx", "rowhouse"], cwd=place, env=env) as server:
            self.report("npm", first_request(development(server.table), installed))
            # What Ctrl-C does in a terminal: every process of the session gets the signal.
            status, _ = server.stop(lambda: os.killpg(server.process.pid, signal.SIGINT))
            assert status in (0, 130, -signal.SIGINT), status
            assert "drained" in server.log.read_text(), "the server was not told to stop"
        command = place / "node_modules" / ".bin" / "rowhouse"
        with self.serve_here("npm-direct", [command], cwd=place) as server:
            assert server.stop()[0] == 0
        version = run(command, "--version")
        assert run("npx", "rowhouse", "--version", cwd=place, env=env) == version
        # npx takes an absolute path for a command.
        alone = self.directory("npx")
        shutil.copy(package, alone)
        assert run("npx", f"./{package.name}", "--version", cwd=alone, env=env) == version
        run("npx", "rowhouse", "check", "no-such-directory", cwd=place, env=env, status=run_status(command, "check", "no-such-directory"))

    def test_deb(self):
        need_root()
        if not DEBIAN.exists():
            raise NotVerified("there is no Debian to install it in: scripts/setup debootstrap")
        root = self.directory("debian")
        began = time.monotonic()
        run("tar", "--numeric-owner", "-xpf", DEBIAN, "-C", root)
        self.say(f"an empty Debian in {time.monotonic() - began:.1f} s")
        shutil.copy(self.package("*.deb"), root / "rowhouse.deb")

        def inside(*command, **options):
            return run("chroot", root, *command, env=PLAIN_ENV, **options)

        output = inside("dpkg", "-i", "/rowhouse.deb")
        installed = time.monotonic()
        assert "systemctl enable --now rowhouse" in output, output
        user = self.user_of(root)
        key, data = root / "etc/rowhouse/master.key", root / "var/lib/rowhouse"
        assert (data.stat().st_uid, data.stat().st_gid, data.stat().st_mode & 0o7777) == (*user, 0o700)
        assert (key.stat().st_uid, key.stat().st_mode & 0o7777) == (user[0], 0o400)
        assert not list((root / "etc/systemd").rglob("rowhouse.service")), "the service is enabled"
        assert "/etc/rowhouse/rowhouse.toml" in inside("dpkg-query", "--showformat=${Conffiles}", "--show", "rowhouse")

        as_user = ["chroot", f"--userspec={user[0]}:{user[1]}", root]
        with Running([*as_user, "/usr/bin/rowhouse", "serve", "--config", "/etc/rowhouse/rowhouse.toml", "--ready-file",
                      "/tmp/ready", *PORTS], root / "tmp/ready", self.scratch / "deb.log", env=PLAIN_ENV) as server:
            assert {address.hostname for address in server.addresses.values()} == {"127.0.0.1"}
            created = run(*as_user, "/usr/bin/rowhouse", "account", "create", "warehouse", "--data", "/var/lib/rowhouse",
                          "--admin", server.admin, env=PLAIN_ENV)
            account_key = re.search(r"AccountKey=([^;]+)", created)[1]
            endpoint = f"TableEndpoint={server.table}/warehouse;"
            self.report("deb", first_request(f"AccountName=warehouse;AccountKey={account_key};{endpoint}", installed))
            try:
                first_request(development(server.table), installed)
                raise AssertionError("the development account is enabled")
            except HttpResponseError:
                pass
            assert server.stop()[0] == 0
        self.check_unit(root)
        self.check_removal(root, inside, key, data)

    @staticmethod
    def user_of(root):
        """Number of the user and of its group in that system."""
        [entry] = [line.split(":") for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("rowhouse:")]
        assert (entry[5], entry[6]) == ("/var/lib/rowhouse", "/usr/sbin/nologin"), entry
        assert int(entry[2]) < 1000, "the user is a system user"
        return int(entry[2]), int(entry[3])

    def check_unit(self, root):
        unit = (root / "usr/lib/systemd/system/rowhouse.service").read_text()
        [command] = re.findall(r"(?m)^ExecStart=(\S+)", unit)
        assert command == "/usr/bin/rowhouse"
        if not shutil.which("systemd-analyze"):
            self.lines.append("deb: NOT VERIFIED, there is no systemd-analyze to read the unit")
            return
        copy = self.directory("unit") / "rowhouse.service"
        copy.write_text(unit.replace(command, str(root / "usr/bin/rowhouse")))
        said = [line for line in run("systemd-analyze", "verify", copy).splitlines() if "rowhouse" in line]
        assert not said, said

    @staticmethod
    def check_removal(root, inside, key, data):
        """An upgrade keeps changes; removal keeps the configuration; purging keeps data and its key."""
        config, secret = root / "etc/rowhouse/rowhouse.toml", key.read_text()
        config.write_text(changed := config.read_text() + "# changed by the administrator\n")
        inside("dpkg", "-i", "/rowhouse.deb")
        assert config.read_text() == changed and key.read_text() == secret
        inside("dpkg", "-r", "rowhouse")
        assert config.exists() and not (root / "usr/bin/rowhouse").exists()
        output = inside("dpkg", "-P", "rowhouse")
        assert "kept /var/lib/rowhouse" in output and "kept /etc/rowhouse/master.key" in output, output
        assert not config.exists() and key.read_text() == secret and (data / "rowhouse.db").exists()
        # Installed again, the old data is served with the old key. Purged while the data is elsewhere, the key stays.
        inside("dpkg", "-i", "/rowhouse.deb")
        assert key.read_text() == secret and (data / "rowhouse.db").exists()
        shutil.rmtree(data)
        inside("dpkg", "-P", "rowhouse")
        assert key.read_text() == secret
        left = [path for path in ("var/lib/rowhouse", "usr/share/doc/rowhouse") if (root / path).exists()]
        assert not left and os.listdir(key.parent) == ["master.key"], left

    def test_oci_layout(self):
        config, layers = self.read_image()
        assert len(layers) == 2
        settings = config["config"]
        assert settings["User"] not in ("", "0", "root") and settings["Volumes"] == {"/data": {}}
        assert set(settings["ExposedPorts"]) == {"10001/tcp", "10002/tcp"}
        for layer, expected in zip(layers, config["rootfs"]["diff_ids"], strict=True):
            with tarfile.open(fileobj=layer_file(layer, expected)) as archive:
                names = [entry.name for entry in archive]
                assert not any(name.startswith("/") or ".." in name.split("/") for name in names), names
                assert names == sorted(set(names), key=lambda name: name.split("/")), "the entries are sorted, each there once"

    def read_image(self):
        """The configuration and the layers; every digest and size is checked."""
        used = set()
        with tarfile.open(self.package("*-oci.tar")) as archive:
            files = {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}

        def blob(descriptor):
            kind, digest = descriptor["digest"].split(":")
            name = f"blobs/{kind}/{digest}"
            used.add(name)
            assert (hashlib.new(kind, files[name]).hexdigest(), len(files[name])) == (digest, descriptor["size"]), name
            return files[name]

        assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
        [entry] = json.loads(files["index.json"])["manifests"]
        manifest = json.loads(blob(entry))
        config, layers = json.loads(blob(manifest["config"])), [blob(layer) for layer in manifest["layers"]]
        [docker] = json.loads(files["manifest.json"])
        assert {docker["Config"], *docker["Layers"]} < used
        assert set(files) == used | {"oci-layout", "index.json", "manifest.json"}
        return config, layers

    def test_oci(self):
        need_root()
        config, layers = self.read_image()
        root = self.directory("image")
        for layer, expected in zip(layers, config["rootfs"]["diff_ids"], strict=True):
            with tarfile.open(fileobj=layer_file(layer, expected)) as archive:
                archive.extractall(root, numeric_owner=True, filter="fully_trusted")
        installed = time.monotonic()
        # A container runtime makes it.
        (root / "proc").mkdir()
        settings = config["config"]
        user, env = settings["User"], dict(variable.split("=", 1) for variable in settings["Env"])
        ready = root / "tmp" / "ready"
        enter = ["/usr/sbin/chroot", f"--userspec={user}", "--groups=", root]
        # The mounts and the processes are in namespaces of their own, which end with the server.
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root / 'proc'}"]
        command = [*alone, *enter, *settings["Entrypoint"], *settings["Cmd"], "--ready-file", "/tmp/ready", *PORTS]

        with Running(command, ready, self.scratch / "oci.log", env=env | {"PATH": PLAIN_ENV["PATH"]}) as server:
            self.report("oci", first_request(development(server.table), installed))
            assert listens(server.addresses["table"].port) == listens(server.addresses["queue"].port) == {"0.0.0.0"}
            assert listens(server.addresses["admin"].port) == {"127.0.0.1"}
            health = [*enter, *settings["Healthcheck"]["Test"][1:]]
            env_health = env | {"ROWHOUSE_ADMIN": server.admin}
            if has_health := run_status(self.binary, "health", "--help") == 0:
                run(*health, env=env_health)
            else:
                self.lines.append("oci: NOT VERIFIED, the health check: this binary has no command `rowhouse health`")
            # A client that keeps its connection must not hold the server up.
            client = http.client.HTTPConnection("127.0.0.1", server.addresses["table"].port)
            client.request("GET", "/")
            client.getresponse().read()
            status, seconds = server.stop(lambda: os.kill(first_child(server.process.pid), signal.SIGTERM))
            client.close()
            assert status == 0, status
            self.say(f"oci: PID 1 ended {seconds:.2f} s after SIGTERM")
            if has_health:
                assert run_status(*health, env=env_health) != 0, "a server that is gone is not healthy"
        own = {"ROWHOUSE_DEVELOPMENT_ACCOUNT": "false", "ROWHOUSE_DATA": "/tmp/own", "PATH": PLAIN_ENV["PATH"]}
        with Running(command, ready, self.scratch / "oci-own.log", env=env | own) as server:
            try:
                first_request(development(server.table), time.monotonic())
                raise AssertionError("the development account is enabled")
            except HttpResponseError:
                pass
            created = run(*enter, *settings["Entrypoint"], "account", "create", "warehouse", env=env | own | {"ROWHOUSE_ADMIN": server.admin})
            account_key = re.search(r"AccountKey=([^;]+)", created)[1]
            first_request(f"AccountName=warehouse;AccountKey={account_key};TableEndpoint={server.table}/warehouse;", time.monotonic())

    def report(self, name, seconds):
        self.say(f"{name}: the first request was answered {seconds:.2f} s after the installation")


def run_status(*command, **options):
    options.setdefault("env", clean_env())
    return subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          timeout=COMMAND_SECONDS, **options).returncode


def layer_file(layer, expected):
    """The unpacked layer, whose digest the configuration names."""
    data = zlib.decompress(layer, wbits=31)
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == expected
    file = tempfile.TemporaryFile()
    file.write(data)
    file.seek(0)
    return file


def listens(port):
    """The IPv4 addresses on which something listens at this port."""
    found = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        address, number = local.split(":")
        if state == "0A" and int(number, 16) == port:
            found.add(".".join(str(byte) for byte in reversed(bytes.fromhex(address))))
    return found


def first_child(pid):
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def mounts_below(path):
    return [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()
            if line.split()[1].startswith(f"{path}/")]


def main():
    names = [name.removeprefix("test_") for name in vars(Suite) if name.startswith("test_")]
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--binary", type=pathlib.Path, default=os.environ.get("ROWHOUSE_BIN") or ROOT / "target" / "dist" / "rowhouse")
    ap.add_argument("tests", nargs="*", metavar="TEST", help=f"which tests; default: all of {' '.join(names)}")
    options = ap.parse_args()
    wanted = options.tests or names
    if unknown := set(wanted) - set(names):
        ap.error(f"no such test: {', '.join(sorted(unknown))}")
    # Leaving by a signal must clean up too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began, passed, failed, skipped = time.monotonic(), 0, 0, 0
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="rowhouse-test-dist-"))
    scratch.chmod(0o755)    # users of the installed systems pass through it
    suite = Suite(pathlib.Path(options.binary).resolve(), scratch)
    try:
        suite.build("identical" in wanted)
        for name in wanted:
            try:
                getattr(suite, f"test_{name}")()
                passed += 1
                suite.say(f"{name}: ok")
            except NotVerified as why:
                skipped += 1
                suite.say(f"{name}: NOT VERIFIED, {why}")
            except Exception as fault:  # noqa: BLE001  (the other tests go on)
                failed += 1
                suite.say(f"{name}: FAILED, {type(fault).__name__}: {fault}")
        for line in suite.lines:
            skipped += 1
            suite.say(line)
    except AssertionError as fault:
        failed += 1
        suite.say(f"build: FAILED, {fault}")
    finally:
        for mount in reversed(mounts_below(scratch)):
            subprocess.run(["umount", mount], check=False)
        if mounts_below(scratch):
            print(f"dist: {scratch} has mounts and was left", flush=True)
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"dist: {time.monotonic() - began:.0f} s")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

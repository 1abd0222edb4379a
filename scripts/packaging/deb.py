"""The Debian package: the binary, a systemd unit that is not enabled, its configuration, and a system user."""
import email.utils
import hashlib
import os
import pathlib
import tempfile

from . import archive
from .archive import Entry
from .binary import run
from .release import MAINTAINER, NOTICES, PackagingError, read, user_docs

HERE = pathlib.Path(__file__).resolve().parent / "debian"
DOCS = "usr/share/doc/rowhouse"
CONFIG = "etc/rowhouse/rowhouse.toml"


def build(release, binary, glibc, libgcc):
    version = release.debian_version
    values = {
        "VERSION": version,
        "ARCHITECTURE": release.architecture.debian,
        "MAINTAINER": MAINTAINER,
        "HOMEPAGE": release.homepage,
        "DATE": email.utils.formatdate(release.epoch),
        "DEPENDS": f"adduser, libc6 (>= {dotted(glibc)}), libgcc-s1 (>= {dotted(libgcc)})",
    }
    files = [
        Entry("usr/bin/rowhouse", binary, 0o755),
        Entry("usr/lib/systemd/system/rowhouse.service", unit()),
        Entry(CONFIG, read("deploy/rowhouse.toml")),
        Entry(f"{DOCS}/copyright", fill("copyright", values)),
        Entry(f"{DOCS}/{NOTICES}", release.notices),
        Entry(f"{DOCS}/changelog.gz", archive.gz(fill("changelog", values))),
        *(Entry(f"{DOCS}/{name}", data) for name, data in user_docs()),
    ]
    # Debian counts a KiB for a directory, and whole KiB for a file.
    values["SIZE"] = str(sum(1 if entry.data is None else -(-len(entry.data) // 1024) for entry in archive.with_parents(files)))
    sums = "".join(f"{hashlib.md5(entry.data, usedforsecurity=False).hexdigest()}  {entry.name}\n"
                   for entry in sorted(files, key=lambda entry: entry.name) if entry.name != CONFIG)
    control = [
        Entry("DEBIAN/control", fill("control", values)),
        Entry("DEBIAN/conffiles", f"/{CONFIG}\n".encode()),
        Entry("DEBIAN/md5sums", sums.encode()),
        *(Entry(f"DEBIAN/{name}", fill(name, values), 0o755) for name in ("postinst", "prerm", "postrm")),
    ]
    path = release.out / f"rowhouse_{version}_{release.architecture.debian}.deb"
    with tempfile.TemporaryDirectory(prefix="rowhouse-deb-") as tree:
        lay_out(pathlib.Path(tree), archive.with_parents(files + control), release.epoch)
        # One thread: how the compressed data is cut into blocks must not depend on the machine.
        run("dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "--build", tree, path,
            env=dict(os.environ, SOURCE_DATE_EPOCH=str(release.epoch)))
    return path


def unit():
    """The unit of deploy/, with the binary where Debian packages put it."""
    text = read("deploy/rowhouse.service")
    local = b"ExecStart=/usr/local/bin/rowhouse "
    if text.count(local) != 1:
        raise PackagingError(f"deploy/rowhouse.service has no line that begins with {local.decode()}")
    return text.replace(local, b"ExecStart=/usr/bin/rowhouse ")


def fill(name, values):
    text = (HERE / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text.encode()


def dotted(version):
    return ".".join(map(str, version))


def lay_out(root, entries, epoch):
    """Writes the entries below a directory, with their modes and one time."""
    root.chmod(0o755)
    for entry in entries:
        path = root / entry.name
        if entry.data is None:
            path.mkdir()
        else:
            path.write_bytes(entry.data)
        path.chmod(entry.mode)
    for path in [*root.rglob("*"), root]:
        os.utime(path, (epoch, epoch))

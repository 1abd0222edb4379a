"""The container image: an OCI image layout in a tar archive, made without a daemon.

The archive also has the `manifest.json` of `docker save`, so that Docker without containerd's image store loads it.
The image is for development: its server listens on all addresses of the container, with the development account.
"""
import hashlib
import json
import pathlib
import subprocess
import time

from . import archive
from .archive import Entry, directory
from .binary import shared_libraries
from .release import LICENSE, NOTICES, SUMMARY, PackagingError, read

UID = 10001                     # as in deploy/Dockerfile: files in volumes keep their owner
COMMAND = "/usr/bin/rowhouse"
DATA = "/data"
PORTS = (10001, 10002)
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
SECOND = 1_000_000_000          # Docker counts nanoseconds
PASSWD = f"root:x:0:0:root:/root:/sbin/nologin\nrowhouse:x:{UID}:{UID}:Rowhouse:{DATA}:/sbin/nologin\n"
GROUP = f"root:x:0:\nrowhouse:x:{UID}:\n"
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"


def build(release, binary, binary_path):
    layers = [archive.tar(archive.with_parents(entries), release.epoch)
              for entries in (base(binary_path), server(release, binary))]
    blobs = {}

    def blob(media_type, data):
        """Keeps the data and returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    packed = [blob("application/vnd.oci.image.layer.v1.tar+gzip", archive.gz(layer)) for layer in layers]
    config = blob("application/vnd.oci.image.config.v1+json", document(configuration(release, layers)))
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = blob(manifest_type, document(
        {"schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": packed}))
    # With `localhost` no client looks for the image on a registry.
    name = f"localhost/rowhouse:{release.version}"
    manifest["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    manifest["platform"] = {"architecture": release.architecture.debian, "os": "linux"}
    files = {
        **blobs,
        "index.json": document({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                                "manifests": [manifest]}),
        "manifest.json": document([{"Config": path(config), "RepoTags": [name], "Layers": [path(layer) for layer in packed]}]),
        "oci-layout": document({"imageLayoutVersion": "1.0.0"}),
    }
    image = release.out / f"rowhouse-{release.version}-{release.architecture.name}-oci.tar"
    entries = archive.with_parents(Entry(file, data) for file, data in files.items())
    image.write_bytes(archive.tar(entries, release.epoch))
    return image


def configuration(release, layers):
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    return {
        "created": created,
        "architecture": release.architecture.debian,
        "os": "linux",
        "config": {
            "User": f"{UID}:{UID}",
            "ExposedPorts": {f"{port}/tcp": {} for port in PORTS},
            "Env": [
                "PATH=/usr/bin",
                f"ROWHOUSE_DATA={DATA}",
                # Published ports reach only a server that listens on all addresses of the container.
                "ROWHOUSE_HOST=0.0.0.0",
                "ROWHOUSE_ALLOW_DEVELOPMENT_KEY_ON_NETWORK=true",
            ],
            "Entrypoint": [COMMAND],
            "Cmd": ["serve"],
            "Volumes": {DATA: {}},
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "Rowhouse",
                "org.opencontainers.image.description":
                    f"{SUMMARY}. For development: everybody who reaches the published ports can use the development account, "
                    "whose key is public. ROWHOUSE_DEVELOPMENT_ACCOUNT=false disables it.",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.created": created,
                "org.opencontainers.image.licenses": LICENSE,
                "org.opencontainers.image.url": release.homepage,
            },
            # Not part of the OCI specification; Docker and Podman read it.
            "Healthcheck": {"Test": ["CMD", COMMAND, "health"], "Interval": 30 * SECOND, "Timeout": 5 * SECOND,
                            "StartPeriod": 10 * SECOND, "Retries": 3},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
        "history": [{"created": created, "created_by": f"scripts/dist: {what}"} for what in ("system files", "rowhouse")],
    }


def base(binary_path):
    """What the binary needs of a system: libraries, certificates, users, directories."""
    yield from (
        Entry("etc/passwd", PASSWD.encode()),
        Entry("etc/group", GROUP.encode()),
        Entry("etc/nsswitch.conf", NSSWITCH.encode()),
        directory("data", 0o700, UID, UID),
        directory("tmp", 0o1777),
    )
    if not pathlib.Path(CERTIFICATES).exists():
        raise PackagingError(f"{CERTIFICATES} is missing (on Debian: apt-get install ca-certificates)")
    sources = [CERTIFICATES, *shared_libraries(binary_path)]
    for source in sources:
        yield Entry(source.lstrip("/"), pathlib.Path(source).read_bytes(), 0o644 if source == CERTIFICATES else 0o755)
    for package in sorted(filter(None, map(debian_package, sources))):
        notice = pathlib.Path(f"/usr/share/doc/{package}/copyright")
        if notice.exists():
            yield Entry(str(notice).lstrip("/"), notice.read_bytes())


def server(release, binary):
    yield Entry(COMMAND.lstrip("/"), binary, 0o755)
    yield Entry("usr/share/doc/rowhouse/LICENSE", read("LICENSE"))
    yield Entry(f"usr/share/doc/rowhouse/{NOTICES}", release.notices)


def debian_package(source):
    """The installed package that a file belongs to; None where there is no dpkg or it does not know the file."""
    if source == CERTIFICATES:
        return "ca-certificates"    # its installation script writes this file
    for name in (source, f"/usr{source}", str(pathlib.Path(source).resolve())):
        try:
            found = subprocess.run(["dpkg", "-S", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except FileNotFoundError:
            return None
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return None


def document(value):
    return json.dumps(value, indent=2, sort_keys=True).encode()


def path(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")

"""The tar archive: everything in one directory, to be unpacked anywhere."""
from . import archive
from .archive import Entry
from .release import NOTICES, read, user_docs


def build(release, binary):
    files = {"rowhouse": binary, "LICENSE": read("LICENSE"), NOTICES: release.notices, **dict(user_docs())}
    # Where docs/operating/install.md expects them, so its commands work in the unpacked directory.
    for name in ("deploy/rowhouse.service", "deploy/rowhouse.toml"):
        files[name] = read(name)
    entries = [Entry(f"{release.stem}/{name}", data, 0o755 if name == "rowhouse" else 0o644) for name, data in files.items()]
    path = release.out / f"{release.stem}.tar.gz"
    path.write_bytes(archive.gz(archive.tar(archive.with_parents(entries), release.epoch)))
    return path

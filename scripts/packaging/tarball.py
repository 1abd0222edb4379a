"""The tar archive: everything in one directory, to be unpacked anywhere."""
from . import archive
from .archive import Entry
from .release import NOTICES, read, user_docs


def build(release, binary):
    files = {"rowhouse": binary, "LICENSE": read("LICENSE"), NOTICES: release.notices, **dict(user_docs())}
    entries = [Entry(f"{release.stem}/{name}", data, 0o755 if name == "rowhouse" else 0o644) for name, data in files.items()]
    path = release.out / f"{release.stem}.tar.gz"
    path.write_bytes(archive.gz(archive.tar(archive.with_parents(entries), release.epoch)))
    return path

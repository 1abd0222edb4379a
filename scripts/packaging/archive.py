"""Archives whose bytes depend on nothing but their content: sorted entries, a fixed time, owner 0."""
import dataclasses
import gzip
import io
import tarfile


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file, or a directory when `data` is None. Names have no slash at either end."""
    name: str
    data: bytes | None
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


def directory(name, mode=0o755, uid=0, gid=0):
    return Entry(name, None, mode, uid, gid)


def with_parents(entries):
    """The entries in order of their names, with the directories that nobody named."""
    found = {entry.name: entry for entry in entries}
    for name in list(found):
        parts = name.split("/")[:-1]
        for end in range(1, len(parts) + 1):
            parent = "/".join(parts[:end])
            found.setdefault(parent, directory(parent))
    return [found[name] for name in sorted(found, key=lambda name: name.split("/"))]


def tar(entries, epoch):
    """A plain tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.uid, entry.gid, epoch
            if entry.data is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()


def gz(data):
    """Compressed, without a name and a time in the header."""
    return gzip.compress(data, compresslevel=6, mtime=0)

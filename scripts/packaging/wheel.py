"""The Python wheel. It carries only the binary, which pip puts next to the interpreter as the command `rowhouse`."""
import base64
import hashlib
import io
import time
import zipfile

from .release import LICENSE, NOTICES, SUMMARY, read

DESCRIPTION = f"""# Rowhouse

{SUMMARY}. This package carries the Linux binary; there is no Python code in it.

    rowhouse serve

starts a server for development: tables on port 10002, queues on port 10001, data in `./rowhouse-data`.
`rowhouse serve --help` lists all options.
"""
# The first moment that a zip archive can name.
ZIP_EPOCH = 315532800


def build(release, binary, glibc):
    name = f"rowhouse-{release.python_version}"
    tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{release.architecture.name}"
    info = f"{name}.dist-info"
    metadata = (f"Metadata-Version: 2.4\nName: rowhouse\nVersion: {release.python_version}\nSummary: {SUMMARY}\n"
                f"Home-page: {release.homepage}\nLicense: {LICENSE}\nLicense-File: LICENSE\nLicense-File: {NOTICES}\nRequires-Python: >=3.8\n"
                f"Description-Content-Type: text/markdown\n\n{DESCRIPTION}")
    about = f"Wheel-Version: 1.0\nGenerator: rowhouse-dist\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {
        f"{name}.data/scripts/rowhouse": binary,
        f"{info}/licenses/LICENSE": read("LICENSE"),
        f"{info}/licenses/{NOTICES}": release.notices,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": about.encode(),
    }
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items())
    # Its own line in the list has neither a hash nor a size.
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    buffer = io.BytesIO()
    when = time.gmtime(max(release.epoch, ZIP_EPOCH))[:6]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, when)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (0o100755 if ".data/scripts/" in path else 0o100644) << 16
            wheel.writestr(entry, data)
    path = release.out / f"{name}-{tag}.whl"
    path.write_bytes(buffer.getvalue())
    return path


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

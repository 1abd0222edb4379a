"""The npm package. Its command is the binary itself, so signals and exit codes need no forwarding."""
import json

from . import archive
from .archive import Entry
from .release import LICENSE, NOTICES, SUMMARY, read

README = f"""# Rowhouse

{SUMMARY}. This package carries the Linux binary and needs the GNU C library.

    npx rowhouse serve

starts a server for development: tables on port 10002, queues on port 10001, data in `./rowhouse-data`.
`npx rowhouse serve --help` lists all options.
"""


def build(release, binary):
    manifest = {
        "name": "rowhouse",
        "version": release.version,
        "description": SUMMARY,
        "homepage": release.homepage,
        "license": LICENSE,
        "bin": {"rowhouse": "bin/rowhouse"},
        "files": ["bin/rowhouse", NOTICES],
        "os": ["linux"],
        "cpu": [release.architecture.npm],
        "libc": ["glibc"],
    }
    entries = [
        Entry("package/package.json", (json.dumps(manifest, indent=2) + "\n").encode()),
        Entry("package/bin/rowhouse", binary, 0o755),
        Entry("package/LICENSE", read("LICENSE")),
        Entry(f"package/{NOTICES}", release.notices),
        Entry("package/README.md", README.encode()),
    ]
    # npm packages have no entries for directories.
    entries.sort(key=lambda entry: entry.name)
    path = release.out / f"rowhouse-{release.version}.tgz"
    path.write_bytes(archive.gz(archive.tar(entries, release.epoch)))
    return path

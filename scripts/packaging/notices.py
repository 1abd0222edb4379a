"""THIRD-PARTY-NOTICES.txt: the licences of the crates, and of the C libraries in them, that the binary is built from.

The content depends on Cargo.lock and on the sources of the crates only. A crate without a licence file is listed with the
licence expression of its manifest; no standard text is added for it.
"""
import dataclasses
import json
import pathlib
import re
import subprocess
import textwrap

from .release import ROOT, PackagingError

LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|COPYRIGHT)", re.IGNORECASE)
SOURCE_SUFFIXES = {".c", ".h", ".py", ".rs"}
# C libraries in crates: what to say about them, and the file that must hold the licence.
BUNDLED = {
    "libsqlite3-sys": ("contains the SQLite C library, which is in the public domain", None),
    "zstd-sys": ("contains the Zstandard (zstd) C library, used under its BSD licence", "zstd/LICENSE"),
}
# zstd offers the BSD licence or the GPL. The packages use the BSD licence.
NOT_USED = {("zstd-sys", "zstd/COPYING")}
COLUMNS = 100
INTRODUCTION = """\
THIRD-PARTY NOTICES

The rowhouse binary is built from the Rust crates listed in part 1, and the C libraries named there.
Part 2 holds the texts of the licence files in their sources. A text that several crates share is
printed once; texts that differ only in white space count as the same. The binary also contains the
Rust standard library, which is licensed under MIT OR Apache-2.0. Rowhouse itself is licensed under
Apache-2.0.
"""


@dataclasses.dataclass(frozen=True, order=True)
class Crate:
    name: str
    version: str
    expression: str
    source: str
    directory: pathlib.Path

    def __str__(self):
        return f"{self.name} {self.version}"


def collect():
    """The content of THIRD-PARTY-NOTICES.txt."""
    return render([(crate, licence_files(crate)) for crate in linked_crates()]).encode()


def linked_crates():
    """The crates that the binary is built from on this machine, without those of this workspace, in order."""
    metadata = json_of(cargo("metadata", "--locked", "--format-version", "1"))
    tree = cargo("tree", "--locked", "-p", "rowhouse-cli", "-e", "normal", "--prefix", "none", "--color", "never")
    known = {(package["name"], package["version"]): package for package in metadata["packages"]}
    own, crates = set(metadata["workspace_members"]), set()
    # A line is `name v1.2.3`; a path, `(proc-macro)` or `(*)` may follow.
    for name, version in re.findall(r"(?m)^(\S+) v(\S+)", tree):
        package = known.get((name, version))
        if not package:
            raise PackagingError(f"`cargo tree` lists {name} {version}, and `cargo metadata` does not: run both by hand")
        if package["id"] not in own:
            crates.add(Crate(name, version, package["license"] or "not stated", package["source"] or "",
                             pathlib.Path(package["manifest_path"]).parent))
    if not crates:
        raise PackagingError("`cargo tree -p rowhouse-cli` lists no third-party crates: run it by hand")
    return sorted(crates)


def cargo(*arguments):
    try:
        done = subprocess.run(["cargo", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise PackagingError("cargo is not installed, and the licence notices need `cargo metadata`: "
                             "install Rust, or add cargo to PATH") from None
    if done.returncode != 0:
        raise PackagingError(f"the licence notices need `cargo {' '.join(arguments)}`, "
                             f"which failed with status {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def json_of(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as fault:
        raise PackagingError(f"`cargo metadata` printed no JSON, and the licence notices need it: {fault}") from None


def licence_files(crate):
    """Pairs of path and text. Subdirectories count: they hold the licences of code copied from elsewhere."""
    if not crate.directory.is_dir():
        raise PackagingError(f"the source of {crate} is not on this machine: run `cargo fetch --locked`")
    found = []
    for path in crate.directory.rglob("*"):
        name = path.relative_to(crate.directory).as_posix()
        named = LICENCE_FILE.match(path.name) or path.parent.name.upper() in ("LICENSES", "LICENCES")
        if named and path.is_file() and path.suffix not in SOURCE_SUFFIXES and (crate.name, name) not in NOT_USED:
            found.append((name, read(crate, name)))
    _, required = BUNDLED.get(crate.name, (None, None))
    if required and required not in dict(found):
        raise PackagingError(f"{crate} has no file {required}: find the licence of its C library, and change "
                             "BUNDLED in scripts/packaging/notices.py")
    return sorted(found)


def read(crate, name):
    try:
        text = (crate.directory / name).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PackagingError(f"{name} of {crate} is not UTF-8: the licence notices cannot hold it") from None
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def render(crates):
    """The notices for pairs of a crate and its licence files."""
    numbers, texts, owners = {}, [], []
    for crate, files in crates:
        for name, text in files:
            number = numbers.setdefault(" ".join(text.split()), len(texts))
            if number == len(texts):
                texts.append(text)
                owners.append([])
            owners[number].append((crate, name))
    lines = [INTRODUCTION, heading("1. Crates")]
    for crate, files in crates:
        own = sorted({numbers[" ".join(text.split())] + 1 for _, text in files})
        lines += [str(crate), f"    licence: {crate.expression}"]
        if crate.name in BUNDLED:
            lines.append(f"    {BUNDLED[crate.name][0]}")
        if "MPL-" in crate.expression:
            lines.append(f"    source code: {source_of(crate)}")
        lines.append(f"    texts: {', '.join(map(str, own))}" if own else "    texts: none, its source has no licence file")
        lines.append("")
    lines.append(heading("2. Texts"))
    for number, (text, shared) in enumerate(zip(texts, owners, strict=True), 1):
        users = ", ".join(f"{crate} ({name})" for crate, name in shared)
        lines += ["=" * COLUMNS, *wrapped(f"Text {number}, of {users}"), "=" * COLUMNS, "", text, ""]
    return "\n".join(lines)


def source_of(crate):
    """Where to get the source, which the MPL requires a distributor to say."""
    if not crate.source.startswith("registry+"):
        raise PackagingError(f"{crate} is under the MPL and does not come from a registry: the notices must say where its "
                             "source is (source_of in scripts/packaging/notices.py)")
    return f"the crate {crate.name}, version {crate.version}, on crates.io, unchanged"


def heading(text):
    return f"{text}\n{'-' * len(text)}\n"


def wrapped(text):
    return textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False)

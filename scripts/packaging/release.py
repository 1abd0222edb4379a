"""What all packages of one release share: version, architecture, time, and the texts they describe themselves with."""
import dataclasses
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUMMARY = "A table and queue server that speaks the Azure Table and Queue storage protocols"
LICENSE = "Apache-2.0"
# The file with the licences of the third-party code in the binary.
NOTICES = "THIRD-PARTY-NOTICES.txt"
MAINTAINER = "Rowhouse maintainers <rowhouse@example.org>"
USER_FILES = ("README.md", "CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy", "docs", "examples")
# Directories of docs/ that are for developers.
DEVELOPER_DOCS = {"design", "lab"}


class PackagingError(Exception):
    """Stops the build. The text says what is wrong and what to do."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The names that the package formats give to one processor architecture."""
    elf: str        # what `readelf --file-header` prints
    name: str       # what `uname -m` prints; Python and our file names use it
    debian: str     # OCI images use the same
    npm: str


ARCHITECTURES = (
    Architecture("Advanced Micro Devices X86-64", "x86_64", "amd64", "x64"),
    Architecture("AArch64", "aarch64", "arm64", "arm64"),
)


@dataclasses.dataclass(frozen=True)
class Release:
    version: str                # of Cargo.toml
    homepage: str
    architecture: Architecture
    epoch: int                  # the time of everything in the packages, in seconds since 1970
    out: pathlib.Path
    notices: bytes              # the content of NOTICES

    @property
    def stem(self):
        return f"rowhouse-{self.version}-{self.architecture.name}-linux"

    @property
    def debian_version(self):
        """Debian sorts `~` before the end of a version, so a pre-release comes before its release."""
        return self.version.replace("-", "~", 1)

    @property
    def python_version(self):
        """Python spells 1.0.0-rc.2 as 1.0.0rc2."""
        found = re.fullmatch(r"(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.?(\d+))?", self.version)
        if not found:
            raise PackagingError(f"version {self.version} has no spelling for Python: use X.Y.Z or X.Y.Z-rc.N")
        release, kind, number = found.groups()
        return release + (f"{kind if kind == 'rc' else kind[0]}{number}" if kind else "")


def read(path):
    """The bytes of a file of this repository."""
    return (ROOT / path).read_bytes()


def user_docs():
    """Pairs of path and content: the pages for users, under the names they have in this repository."""
    # Only what git tracks: who follows deploy/README.md has secrets there.
    listed = subprocess.run(["git", "ls-files", "-z", "--", *USER_FILES], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split("\0")[:-1]
    if listed.returncode or not names:
        raise PackagingError(f"git does not list the pages to package: {listed.stderr.strip() or 'this is no checkout'}")
    for name in sorted(names):
        parts = name.split("/")
        if (len(parts) == 1 or parts[1] not in DEVELOPER_DOCS) and not any(part.startswith(".") for part in parts):
            yield name, read(name)

"""The server's binary: builds it, splits off its debug information, and reads what it needs to run."""
import os
import re
import subprocess

from .release import ARCHITECTURES, ROOT, PackagingError

# Largest binary in a package. Whoever changes this changes what users download.
STRIPPED_BYTES_MAX = 25_000_000
# Shared libraries that every Linux system with the GNU C library has. The packages rely on no others.
SYSTEM_LIBRARIES = re.compile(r"(libc\.so\.6|libm\.so\.6|libgcc_s\.so\.1|ld-linux-[\w-]+\.so\.\d)")


def run(*command, **options):
    """The standard output of a tool."""
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout
    except FileNotFoundError:
        raise PackagingError(f"{command[0]} is not installed (on Debian: apt-get install binutils dpkg libc-bin)") from None
    except subprocess.CalledProcessError as fault:
        raise PackagingError(f"{command[0]} failed with status {fault.returncode}: {' '.join(map(str, command))}") from None


def build():
    """Builds the binary with the profile `dist` and returns its path."""
    run("cargo", "build", "--locked", "--profile", "dist", "-p", "rowhouse-cli", cwd=ROOT)
    target = os.environ.get("CARGO_TARGET_DIR") or ROOT / "target"
    return ROOT / target / "dist" / "rowhouse"


def architecture(binary):
    machine = re.search(r"Machine:\s+(.*)", run("readelf", "--file-header", binary))
    for known in ARCHITECTURES:
        if machine and machine[1].strip() == known.elf:
            return known
    raise PackagingError(f"{binary} is for {machine[1] if machine else 'no known processor'}: "
                         f"packages are made for {', '.join(a.name for a in ARCHITECTURES)}")


def check_version(binary, version):
    """A binary of another version must not get into packages of this one."""
    said = run(binary, "--version").strip()
    if said != f"rowhouse {version}":
        raise PackagingError(f"{binary} is {said!r}, and Cargo.toml says {version}: build the binary again")


def split(binary, stripped, debug):
    """Writes the stripped binary and the file with its debug information, which the binary names."""
    run("strip", "-o", stripped, binary)
    size = stripped.stat().st_size
    if size > STRIPPED_BYTES_MAX:
        raise PackagingError(f"the stripped binary has {size:,} bytes; the limit is {STRIPPED_BYTES_MAX:,} "
                             "(STRIPPED_BYTES_MAX in scripts/packaging/binary.py)")
    run("objcopy", "--only-keep-debug", "--compress-debug-sections=zlib", binary, debug)
    debug.chmod(0o644)
    # The link holds the name and the checksum of the debug file. GDB refuses a file that does not match.
    run("objcopy", f"--add-gnu-debuglink={debug.name}", stripped.resolve(), cwd=debug.parent)
    stripped.chmod(0o755)


def symbol_versions(binary, prefix):
    """The newest version of the symbols that the binary takes from a library, as numbers: GLIBC_2.34 is (2, 34)."""
    found = re.findall(rf"\b{prefix}_(\d+(?:\.\d+)+)", run("readelf", "--version-info", "--wide", binary))
    if not found:
        raise PackagingError(f"{binary} uses no versioned symbols of {prefix}: packages need a binary that links it dynamically")
    return max(tuple(map(int, version.split("."))) for version in found)


def check_libraries(binary):
    """Refuses a binary that needs a library which a system may lack."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", "--wide", binary))
    strange = [name for name in needed if not SYSTEM_LIBRARIES.fullmatch(name)]
    if strange:
        raise PackagingError(f"the binary needs {', '.join(strange)}, which not every system has: link it statically")


def shared_libraries(binary):
    """Paths of the libraries and of the loader on this machine, where the binary looks for them."""
    listing = run("ldd", binary)
    if "not found" in listing:
        raise PackagingError(f"a library of the binary is not on this machine:\n{listing}")
    paths = re.findall(r"(?m)^\s*(?:\S+ => )?(/\S+) \(0x", listing)
    loader = re.search(r"interpreter: (/[^\]]+)\]", run("readelf", "--program-headers", "--wide", binary))
    if not loader or not paths:
        raise PackagingError(f"{binary} is not a dynamic executable")
    return sorted({*paths, loader[1]})

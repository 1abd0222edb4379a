#!/usr/bin/env python3
"""Runs other real clients against the built server: azure-storage (npm), azure-cli, Celery and LlamaIndex.

    run.py [CLIENT...]

Each client has a program in a folder of its own, an environment in .work/clients that `scripts/setup clients` makes,
and a server of its own with an empty data directory. Needs nothing but Python itself.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "sdk"))
from server import ACCOUNT, KEY, Server  # noqa: E402  (the path above is what makes it importable)

INSTALLED = ROOT / ".work" / "clients"
SECONDS = 600       # for all checks of a client; each takes less than two minutes on two cores
CLIENTS = {
    "azure-storage": ["node", HERE / "azure-storage" / "check.js"],
    **{name: [INSTALLED / name / "bin" / "python", HERE / name / "check.py"] for name in ("azure-cli", "celery", "llama-index")},
}


def environment(server, scratch):
    """What a program needs to find the server, without settings of the developer's own Azure account."""
    own = re.compile("ROWHOUSE_(?!BIN$|TEST_)|AZURE_|CELERY_")
    kept = {name: value for name, value in os.environ.items() if not own.match(name)}
    return kept | {
        "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT / 'tests' / 'sdk'}", "PYTHONDONTWRITEBYTECODE": "1", "NODE_PATH": str(INSTALLED / "azure-storage" / "node_modules"),
        "CLIENT_SCRATCH": scratch, "CLIENT_ACCOUNT": ACCOUNT, "CLIENT_KEY": KEY, "CLIENT_CONNECTION": server.connection_string,
        "CLIENT_TABLES": server.endpoint, "CLIENT_QUEUES": server.queue_endpoint,
    }


def run(name):
    """The counts of a client's program: passed, failed, skipped."""
    print(f"{name}:", flush=True)
    with tempfile.TemporaryDirectory(prefix="rowhouse-client-") as scratch, Server() as server:
        try:
            done = subprocess.run(CLIENTS[name], cwd=scratch, env=environment(server, scratch), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS)
            output, status = done.stdout, done.returncode
        except (subprocess.TimeoutExpired, OSError) as fault:
            output, status = f"{getattr(fault, 'stdout', None) or ''}\n{fault}", None
        print(output.rstrip(), flush=True)
        stopped, log = server.stop(), server.log()
    found = re.findall(r"(?m)^(\d+) passed, (\d+) failed, (\d+) skipped$", output)
    counts = [int(number) for number in found[-1]] if found else [0, 0, 0]
    # A program that ends without its counts, or with a status that contradicts them, has failed.
    if status is None or not counts[0] or bool(status) != bool(counts[1]):
        print(f"FAILED {name} ended with status {status}")
        counts[1] += 1
    if stopped or "panicked" in log:
        print(f"FAILED the server stopped with status {stopped}:\n{log[-2000:]}")
        counts[1] += 1
    return counts


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("clients", nargs="*", metavar="CLIENT", help=f"some of {', '.join(CLIENTS)}; all of them without")
    wanted = ap.parse_args().clients or list(CLIENTS)
    if unknown := set(wanted) - set(CLIENTS):
        ap.error(f"no such client: {', '.join(sorted(unknown))}")
    total = [sum(column) for column in zip(*map(run, wanted))]
    print("clients: {} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs the SDK's own tests, of azure-data-tables (its storage side) or azure-storage-queue, against an endpoint.

    python_sdk_suite.py --endpoint http://127.0.0.1:10002/devstoreaccount1          path style
    python_sdk_suite.py --endpoint https://devstoreaccount1.table.localhost:10002   host style, TLS
    python_sdk_suite.py --service queue --endpoint http://127.0.0.1:10001/devstoreaccount1

Run it with the Python of .work/venv, which make prepares. Nothing of the SDK is kept in this repository: pip fetches the
source distribution, pinned by hash, into a scratch directory. Arguments after -- go to pytest.
The tests delete every table of the account and change its service properties; give them an account of their own.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ET
from urllib.parse import urlsplit

HERE = pathlib.Path(__file__).resolve().parent
WORK = HERE.parents[1] / ".work" / "python-sdk-suite"
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
NOT_OURS = re.compile(r"cosmos|_aad")      # another service, and tests that need an issuer of tokens
# Where the pin and the expectations of a service are.
FILES = {"table": HERE / "python_sdk", "queue": HERE / "python_queue"}


def prepare(work, service):
    """The unpacked source distribution, fetched once for each pinned version."""
    pin = FILES[service] / "sdist.txt"
    package, version = re.search(r"(?m)^(azure-\S+)==(\S+)", pin.read_text()).groups()
    folder = f"{package.replace('-', '_')}-{version}"
    source = work / folder
    marker = source / ".prepared"
    if not marker.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--require-hashes",
                        "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", work, "-r", pin], check=True)
        with tarfile.open(work / f"{folder}.tar.gz") as archive:
            archive.extractall(work, filter="data")
        # Two tests give an access policy an expiry that has passed since they were written.
        for file in (source / "tests").glob("test_*.py"):
            text = file.read_text()
            file.write_text(text.replace("datetime(2025, 10, 12)", "datetime(2099, 10, 12)"))
        marker.touch()
    return source


def count(junit):
    """Passed, failed, listed in the expectations, and skipped by the SDK's authors."""
    figures = {"passed": 0, "failed": 0, "listed": 0, "skipped": 0}
    for case in ET.parse(junit).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            figures["failed"] += 1
        elif skipped is None:
            figures["passed"] += 1
        else:
            figures["listed" if "cannot apply" in skipped.get("message", "") else "skipped"] += 1
    return figures


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--endpoint", required=True)
    ap.add_argument("--service", choices=FILES, default="table")
    ap.add_argument("--key", default=EMULATOR_KEY)
    ap.add_argument("--ca", help="certificate to trust, for TLS endpoints")
    ap.add_argument("--work", type=pathlib.Path, default=WORK, help="scratch directory")
    ap.add_argument("--expect", type=pathlib.Path, help="tests that cannot apply: style test-glob reason")
    ap.add_argument("--sleep-cap", default="0.05", help="longest sleep of a test, in seconds")
    ap.add_argument("--report", type=pathlib.Path, help="write the figures as JSON")
    ap.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    args = ap.parse_args()

    url = urlsplit(args.endpoint.rstrip("/"))
    style = "path" if url.path else "host"
    account = url.path.strip("/") or url.hostname.split(".")[0]
    work = args.work.resolve()
    source, expect = prepare(work, args.service), args.expect or FILES[args.service] / "expectations.txt"
    junit, idle = (work / f"{args.service}-{style}-{url.scheme}{end}" for end in (".xml", "-idle.txt"))
    idle.unlink(missing_ok=True)
    env = dict(os.environ, PYTHONPATH=str(HERE / "python_sdk"), PYTHONDONTWRITEBYTECODE="1",
               SUITE_STYLES=f"{style} {url.scheme}", SUITE_SLEEP_CAP=args.sleep_cap, SUITE_RUN=str(time.time()),
               SUITE_SERVICE=args.service, SUITE_EXPECT=str(expect.resolve()), SUITE_IDLE=str(idle),
               SUITE_URL=args.endpoint.rstrip("/").replace(account, "{account}", 1),
               TABLES_STORAGE_ACCOUNT_NAME=account, TABLES_PRIMARY_STORAGE_ACCOUNT_KEY=args.key,
               STORAGE_ACCOUNT_NAME=account, STORAGE_ACCOUNT_KEY=args.key,
               AZURE_TEST_RUN_LIVE="true", AZURE_SKIP_LIVE_RECORDING="true")
    if style == "host":
        env["TABLES_STORAGE_ENDPOINT_SUFFIX"] = url.netloc.split(f".{args.service}.")[-1]
    if args.ca:
        env.update(REQUESTS_CA_BUNDLE=os.path.abspath(args.ca), SSL_CERT_FILE=os.path.abspath(args.ca))
    files = sorted(f"tests/{f.name}" for f in (source / "tests").glob("test_*.py") if not NOT_OURS.search(f.name))
    command = [sys.executable, "-m", "pytest", *files, "-q", "-rf", "--tb=line", "--show-capture=no", "--timeout=45",
               "-p", "suite_plugin", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-W", "ignore",
               f"--junitxml={junit}"]
    status = subprocess.run(command + args.pytest, cwd=source, env=env).returncode
    figures = count(junit)
    figures["idle"] = idle.read_text().splitlines() if idle.exists() else []
    for line in figures["idle"]:
        print(f"the expectation covers no test: {line}")
    if args.report:
        args.report.write_text(json.dumps(figures, indent=1))
    print("{passed} passed, {failed} failed, {listed} listed as impossible, {skipped} skipped by the SDK".format(**figures))
    return 1 if status or figures["idle"] else 0


if __name__ == "__main__":
    sys.exit(main())

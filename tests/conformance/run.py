#!/usr/bin/env python3
"""Measures the built server against the recorded answers of the live services and the Python SDKs' own tests.

    run.py [--only replay,replay-queue,path,host,queue-path,queue-host]

Each suite gets a server of its own: they want an account without other tables and queues. The recordings are not part
of this repository. Those of tables are looked for in $ROWHOUSE_RECORDINGS and in ../shared/conformance/recordings, those of
queues in $ROWHOUSE_QUEUE_RECORDINGS and in ../shared/conformance/recordings-queue.
Where they are absent the replay counts as NOT VERIFIED. The figures go to .work/conformance.json, or with
ROWHOUSE_TEST_STORE=postgres to .work/conformance-postgres.json, on a cluster to .work/conformance-citus.json.

Fails on a difference that no expectation explains, and on an expectation that explains nothing: the lists
may only shrink. Run it with the Python of .work/venv, which make prepares.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "sdk"))
import postgres  # noqa: E402  (the path above is what makes them importable)
from server import Server  # noqa: E402

WORK = ROOT / ".work" / (f"conformance-{postgres.store()}" if postgres.wanted() else "conformance")


def recordings(variable, folder):
    for place in (os.environ.get(variable), ROOT.parent / "shared" / "conformance" / folder):
        if place and pathlib.Path(place).is_dir():
            return pathlib.Path(place)
    return None


def run(name, server, command):
    """Whether a suite passed, and its report; its output goes to a log and, on failure, to the screen."""
    report, log = WORK / f"{name}.json", WORK / f"{name}.log"
    report.unlink(missing_ok=True)
    with open(log, "wb") as out:
        status = subprocess.run([sys.executable, *command, "--report", report], stdout=out, stderr=out).returncode
    if status:
        print(f"--- the end of {log.relative_to(ROOT)} ---")
        print("\n".join(log.read_text(errors="replace").splitlines()[-100:]))
    alive = server.process.poll() is None and "panicked" not in server.log()
    if not alive:
        print(f"--- the server died or panicked, exit status {server.process.poll()}; the end of its log ---")
        print(server.log()[-4000:])
    return status == 0 and alive, json.loads(report.read_text()) if report.exists() else {}


def replay(name, variable, folder, expectations, endpoint):
    """Every recorded exchange, every check."""
    source = recordings(variable, folder)
    if source is None:
        return {"verified": False, "why": f"the recordings are not here; set {variable}"}
    with Server() as server:
        ok, report = run(name, server, [HERE / "replay.py", "--endpoint", endpoint(server), "--strict",
                                        "--expect", HERE / expectations, source])
    counts = report.get("counts", {})
    return {"verified": True, "ok": ok, "passed": counts.get("passed", 0), "failed": counts.get("failed", 0),
            "listed": counts.get("expected", 0), "skipped": counts.get("skipped", 0)}


def sdk(name, tls):
    with Server(tls=tls) as server:
        endpoint = server.host_endpoint if tls else server.endpoint
        trust = ["--ca", server.certificate] if tls else []
        ok, report = run(f"sdk-{name}", server, [HERE / "python_sdk_suite.py", "--endpoint", endpoint, *trust])
    return {"verified": True, "ok": ok, **{k: report.get(k, 0) for k in ("passed", "failed", "listed", "skipped")}}


def queue_sdk(name, host):
    """Plain both times: the SDK tells the account from a host only in domains that begin with `core`, which no certificate covers."""
    with Server() as server:
        endpoint = server.queue_host_endpoint.replace(".queue.", ".queue.core.") if host else server.queue_endpoint
        ok, report = run(f"sdk-{name}", server, [HERE / "python_sdk_suite.py", "--service", "queue", "--endpoint", endpoint])
    return {"verified": True, "ok": ok, **{k: report.get(k, 0) for k in ("passed", "failed", "listed", "skipped")}}


SUITES = {
    "replay": ("recordings of tables, all checks",
               lambda: replay("replay", "ROWHOUSE_RECORDINGS", "recordings", "expectations.txt", lambda s: s.endpoint)),
    "replay-queue": ("recordings of queues, all checks",
                     lambda: replay("replay-queue", "ROWHOUSE_QUEUE_RECORDINGS", "recordings-queue",
                                    "expectations-queue.txt", lambda s: s.queue_endpoint)),
    "path": ("Python SDK's tests of tables, path style, http", lambda: sdk("path", tls=False)),
    "host": ("Python SDK's tests of tables, host style, https", lambda: sdk("host", tls=True)),
    "queue-path": ("Python SDK's tests of queues, path style", lambda: queue_sdk("queue-path", host=False)),
    "queue-host": ("Python SDK's tests of queues, host style", lambda: queue_sdk("queue-host", host=True)),
}


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--only", default=",".join(SUITES), help="suites to run, separated by commas: %(default)s")
    wanted = ap.parse_args().only.split(",")
    if unknown := set(wanted) - set(SUITES):
        ap.error(f"no such suite: {', '.join(sorted(unknown))}")
    WORK.mkdir(parents=True, exist_ok=True)
    figures, total = {}, {"passed": 0, "failed": 0, "skipped": 0}
    for name in wanted:
        title, suite = SUITES[name]
        result = figures[name] = suite()
        if not result["verified"]:
            print(f"conformance, {title}: NOT VERIFIED, {result['why']}", flush=True)
            continue
        print("conformance, {}: {passed} passed, {failed} failed, {listed} listed, {skipped} skipped".format(title, **result),
              flush=True)
        total["passed"] += result["passed"]
        total["skipped"] += result["listed"] + result["skipped"]
        # A suite that broke down, or an expectation that covers nothing, is a failure even without a failing case.
        total["failed"] += result["failed"] or int(not result["ok"])
    WORK.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")
    print("conformance: {passed} passed, {failed} failed, {skipped} skipped".format(**total))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""The suites that have a runner of their own: SDKs, recorded traffic, examples, packages, lint."""
import os
import re
import sys
import xml.etree.ElementTree as ET

from schedule import Task

CARGO = frozenset(["cargo"])
CITUS, CITUS_KILL = "ROWHOUSE_TEST_CITUS", "ROWHOUSE_TEST_CITUS_KILL"


def last_line_counts(log):
    """The suites of our own end with `N passed, N failed, N skipped`."""
    found = re.findall(r"(\d+) passed, (\d+) failed, (\d+) skipped", log)
    return [int(n) for n in found[-1]] if found else None


def cargo_counts(log):
    """Adds up the result lines of test programs."""
    found = re.findall(r"(?m)^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", log)
    counts = [sum(int(line[i]) for line in found) for i in range(3)]
    return counts if counts[0] else None


def junit_counts(path):
    def count(_log):
        passed = failed = skipped = 0
        for case in ET.parse(path).iter("testcase"):
            kinds = {child.tag for child in case}
            failed += bool(kinds & {"failure", "error"})
            skipped += "skipped" in kinds
            passed += not kinds & {"failure", "error", "skipped"}
        return [passed, failed, skipped]
    return count


def tap_counts(path):
    def count(_log):
        text = path.read_text()
        return [int(re.search(rf"(?m)^# {word} (\d+)", text)[1]) for word in ("pass", "fail", "skipped")]
    return count


def one(_log):
    """A command that says by its status alone whether it succeeded."""
    return [1, 0, 0]


class Suites:
    """Tasks by name of the suite. `binary` is the server that they drive."""

    def __init__(self, work, binary, built_by):
        self.work, self.binary = work, binary
        self.root = work.root
        self.built_by = built_by            # name of the task that builds the server, or None
        self.python = work.folder / "venv" / "bin" / "python"
        self.postgres = [sys.executable, self.root / "tests" / "sdk" / "postgres.py"]

    def setup(self, what):
        """Installs what tests need."""
        return Task("build", f"setup {what}", [self.root / "scripts" / "setup", what], self.root,
                    self.work.log(f"setup-{what}"), build=True)

    def release(self):
        return Task("build", "build release", ["cargo", "build", "--locked", "--release", "--timings", "-p", "rowhouse-cli"], self.root,
                    self.work.log("build-release"), build=True, locks=CARGO, minutes=40)

    def lint(self):
        def task(name, *command, locks=frozenset()):
            return Task("lint", name, command, self.root, self.work.log(f"lint-{name.replace(' ', '-')}"), locks=locks,
                        count=one, minutes=40, build=locks == CARGO)
        return [task("format", "cargo", "fmt", "--all", "--check"),
                task("format of fuzz targets", "cargo", "fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"),
                task("audit", "scripts/audit"),
                task("runner of the tests", sys.executable, "scripts/testing/selftest.py"),
                task("clippy", "cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings", locks=CARGO)]

    def drive(self, suite, command, count, needs=(), cwd=None, weight=60, **more):
        """A suite that drives the server."""
        built = (self.built_by,) if self.built_by else ()
        env = {"ROWHOUSE_BIN": str(self.binary)} | more.pop("env", {})
        return Task(suite, suite, command, cwd or self.root, self.work.log(suite), env=env, needs=(*built, *needs),
                    weight=weight, minutes=20, count=count, **more)

    def all(self):
        """Suite -> tasks, on the embedded engine and on PostgreSQL."""
        tasks = {}
        for suffix, before in (("", []), ("-postgres", [*self.postgres, "run"])):
            tasks |= {name + suffix: make(suffix, before) for name, make in (
                ("conformance", self.conformance), ("sdk-python", self.sdk_python), ("sdk-js", self.sdk_js),
                ("archive", self.archive))}
        tasks["readme"] = self.drive(
            "readme", [self.python, self.root / "tests" / "sdk" / "readme" / "run.py"], last_line_counts,
            ("setup python", "setup js"), locks=frozenset(["ports"]))
        # Only root can make the system that the Debian package is installed in; without it that test is NOT VERIFIED.
        system = ["setup debootstrap"] if os.geteuid() == 0 else []
        tasks["dist"] = self.drive(
            "dist", [self.python, self.root / "tests" / "dist" / "run.py"], last_line_counts, ("setup python", *system), weight=90)
        return tasks

    def on_request(self):
        """Suites that no lane runs: what they install is large. `scripts/verify` runs them."""
        return {"clients": self.drive("clients", [sys.executable, self.root / "tests" / "clients" / "run.py"],
                                      last_line_counts, ("setup clients",))}

    def conformance(self, suffix, before):
        return self.drive(f"conformance{suffix}", [*before, self.python, self.root / "tests" / "conformance" / "run.py"],
                          last_line_counts, ("setup python", "setup postgres"), weight=120)

    def sdk_python(self, suffix, before):
        results = self.work.folder / f"sdk-python{suffix}.xml"
        results.unlink(missing_ok=True)
        return self.drive(f"sdk-python{suffix}", [*before, self.python, "-m", "pytest", "-q", f"--junitxml={results}"],
                          junit_counts(results), ("setup python", "setup postgres"), self.root / "tests" / "sdk" / "python")

    def sdk_js(self, suffix, before):
        results, folder = self.work.folder / f"sdk-js{suffix}.tap", self.root / "tests" / "sdk" / "js"
        results.unlink(missing_ok=True)
        files = sorted(f.name for f in folder.glob("*.test.mjs"))
        command = ["node", "--test", "--test-reporter=spec", "--test-reporter-destination=stdout", "--test-reporter=tap",
                   f"--test-reporter-destination={results}", *files]
        return self.drive(f"sdk-js{suffix}", [*before, *command], tap_counts(results), ("setup js", "setup postgres"), folder)

    def archive(self, suffix, before):
        return self.drive(f"archive{suffix}", [*before, self.python, self.root / "tests" / "archive" / "run.py"],
                          last_line_counts, ("setup python", "setup postgres"), weight=40)

    def citus(self):
        """On a cluster that somebody names: a test never sets one up."""
        ignored = ["--ignored", "--test-threads=1", "--nocapture"]
        without_kill = [] if CITUS_KILL in os.environ else ["--skip", "a_worker_dies"]
        it = ["cargo", "test", "--locked", "--test", "it", "-p"]
        on = [*self.postgres, "citus"]
        return {
            "citus": Task("citus", "citus", [*it, "rowhouse-store-postgres", "--", "citus", *ignored], self.root,
                          self.work.log("citus"), needs=("setup postgres",), locks=CARGO, alone=True, count=cargo_counts, minutes=45),
            "citus-binary": self.drive("citus-binary", [*it, "rowhouse-testkit", "--", "citus::", *ignored, *without_kill],
                                       cargo_counts, ("setup postgres",), locks=CARGO, alone=True),
            "sdk-python-citus": by_itself(self.sdk_python("-citus", on)),
            "conformance-citus": by_itself(self.conformance("-citus", on)),
        }


def by_itself(task):
    task.alone = True
    return task

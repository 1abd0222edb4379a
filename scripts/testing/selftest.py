#!/usr/bin/env python3
"""Does the runner report what happened? A runner that loses a failure would pass everything."""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "testing"))
import report  # noqa: E402
import rust  # noqa: E402  (the path above is what makes them importable)
import schedule  # noqa: E402
import suites  # noqa: E402


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def task(self, name, script, **more):
        return schedule.Task("suite", name, ["sh", "-c", script], self.folder, self.folder / f"{name}.log",
                             count=more.pop("count", suites.one), **more)

    def run_all(self, *tasks):
        ended = []
        schedule.Scheduler(tasks, {"PATH": "/usr/bin:/bin"}, ended.append).run()
        return {task.name: task for task in ended}

    def test_a_failure_is_counted(self):
        ended = self.run_all(self.task("good", "true"), self.task("bad", "false"))
        self.assertEqual(ended["good"].counts, [1, 0, 0])
        self.assertEqual(ended["bad"].counts, [0, 1, 0])

    def test_a_suite_that_counts_failures_and_exits_well_has_failed(self):
        ended = self.run_all(self.task("suite", "echo 3 passed, 1 failed, 0 skipped", count=suites.last_line_counts))
        self.assertEqual((ended["suite"].counts, ended["suite"].status), ([3, 1, 0], 1))

    def test_a_suite_that_says_nothing_has_failed(self):
        ended = self.run_all(self.task("suite", "true", count=suites.last_line_counts))
        self.assertEqual(ended["suite"].counts, [0, 1, 0])

    def test_a_test_that_did_not_run_has_failed(self):
        none = "test result: ok. 0 passed; 0 failed; 0 ignored"
        self.assertEqual(rust.count(none), [0, 1, 0])
        self.assertEqual(rust.count(none.replace("0 passed", "1 passed")), [1, 0, 0])

    def test_what_needs_a_failed_task_has_failed(self):
        ended = self.run_all(self.task("build", "false", build=True), self.task("test", "true", needs=("build",)))
        self.assertEqual(ended["test"].counts, [0, 1, 0])

    def test_a_need_that_nobody_provides_is_no_reason_to_pass(self):
        with self.assertRaises(ValueError):
            self.run_all(self.task("test", "true", needs=("nothing",)))

    def test_tasks_that_follow_a_task_run(self):
        first = self.task("first", "true", build=True, then=lambda _: [self.task("second", "true")])
        self.assertEqual(set(self.run_all(first)), {"first", "second"})

    def test_what_measures_runs_alone_and_last(self):
        tasks = [self.task(f"t{n}", "sleep 0.2") for n in range(3)] + [self.task("alone", "true", alone=True)]
        ended = self.run_all(*tasks)
        last = max(task.began + task.seconds for name, task in ended.items() if name != "alone")
        self.assertGreaterEqual(ended["alone"].began, last)

    def test_locks_keep_tasks_apart(self):
        lock = frozenset(["ports"])
        first, second = self.run_all(*(self.task(f"t{n}", "sleep 0.2", locks=lock) for n in range(2))).values()
        self.assertGreaterEqual(second.began, first.began + first.seconds)

    def test_a_task_that_hangs_ends_with_what_it_started(self):
        began = time.monotonic()
        ended = self.run_all(self.task("hangs", "sleep 60 & sleep 60", minutes=0.005))
        self.assertEqual(ended["hangs"].counts, [0, 1, 0])
        self.assertLess(time.monotonic() - began, 10)


class Plans(unittest.TestCase):
    """Every suite can be run by itself, in both lanes, with a binary of one's own and without: nothing waits for what nobody does."""

    def test_every_suite_can_be_run_alone(self):
        loader = importlib.machinery.SourceFileLoader("test_script", str(ROOT / "scripts" / "test"))
        script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(script)
        work = script.Work()
        driven = suites.Suites(work, pathlib.Path("server"), None)
        names = ["rust", "binary", "lint", *driven.all(), *driven.on_request()]
        before = os.environ.pop("ROWHOUSE_BIN", None)
        for suite in ([], *([name] for name in names)):
            for lane in ("check", "test"):
                for binary in ({}, {"ROWHOUSE_BIN": "/bin/true"}):
                    os.environ.update(binary)
                    tasks, _ = script.plan(argparse.Namespace(suites=suite, lane=lane, only=None), work, None)
                    schedule.Scheduler(tasks, {}, None)
                    self.assertEqual("clients" in suite, "clients" in [task.suite for task in tasks])
                    os.environ.pop("ROWHOUSE_BIN", None)
        if before:
            os.environ["ROWHOUSE_BIN"] = before

    def test_a_run_without_tests_has_failed(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            work = argparse.Namespace(root=pathlib.Path(folder), folder=pathlib.Path(folder))
            self.assertEqual(report.Report(work, "test").close(1, []), 1)
            some = report.Report(work, "test")
            some.suite("rust")["counts"] = [5, 0, 0]
            self.assertEqual(some.close(1, ["rust"]), 0)
            self.assertEqual(some.close(1, ["rust", "binary"]), 1)


if __name__ == "__main__":
    unittest.main()

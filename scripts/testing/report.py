"""What a run prints: failures as they happen; at the end counts and seconds by suite, compilations and the slowest tests."""
import json
import re
import sys

SHOWN_LINES = 80        # of the end of what failed
SLOWEST = 20
TELLING = re.compile(r"FAILED|panicked at|^error|^✖|did not become ready")


class Report:
    def __init__(self, work, lane):
        self.work, self.lane = work, lane
        self.suites, self.builds, self.tests, self.lines = {}, [], [], []

    def suite(self, name):
        return self.suites.setdefault(name, {"counts": [0, 0, 0], "seconds": 0.0, "longest": 0.0})

    def skip(self, suite, number):
        self.suite(suite)["counts"][2] += number

    def unverified(self, suite, line):
        self.lines.append(f"{suite}: {line}")

    def add(self, task):
        """A task has ended."""
        text = task.log.read_text(errors="replace") if task.log.exists() else ""
        if task.build:
            self.builds.append((task.name, task.seconds, task.status))
            print(f"{task.name}: {'done' if task.status == 0 else 'FAILED'} ({task.seconds:.0f} s)", flush=True)
        if not task.build or task.count or task.status:
            suite = self.suite(task.suite)
            suite["counts"] = [a + b for a, b in zip(suite["counts"], task.counts)]
            suite["seconds"] += task.seconds
            self.tests.append((task.name, task.suite, task.seconds, task.counts))
            if task.name == task.suite:
                print("{}: {} passed, {} failed, {} skipped ({:.0f} s)".format(task.name, *task.counts, task.seconds), flush=True)
        self.lines += sorted({f"{task.name}: {line.strip()}" for line in re.findall(r"(?m)^.*NOT VERIFIED.*$", text)})
        if task.status or task.counts[1]:
            self.show(task, text)

    def show(self, task, text):
        lines = [line for line in text.splitlines() if not line.startswith('{"reason"')]
        early = [line for line in lines[:-SHOWN_LINES] if TELLING.search(line)][:SHOWN_LINES]
        print(f"--- FAILED {task.title}; {task.log.relative_to(self.work.root)} ---")
        print("\n".join(early + lines[-SHOWN_LINES:]))
        print("---", flush=True)

    def leave_out(self, suite, number):
        """Tests of a suite that belong to another lane."""
        self.lines.append(f"{suite}: {number} tests belong to another lane")

    def close(self, seconds, wanted):
        """Prints the end; the exit status. A suite that was wanted and of which nothing ran has failed."""
        total = [sum(suite["counts"][i] for suite in self.suites.values()) for i in range(3)]
        print("\nCompilations and installations (side by side with tests): seconds")
        for name, took, _ in self.builds:
            print(f"  {took:6.0f}  {name}")
        print(f"\nThe {SLOWEST} slowest tests: seconds")
        for name, _, took, _ in sorted(self.tests, key=lambda test: -test[2])[:SLOWEST]:
            print(f"  {took:6.1f}  {name}")
        print("\nSuites: results, and seconds added up over tests that ran side by side")
        for name, suite in self.suites.items():
            print("  {:24} {:5} passed, {} failed, {} skipped ({:.0f} s)".format(name, *suite["counts"], suite["seconds"]))
        print("\n".join(self.lines))
        if total[1]:
            print("\nFailed:")
            print("\n".join(f"  {suite}: {name}" for name, suite, _, counts in self.tests if counts[1]))
        empty = [name for name in wanted if not sum(self.suites.get(name, {"counts": [0]})["counts"])]
        if empty or not total[0]:
            print(f"\nFAILED: no test was run of {', '.join(empty) or 'any suite'}")
            total[1] += 1
        print(f"\n{self.lane}: {seconds / 60:.1f} minutes")
        self.save(seconds)
        print("{} passed, {} failed, {} skipped".format(*total))
        return 1 if total[1] else 0

    def save(self, seconds):
        tests = [{"name": name, "suite": suite, "seconds": round(took, 3), "counts": counts}
                 for name, suite, took, counts in self.tests]
        data = {"lane": self.lane, "seconds": round(seconds, 1),
                "builds": {name: round(took, 1) for name, took, _ in self.builds}, "tests": tests}
        (self.work.folder / "test-report.json").write_text(json.dumps(data, indent=1) + "\n")

"""Runs tasks side by side on a small machine.

A task is one process: a compilation, a test, or a suite with a runner of its own. Tasks that mostly wait run next to each other, as
many as leave the processors busy but not crowded; compilations run one at a time; tasks that measure run alone, after all others.
"""
import dataclasses
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

CORES = os.cpu_count() or 1
TESTS_MIN = 2 * CORES       # at the same time, however busy the machine is: most tests wait most of the time
TESTS_MAX = 6 * CORES       # however idle it is
START_EVERY = 0.04          # seconds: what was just started must show in the load before more is added
CLEAN_UP_SECONDS = 10       # for a task that is ended
TICK = 0.05                 # seconds


@dataclasses.dataclass
class Task:
    """`needs` are names of tasks that must have succeeded; of two tasks with the same lock only one runs at a time."""
    suite: str
    name: str
    command: list
    cwd: pathlib.Path
    log: pathlib.Path
    env: dict = dataclasses.field(default_factory=dict)
    needs: tuple = ()
    locks: frozenset = frozenset()
    alone: bool = False             # measures: nothing else may run
    build: bool = False             # compiles or installs: not counted as a test
    minutes: float = 10
    weight: float = 0               # expected seconds: the longest tasks start first
    count: object = None            # text of the log -> [passed, failed, skipped]
    then: object = None             # called after success; returns more tasks
    seconds: float = 0
    began: float = 0
    counts: list = None
    status: int = None

    @property
    def title(self):
        return f"{self.suite}: {self.name}"


class Load:
    """How many threads want a processor, smoothed over about a fifth of a second."""

    def __init__(self):
        self.value, self.at = 0.0, time.monotonic()

    def read(self):
        try:
            with open("/proc/stat") as stat:
                running = next(int(line.split()[1]) for line in stat if line.startswith("procs_running")) - 1
        except (OSError, StopIteration):
            running = 0     # not Linux: TESTS_MAX alone limits
        now = time.monotonic()
        share = min(1.0, (now - self.at) / 0.2)
        self.value, self.at = self.value + (running - self.value) * share, now
        return self.value


class Scheduler:
    """Runs tasks until none is left; `on_end` hears of each that has ended or could not be started."""

    def __init__(self, tasks, env, on_end):
        self.waiting, self.names, self.env, self.on_end = [], set(), env, on_end
        self.add(tasks)
        self.running, self.done, self.failed = {}, set(), set()
        self.ended, self.load, self.last_start = queue.Queue(), Load(), 0.0
        self.processes = {}

    def add(self, tasks):
        """Refuses tasks that would wait for ever."""
        self.names |= {task.name for task in tasks}
        for task in tasks:
            if missing := set(task.needs) - self.names:
                raise ValueError(f"{task.title} needs what nobody provides: {', '.join(sorted(missing))}")
        self.waiting += tasks

    def run(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(143))
        try:
            while self.waiting or self.running:
                self.start_what_can()
                try:
                    task = self.ended.get(timeout=TICK)
                except queue.Empty:
                    self.load.read()
                    continue
                self.finish(task)
        finally:
            end_groups(list(self.processes.values()))

    def finish(self, task):
        del self.running[id(task)]
        (self.done if task.status == 0 else self.failed).add(task.name)
        if task.status == 0 and task.then:
            self.add(task.then(task))
        self.on_end(task)

    def start_what_can(self):
        for task in [t for t in self.waiting if any(need in self.failed for need in t.needs)]:
            self.waiting.remove(task)
            task.status, task.counts = 1, [0, 1, 0]
            self.failed.add(task.name)
            missing = ", ".join(need for need in task.needs if need in self.failed)
            task.log.write_text(f"not run: {missing} failed\n")
            self.on_end(task)
        while task := self.next():
            self.waiting.remove(task)
            self.running[id(task)] = task
            self.last_start = time.monotonic()
            threading.Thread(target=self.execute, args=(task,), daemon=True).start()

    def next(self):
        """The task to start now, if there is one."""
        if any(task.alone for task in self.running.values()):
            return None
        held = frozenset().union(*(task.locks for task in self.running.values()))
        ready = [t for t in self.waiting if self.done.issuperset(t.needs) and not t.locks & held and not t.alone]
        builds = [t for t in ready if t.build]
        if builds:
            return builds[0]
        tests = [t for t in ready if not t.build]
        if tests and self.has_room():
            return max(tests, key=lambda t: t.weight)
        if not self.running and not ready:
            alone = [t for t in self.waiting if self.done.issuperset(t.needs)]
            return max(alone, key=lambda t: t.weight, default=None)
        return None

    def has_room(self):
        tests = sum(not task.build for task in self.running.values())
        if tests < TESTS_MIN:
            return True
        soon = time.monotonic() - self.last_start < START_EVERY
        return not soon and tests < TESTS_MAX and self.load.read() <= CORES

    def execute(self, task):
        task.began = time.monotonic()
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with open(task.log, "wb", buffering=0) as log:
            try:
                process = subprocess.Popen([str(word) for word in task.command], cwd=task.cwd, env=self.env | task.env,
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                           start_new_session=True)
                self.processes[id(task)] = process
                task.status = process.wait(timeout=task.minutes * 60)
            except subprocess.TimeoutExpired:
                end_groups([process])
                task.status = 1
                log.write(f"\nended after {task.minutes:g} minutes: it hangs\n".encode())
            except Exception as fault:      # whatever it is: a task that never ends would hold up the run
                task.status = 1
                log.write(f"{fault!r}\n".encode())
            self.processes.pop(id(task), None)
        task.seconds = time.monotonic() - task.began
        try:
            task.counts = counts_of(task)
            if task.counts[1] and not task.status:
                task.status = 1
        finally:
            task.counts = task.counts or [0, 1, 0]
            self.ended.put(task)


def counts_of(task):
    """What a task says of itself; a task that failed has failed at something."""
    text = task.log.read_text(errors="replace")
    counts = None
    if task.count:
        try:
            counts = task.count(text)
        except (OSError, ValueError, TypeError, SyntaxError):
            pass        # the suite broke down before it could count
        counts = counts or [0, 1, 0]
    counts = list(counts or [0, 0, 0])
    if task.status and not counts[1]:
        counts = [counts[0] if sum(counts) > 1 else 0, 1, counts[2]]
    return counts


def end_groups(processes):
    """Ends processes and what they started. They may clean up first: unmount, stop servers, remove directories."""
    for number, seconds in ((signal.SIGTERM, CLEAN_UP_SECONDS), (signal.SIGKILL, 1)):
        for process in processes:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + seconds
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.05)

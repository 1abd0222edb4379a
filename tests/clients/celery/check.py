"""A Celery worker whose broker is the Queue service."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

from azure.storage.queue import QueueServiceClient
from celery import Celery

import checks
import tasks
from server import KEY, Server

HERE = pathlib.Path(__file__).resolve().parent
SCRATCH = tasks.SCRATCH
LOG = SCRATCH / "worker.log"
SECONDS = 60
service = QueueServiceClient.from_connection_string(os.environ["CLIENT_CONNECTION"])


@contextlib.contextmanager
def worker(*options, **env):
    """A worker that is ready. It must still run at the end, unless the check has killed it."""
    with open(LOG, "ab") as log:
        begin = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency=2", "--loglevel=INFO", "--without-gossip",
             "--without-mingle", "--without-heartbeat", *options],
            cwd=HERE, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        wait(lambda: b"ready." in LOG.read_bytes()[begin:], "a worker that is ready")
        yield process
        if process.returncode is None:
            assert process.poll() is None, f"the worker ended with status {process.returncode}"
            process.terminate()
            assert process.wait(SECONDS) == 0, f"the worker ended with status {process.returncode}"
    except BaseException:
        print(LOG.read_text(errors="replace")[-4000:])
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait(done, what):
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline, f"{what} did not come within {SECONDS} s"
        time.sleep(0.05)


def result(name):
    wait((SCRATCH / name).exists, f"the result of {name}")
    return (SCRATCH / name).read_text()


def waiting():
    """About how many messages the broker's queue has."""
    return service.get_queue_client("celery-clients").get_queue_properties().approximate_message_count


def many_tasks():
    """a worker runs 40 tasks, each once and with its arguments"""
    with worker():
        for number in range(40):
            tasks.add.delay(f"add{number}", number, 1000)
        assert [result(f"add{number}") for number in range(40)] == [str(1000 + number) for number in range(40)]
    assert waiting() == 0


def text():
    """arguments keep their text, also long and not ASCII"""
    with worker():
        for number, sent in enumerate(("Grüße <&> 東京 \N{GRINNING FACE}", "x" * 20_000)):
            tasks.echo.delay(f"echo{number}", sent)
            assert result(f"echo{number}") == sent


def retries():
    """a task that asks for a retry is sent again until it succeeds"""
    with worker():
        tasks.flaky.delay("flaky")
        assert result("flaky") == "2"


def countdown():
    """a task with a countdown runs after it"""
    with worker():
        began = time.monotonic()
        tasks.add.apply_async(("later", 1, 2), countdown=2)
        assert result("later") == "3"
        assert time.monotonic() - began >= 2


def failures():
    """the worker survives tasks that fail"""
    with worker():
        for _ in range(3):
            tasks.fail.delay()
        tasks.add.delay("after", 20, 22)
        assert result("after") == "42"
        wait(lambda: LOG.read_text().count("ValueError: this task always fails") >= 3, "three failures in the log")


def killed():
    """after a worker is killed, another one runs the tasks that wait"""
    with worker("--concurrency=1") as first:
        tasks.hang.delay("hang")
        result("hang")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    for number in range(10):
        tasks.add.delay(f"kept{number}", number, 0)
    assert waiting() == 10
    with worker():
        assert [result(f"kept{number}") for number in range(10)] == [str(number) for number in range(10)]


def restart():
    """the worker goes on after the server was killed and started again"""
    with Server() as server, worker(CLIENT_QUEUES=server.queue_endpoint):
        with Celery(broker=f"azurestoragequeues://{KEY}@{server.queue_endpoint}") as app:
            app.send_task("tasks.add", ("before", 1, 1), queue="celery-clients")
            assert result("before") == "2"
            server.kill()
            server.start()
            for number in range(5):
                app.send_task("tasks.add", (f"restarted{number}", number, 1), queue="celery-clients")
            assert [result(f"restarted{number}") for number in range(5)] == ["1", "2", "3", "4", "5"]


def purge():
    """purge empties the queue"""
    for _ in range(3):
        tasks.fail.delay()
    assert waiting() == 3
    assert tasks.app.control.purge() == 3
    assert waiting() == 0


def queues():
    """the queues have the names that the broker gave them"""
    names = {queue.name for queue in service.list_queues()}
    assert "celery-clients" in names, names


if __name__ == "__main__":
    sys.exit(checks.run(many_tasks, text, retries, countdown, failures, killed, restart, purge, queues))

"""The tasks of the Celery worker. What a task did becomes a file in CLIENT_SCRATCH: this broker has no result backend."""
import os
import pathlib
import time

from celery import Celery

SCRATCH = pathlib.Path(os.environ["CLIENT_SCRATCH"])
# The development key contains slashes. The broker's own parser accepts them, and kombu passes the address to it unparsed.
app = Celery("tasks", broker=f"azurestoragequeues://{os.environ['CLIENT_KEY']}@{os.environ['CLIENT_QUEUES']}")
app.conf.update(
    task_default_queue="celery-clients",
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"polling_interval": 0.1},
)


def record(name, value):
    """Readers see the whole value or no file."""
    path = SCRATCH / name
    path.with_suffix(".new").write_text(str(value))
    path.with_suffix(".new").rename(path)


@app.task
def add(name, x, y):
    record(name, x + y)


@app.task
def echo(name, text):
    record(name, text)


@app.task(bind=True, max_retries=5)
def flaky(self, name):
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    record(name, self.request.retries)


@app.task
def fail():
    raise ValueError("this task always fails")


@app.task
def hang(name):
    record(name, os.getpid())
    time.sleep(600)

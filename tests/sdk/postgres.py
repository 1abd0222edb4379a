#!/usr/bin/env python3
"""A PostgreSQL for tests: a server in a temporary directory, on a free port, and gone when the tests have ended.

    postgres.py run COMMAND ...     runs a command whose servers keep their data in a new PostgreSQL
    postgres.py citus COMMAND ...   runs a command whose servers keep their data on the Citus cluster of ROWHOUSE_TEST_CITUS
    postgres.py database            makes an empty database in the PostgreSQL of ROWHOUSE_TEST_POSTGRES; prints its URL

Needs nothing but Python and the programs of PostgreSQL 15 or later, which `scripts/setup postgres` installs. As root
they run as the user `postgres`. The server does not wait for its disk: it is for tests that do not kill it.

If `ROWHOUSE_TEST_POSTGRES` is the URL of a server whose role may create databases, that one is used and none started.

A cluster is never started here. `ROWHOUSE_TEST_CITUS` is the URL of a superuser's database on its coordinator, and every
test database is made on all nodes that belong to that one, under the addresses that they have there, and dropped when
the command has ended.
"""
import atexit
import contextlib
import os
import pathlib
import pwd
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from urllib.parse import urlsplit, urlunsplit

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Ends the server and removes its directory when its standard input ends, which it does however we end.
WATCHDOG = ROOT / "crates" / "testkit" / "src" / "postgres" / "watchdog.sh"
VERSION_MIN = 15
START_SECONDS = 60
URL_VARIABLE = "ROWHOUSE_TEST_POSTGRES"
CITUS_VARIABLE = "ROWHOUSE_TEST_CITUS"
STORE_VARIABLE = "ROWHOUSE_TEST_STORE"
PREFIX_VARIABLE = "ROWHOUSE_TEST_DATABASES"     # what the names of a run's databases start with
SETTINGS = {"listen_addresses": "127.0.0.1", "fsync": "off", "full_page_writes": "off", "max_connections": "500",
            "shared_buffers": "64MB", "jit": "off", "dynamic_shared_memory_type": "mmap"}


def wanted():
    """Whether the servers of tests are to keep their data in PostgreSQL."""
    store = os.environ.get(STORE_VARIABLE, "embedded")
    if store not in ("embedded", "postgres"):
        raise ValueError(f"{STORE_VARIABLE} is embedded or postgres, not {store!r}")
    return store == "postgres"


def store():
    """Where that is: `embedded`, `postgres` or `citus`."""
    on_cluster = URL_VARIABLE in os.environ and os.environ[URL_VARIABLE] == os.environ.get(CITUS_VARIABLE)
    return ("citus" if on_cluster else "postgres") if wanted() else "embedded"


def version(programs):
    """The version of the server in a directory; 0 if there is none, or nothing to make a database with."""
    if not (programs / "initdb").exists() or not (programs / "postgres").exists():
        return 0
    said = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"\) (\d+)", said)
    return int(found[1]) if found else 0


def programs():
    """The directory of the programs on the PATH, or else of Debian's newest."""
    # Links are followed: a directory of links seldom has all programs.
    on_path = [pathlib.Path(folder, "postgres").resolve().parent for folder in os.get_exec_path()]
    of_debian = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)
    for folder in [*on_path, *of_debian]:
        if version(folder) >= VERSION_MIN:
            return folder
    raise FileNotFoundError(f"there is no PostgreSQL {VERSION_MIN} or later: run `scripts/setup postgres`")


def environment():
    """Without what the environment says about other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def free_port():
    """Below the ports that systems give to outgoing connections, which could take it before the server does."""
    while True:
        port = 11_000 + secrets.randbelow(19_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Postgres:
    """A running server; `url` is that of its first database."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.gettempdir(), f"rowhouse-postgres-{secrets.token_hex(8)}")
        self.programs, self.as_owner, owner = programs(), [], []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            owner = [f"{user.pw_uid}:{user.pw_gid}"]
            self.as_owner = ["setpriv", "--clear-groups", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
        self.watchdog = subprocess.Popen(["sh", "-c", WATCHDOG.read_text(), "watchdog", self.directory, *owner], cwd="/",
                                         env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         start_new_session=True)
        atexit.register(self.close)
        self.port = free_port()
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"
        self.start()

    def start(self):
        data = self.directory / "data"
        self.must(self.command("initdb", f"--pgdata={data}", "--username=postgres", "--auth=trust", "--encoding=UTF8",
                               "--locale=C", "--no-sync"))
        settings = SETTINGS | {"port": self.port, "unix_socket_directories": self.directory}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.must(f"exec {self.command('postgres', '-D', data, *options)} & server=$!")
        deadline = time.monotonic() + START_SECONDS
        while not self.order("ready"):
            if time.monotonic() > deadline or not self.order("running"):
                self.fail("PostgreSQL did not become ready")
            time.sleep(0.02)

    def command(self, program, *arguments):
        return shlex.join(str(word) for word in [*self.as_owner, self.programs / program, *arguments])

    def order(self, command):
        """Has the watchdog run a command; whether it succeeded."""
        self.watchdog.stdin.write(command + "\n")
        self.watchdog.stdin.flush()
        return self.watchdog.stdout.readline() == "0\n"

    def must(self, command):
        if not self.order(command):
            self.fail(f"{command} failed")

    def fail(self, reason):
        log = self.directory / "postgres.log"
        said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        self.close()
        raise RuntimeError(f"{reason}; its log ends with:\n{said}")

    def close(self):
        if not self.watchdog.stdin.closed:
            self.watchdog.stdin.close()
            self.watchdog.wait()


_own = None


def server_url():
    """The URL of the server of this process, which is started if nobody has named one."""
    global _own
    if URL_VARIABLE in os.environ:
        return os.environ[URL_VARIABLE]
    _own = _own or Postgres()
    return _own.url


def psql(url, *statements):
    """Runs statements, each by itself; the rows that they return."""
    words = [word for sql in ("SET client_min_messages = warning", *statements) for word in ("--command", sql)]
    command = [shutil.which("psql") or programs() / "psql", "--no-psqlrc", "--quiet", "--no-align", "--tuples-only",
               "--set=ON_ERROR_STOP=1", f"--dbname={urlunsplit(url)}", *words]
    done = subprocess.run(command, check=True, env=environment(), stdout=subprocess.PIPE, text=True)
    return [line.split("|") for line in done.stdout.splitlines()]


def first_database():
    """The database that is there already, as the parts of its URL."""
    url = urlsplit(server_url())
    return url if url.path.strip("/") else url._replace(path="/postgres")


def nodes(url):
    """The nodes of the cluster that a database coordinates, the coordinator first; nothing if it does not."""
    if not psql(url, "SELECT 1 FROM pg_extension WHERE extname = 'citus'"):
        return []
    return psql(url, "SELECT nodename, nodeport FROM pg_dist_node WHERE isactive AND noderole = 'primary' ORDER BY groupid")


def at_node(url, host, port):
    """The same database on a node of the cluster."""
    user = url.netloc.rpartition("@")[0]
    return url._replace(netloc=f"{user}@{host}:{port}" if user else f"{host}:{port}")


def join(url, places):
    """Makes a cluster of databases of one name, the first the coordinator."""
    for place in places:
        psql(at_node(url, *place), "CREATE EXTENSION citus")
    (host, port), *workers = places
    psql(url, f"SELECT citus_set_coordinator_host('{host}', {port})",
         *(f"SELECT citus_add_node('{host}', {port})" for host, port in workers))


def create_database():
    """Makes an empty database; its URL."""
    first, name = first_database(), f"{os.environ.get(PREFIX_VARIABLE, 'rowhouse_test')}_{secrets.token_hex(8)}"
    places, made = nodes(first), first._replace(path=f"/{name}")
    for url in [at_node(first, *place) for place in places] or [first]:
        psql(url, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    if places:
        join(made, places)
    return urlunsplit(made)


def drop_databases(prefix):
    """Removes the databases of a run from all nodes of the cluster."""
    first = first_database()
    for place in nodes(first):
        url = at_node(first, *place)
        for [name] in psql(url, f"SELECT datname FROM pg_database WHERE datname LIKE '{prefix}%'"):
            psql(url, f"DROP DATABASE {name} WITH (FORCE)")


def run(command):
    """Runs a command on PostgreSQL; its exit status."""
    prefix = f"rowhouse_test_{secrets.token_hex(4)}"
    settings = {STORE_VARIABLE: "postgres", URL_VARIABLE: server_url(), PREFIX_VARIABLE: prefix}
    child = subprocess.Popen(command, env=os.environ | settings)
    while True:
        try:
            status = child.wait()
            break
        except KeyboardInterrupt:
            pass    # the command was told too, and ends as it likes; its database is there until then
    drop_databases(prefix)
    return status


def main():
    match sys.argv[1:]:
        case ["run", *command] if command:
            return run(command)
        case ["citus", *command] if command and CITUS_VARIABLE in os.environ:
            os.environ[URL_VARIABLE] = os.environ[CITUS_VARIABLE]
            return run(command)
        case ["database"] if URL_VARIABLE in os.environ:
            print(create_database())
            return 0
    print("\n".join(__doc__.splitlines()[2:5]), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

"""The tests of the crates: each is a process of its own, so that its time is known and those that wait share the machine."""
import json
import os
import re
import subprocess

from schedule import Task

BUILD = "build tests"
BEFORE = {"rust": ("setup postgres",), "binary": ("setup postgres", "setup python")}
COMMAND = ["cargo", "test", "--locked", "--workspace", "--no-run", "--timings", "--message-format=json-render-diagnostics"]

# What is known of tests by their name, `crate: module::test`. The first rule that fits decides.
#
# Tests that measure time, or that load or fill the machine on purpose: one at a time, after all others.
ALONE = re.compile(r"testkit: (start::|large_pages::|overload|full_disk::)|loadgen: (smoke|postgres|pair)::|store-postgres: (lanes::reads_share)")
# Proofs of what survives: they load both processors for as long as they run, so one at a time, and with few rounds.
CRASH = re.compile(r"testkit: (kill|queue_kill|power|history|postgres_kill|postgres_queue_kill|postgres_standby)::(?!tests::)")
ROUNDS = {"ROWHOUSE_KILL_ROUNDS": "8", "ROWHOUSE_HISTORY_ROUNDS": "8"}      # of 20; make verify has 200
# The contract once more where text sorts by the rules of a language. `make test` runs what compares or sorts text.
LOCALE = re.compile(r"store-postgres: conformance::icu_locale::")
TEXT = re.compile(r"icu_locale::.*(scan_|functions_|next_is|sort|lookup|walk|index|unique|equal_values|every_value|expired_values|"
                  r"similar_keys|longest_keys|table_names|tables_are_listed|queues_are_listed|what_is_selected)")
# The longest, in seconds: they start first. Everything else takes less than three.
LONG = ((re.compile(r"store-postgres: .*(behaves_as_the_model|walk_is_in_the_order|lookup_finds_what)"), 60),
        (re.compile(r"testkit: (pages|transfer|restore_table|backup|postgres_serve|changes|expire|indexes)::"), 20),
        (re.compile(r"store-postgres: (faults|servers|lanes|queues|load)::"), 10),
        (re.compile(r"random"), 8),
        (re.compile(r"store-postgres:"), 3))
# Tests that use the ports of the documentation.
PORTS = re.compile(r"testkit: pages::")


def build(work):
    """The task that compiles all tests; the tests come after it."""
    return Task("build", BUILD, COMMAND, work.root, work.log("build-tests"), build=True, locks=frozenset(["cargo"]),
                minutes=40)


def programs(log):
    """What cargo built: crate, kind and path of each test program, and the path of the debug server."""
    found, server = [], None
    for line in log.splitlines():
        if not line.startswith('{"reason":"compiler-artifact"'):
            continue
        artifact = json.loads(line)
        if not artifact["executable"]:
            continue
        crate = re.search(r"/crates/([\w-]+)#|/crates/([\w-]+)/?\"?$|path\+file://.*/([\w-]+)#", artifact["package_id"])
        crate = next(group for group in crate.groups() if group)
        target = artifact["target"]
        if artifact["profile"]["test"]:
            manifest = artifact["manifest_path"].rpartition("/")[0]
            found.append((crate, target["kind"][0], manifest, artifact["executable"]))
        elif target["name"] == "rowhouse":
            server = artifact["executable"]
    return found, server


def names(program, *options):
    listed = subprocess.run([program, "--list", "--format=terse", *options], capture_output=True, text=True, check=True)
    return [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]


def count(text):
    """One test ran, and this is how it ended."""
    if re.search(r"(?m)^test result: ok\. 1 passed; 0 failed", text):
        return [1, 0, 0]
    return [0, 1, 0]


def tests(work, built, wanted, release, built_by):
    """A task for each test that the lane wants, and how many tests of each suite are ignored. Tests of the built server get the
    release build if there is one, which the task `built_by` makes if it is not there already, and otherwise the debug build."""
    found, debug = programs(built.log.read_text(errors="replace"))
    if not found or not debug:
        raise ValueError("cargo named no test program or no server")
    tasks, skipped, left = [], {}, {}
    rounds = {name: value for name, value in ROUNDS.items() if name not in os.environ}
    for crate, kind, manifest, program in found:
        suite = "binary" if crate == "testkit" else "rust"
        ignored = set(names(program, "--ignored"))
        for test in names(program):
            name = f"{crate}: {test}"
            if test in ignored:
                skipped[suite] = skipped.get(suite, 0) + 1
                continue
            if not wanted(name):
                left[suite] = left.get(suite, 0) + 1
                continue
            optimised = release and suite == "binary"
            alone = bool(ALONE.search(name))
            tasks.append(Task(
                suite, name, [program, "--exact", test, "--nocapture", "--test-threads=1"], manifest,
                work.log("tests/" + re.sub(r"[^\w.-]+", "-", name)),
                env={"ROWHOUSE_BIN": str(release) if optimised else debug, "CARGO_MANIFEST_DIR": manifest} | rounds,
                needs=(*BEFORE[suite], *([built_by] if optimised and built_by else [])), alone=alone,
                locks=frozenset(lock for lock, rule in (("ports", PORTS), ("load", CRASH)) if rule.search(name)),
                weight=next((seconds for rule, seconds in ((CRASH, 30), *LONG) if rule.search(name)), 1),
                count=count))
    return tasks, skipped, left

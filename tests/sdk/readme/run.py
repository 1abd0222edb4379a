#!/usr/bin/env python3
"""Runs the examples of the README, docs/extensions.md and docs/patterns.md as typed, against a server on the default ports.

    run.py [PAGE...]

An example is the fenced block that follows `<!-- run: python -->`, `<!-- run: js -->` or `<!-- run: sh -->`. It is run without
changes, in the order of the page and with `rowhouse` on the PATH, and must succeed. Run it with the Python of .work/venv, which make prepares.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORK = ROOT / ".work" / "readme"
DEFAULT_TABLE_PORT, DEFAULT_QUEUE_PORT = 10002, 10001
SECONDS = 60
sys.path.insert(0, str(ROOT / "tests" / "sdk"))
from server import Server, binary  # noqa: E402  (the path above is what makes it importable)

MARKED = re.compile(r"<!-- run: (python|js|sh) -->\s*\n```(?:python|js|javascript|mjs|sh)\n(.*?)^```", re.S | re.M)
MARKER = re.compile(r"<!-- run: .*?-->")


def run(number, language, text):
    """True if the example ran to its end without an error."""
    module = language == "js" and re.search(r"(?m)^\s*import\s", text)
    suffix = {"python": ".py", "sh": ".sh", "js": ".mjs" if module else ".cjs"}[language]
    file = WORK / f"example{number}{suffix}"
    file.write_text(text)
    command = {"python": [sys.executable], "js": ["node"], "sh": ["sh", "-eu"]}[language] + [file.name]
    path = f"{WORK}{os.pathsep}{os.environ['PATH']}"
    try:
        done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, "PATH": path})
    except (subprocess.TimeoutExpired, OSError) as fault:
        print(f"example {number} ({language}): {fault}")
        return False
    if done.returncode:
        print(f"example {number} ({language}) failed:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def examples_of(page):
    """The examples of a page; none, and a complaint, if a marker marks nothing."""
    text = page.read_text()
    examples = MARKED.findall(text)
    if not examples or len(examples) != len(MARKER.findall(text)):
        print(f"{page.name} has {len(examples)} examples to run and {len(MARKER.findall(text))} markers: put <!-- run: python -->, "
              "<!-- run: js --> or <!-- run: sh --> on the line before each fenced block that must run")
        return []
    return examples


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("pages", nargs="*", type=pathlib.Path,
                    default=[ROOT / "README.md", ROOT / "docs" / "extensions.md", ROOT / "docs" / "patterns.md"])
    found = [examples_of(page) for page in ap.parse_args().pages]
    if not all(found):
        print("0 passed, 1 failed, 0 skipped")
        return 1
    examples = sum(found, [])
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    (WORK / "rowhouse").symlink_to(binary().resolve())
    (WORK / "node_modules").symlink_to(ROOT / "tests" / "sdk" / "js" / "node_modules")
    with Server(table_port=DEFAULT_TABLE_PORT, queue_port=DEFAULT_QUEUE_PORT):
        results = [run(number, *example) for number, example in enumerate(examples, 1)]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Runs the tests that show each rule of ebMS 2.0, and writes docs/reference/conformance.md.

    python scripts/conformance.py          run the tests and write the page
    python scripts/conformance.py --list   only list the rules and their tests

The rules are data: docs/conformance.csv has one line for each, with the tests that show it.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
RULES = ROOT / "docs" / "conformance.csv"
PAGE = ROOT / "docs" / "reference" / "conformance.md"
HEAD = """\
# Conformance with ebMS 2.0

What OASIS ebMS 2.0, its HTTP binding and CPPA 2.0 ask of a handler, rule by rule, each with a test
that shows it. The rules are numbered by us; they stand in `docs/conformance.csv`. `python
scripts/conformance.py` runs the tests and writes this page. How places are settled where the text
leaves a choice: [decisions.md](../explanation/decisions.md).

| rule | about | what is asked | shown by | result |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Rule:
    """One thing that is asked of a handler, and the tests that show it."""

    name: str
    about: str
    says: str
    tests: tuple[str, ...]


def rules() -> list[Rule]:
    """All of them, in the order of the standard."""
    with RULES.open(encoding="utf-8", newline="") as file:
        return [
            Rule(row["id"], row["about"], row["rule"], tuple(row["tests"].split()))
            for row in csv.DictReader(file)
        ]


def results(found: list[Rule]) -> dict[str, str]:
    """What became of each test: passes, fails, or was left out for want of a part."""
    wanted = list(dict.fromkeys(test for rule in found for test in rule.tests))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n0", f"--junitxml={report}", *wanted]
        subprocess.run(command, cwd=ROOT, check=False)
        cases = list(ET.parse(report).iter("testcase"))
    said: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        file = case.get("classname", "").replace(".", "/") + ".py"
        name = case.get("name", "").partition("[")[0]
        bad = any(case.find(kind) is not None for kind in ("failure", "error"))
        skipped = case.find("skipped") is not None
        said[f"{file}::{name}"].add("fails" if bad else "left out" if skipped else "passes")
    return {test: _worst(said.get(test, {"fails"})) for test in wanted}


def _worst(said: set[str]) -> str:
    return next(word for word in ("fails", "left out", "passes") if word in said)


def page(found: list[Rule], became: dict[str, str]) -> str:
    """The page of the rules, with what became of their tests."""
    lines = []
    for rule in found:
        shown = ", ".join(f"`{test.rpartition('::')[2]}`" for test in rule.tests)
        result = _worst({became[test] for test in rule.tests})
        lines.append(f"| {rule.name} | {rule.about} | {rule.says} | {shown} | {result} |\n")
    return HEAD + "".join(lines)


def main() -> int:
    """List the rules, or run their tests and write the page."""
    found = rules()
    if "--list" in sys.argv[1:]:
        for rule in found:
            print(rule.name, rule.about, "-", rule.says)
        return 0
    became = results(found)
    PAGE.write_text(page(found, became), encoding="utf-8")
    failing = sorted(test for test, word in became.items() if word == "fails")
    print("\n".join(failing) or f"{len(found)} rules hold.")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())

"""Which rows of docs/requirements.csv are shown, where, and what would notice their absence.

Three columns. *rule*: a test of a pure part names the row with `@pytest.mark.requirement("SW-6")`.
*reached*: a test in which a real handler runs names it. *mutant*: a deliberate bug of
`tests/mutants` breaks it and is caught. All are read from the syntax trees, so nothing is imported
or run. An unknown id ends with status 1: a typing error there would count as proof of nothing.
"""

import argparse
import ast
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

REACHING = ("tests/handler/", "tests/entry/", "tests/simulation/")
"""The folders whose tests run a handler, in one process or in several."""

LATER = {
    "BIG-1": "large documents",
    "BIG-2": "large documents",
    "BIG-4": "large documents",
    "BIG-5": "large documents",
    "BIG-6": "large documents",
}
"""Rows of parts that no handler has yet."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One id named by one test; `id` is None where the marker's argument is not a plain string."""

    id: str | None
    test: str
    line: int


@dataclass(frozen=True, slots=True)
class Requirement:
    """One row of the catalogue."""

    id: str
    level: str

    @property
    def group(self) -> str:
        return self.id.rpartition("-")[0]

    @property
    def must(self) -> bool:
        return self.level.startswith("MUST")


@dataclass(slots=True)
class Coverage:
    """The catalogue's rows in its own order, each with the tests and mutants that name it."""

    rows: dict[str, Requirement]
    tests: dict[str, list[str]]
    mutants: dict[str, list[str]]
    problems: list[str] = field(default_factory=list)

    def rule(self, row: str) -> list[str]:
        return [test for test in self.tests[row] if not test.startswith(REACHING)]

    def reached(self, row: str) -> list[str]:
        return [test for test in self.tests[row] if test.startswith(REACHING)]

    def columns(self, row: str) -> tuple[int, int, int]:
        return len(self.rule(row)), len(self.reached(row)), len(self.mutants[row])

    def groups(self) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for row in self.rows.values():
            names = ("rows", "tested", "rule", "reached", "mutant")
            group = counts.setdefault(row.group, dict.fromkeys(names, 0))
            rule, reached, mutant = self.columns(row.id)
            found = (1, rule or reached, rule, reached, mutant)
            for name, number in zip(names, found, strict=True):
                group[name] += number > 0
        return counts

    def untested(self) -> list[str]:
        return [row for row, named in self.tests.items() if not named]

    def unproven(self) -> list[str]:
        """What must hold now, and no real handler does or no mutant breaks."""
        return [
            row.id
            for row in self.rows.values()
            if row.must
            and row.id not in LATER
            and not (self.reached(row.id) and self.mutants[row.id])
        ]


def catalogue(path: Path) -> list[Requirement]:
    """The rows of the catalogue in file order."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [Requirement(row["id"], row["level"]) for row in csv.DictReader(lines)]
    ids = [row.id for row in rows]
    repeated = {row for row in ids if ids.count(row) > 1}
    if repeated:
        raise SystemExit(f"{path}: listed twice: {', '.join(sorted(repeated))}")
    return rows


def _is_marker(node: ast.AST) -> bool:
    """`pytest.mark.requirement` or `mark.requirement`."""
    if not (isinstance(node, ast.Attribute) and node.attr == "requirement"):
        return False
    mark = node.value
    return (isinstance(mark, ast.Attribute) and mark.attr == "mark") or (
        isinstance(mark, ast.Name) and mark.id == "mark"
    )


def marks_in(source: str, file: str) -> Iterator[Mark]:
    """Every id named in one test file, with the function or class it stands on."""
    waiting: list[tuple[ast.AST, str]] = [(ast.parse(source, file), file)]
    while waiting:
        node, where = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            where = f"{where}::{node.name}"
        if isinstance(node, ast.Call) and _is_marker(node.func):
            # A marker without arguments names nothing; it is a problem like any unreadable one.
            for argument in node.args or [node]:
                named = argument.value if isinstance(argument, ast.Constant) else None
                yield Mark(named if isinstance(named, str) else None, where, node.lineno)
        waiting += [(child, where) for child in ast.iter_child_nodes(node)][::-1]


def mutants_in(source: str, file: str) -> Iterator[Mark]:
    """Every id that a mutant of one file says it breaks, with the mutant's name."""
    for node in ast.walk(ast.parse(source, file)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id != "Mutant" or not node.args:
            continue
        named = node.args[6] if len(node.args) > 6 else None
        for keyword in node.keywords:
            named = keyword.value if keyword.arg == "requirement" else named
        name, broken = _text(node.args[0]), _text(named)
        for row in broken.split():
            yield Mark(row, name, node.lineno)


def _text(node: ast.AST | None) -> str:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def collect(rows: Sequence[Requirement], tests: Path) -> Coverage:
    """Join the catalogue with the markers and mutants of every Python file under the tests."""
    coverage = Coverage(
        {row.id: row for row in rows}, {row.id: [] for row in rows}, {row.id: [] for row in rows}
    )
    for path in sorted(tests.rglob("*.py")):
        file = path.relative_to(tests.parent).as_posix()
        source = path.read_text(encoding="utf-8")
        if "mark.requirement" in source:
            _note(coverage, coverage.tests, file, marks_in(source, file))
        if path.is_relative_to(tests / "mutants"):
            _note(coverage, coverage.mutants, file, mutants_in(source, file))
    return coverage


def _note(
    coverage: Coverage, column: dict[str, list[str]], file: str, marks: Iterator[Mark]
) -> None:
    for mark in marks:
        if mark.id is None:
            coverage.problems.append(f"{file}:{mark.line}: the marker wants ids as plain strings")
        elif mark.id not in column:
            coverage.problems.append(f"{file}:{mark.line}: unknown requirement {mark.id!r}")
        elif mark.test not in column[mark.id]:
            column[mark.id].append(mark.test)


def as_json(coverage: Coverage) -> str:
    untested = coverage.untested()
    total = len(coverage.tests)
    model = {
        "total": total,
        "tested": total - len(untested),
        "reached": sum(1 for row in coverage.rows if coverage.reached(row)),
        "with_mutant": sum(1 for row in coverage.rows if coverage.mutants[row]),
        "groups": coverage.groups(),
        "requirements": coverage.tests,
        "mutants": coverage.mutants,
        "untested": untested,
        "unproven": coverage.unproven(),
        "problems": coverage.problems,
    }
    return json.dumps(model, indent=2)


def as_text(coverage: Coverage) -> str:
    total = len(coverage.tests)
    lines = [f"{'row':<10}{'level':<8}{'rule':>6}{'reached':>9}{'mutant':>8}"]
    for row in coverage.rows.values():
        rule, reached, mutant = coverage.columns(row.id)
        later = f"  later: {LATER[row.id]}" if row.id in LATER else ""
        lines.append(f"{row.id:<10}{row.level:<8}{rule:>6}{reached:>9}{mutant:>8}{later}")
    lines += ["", f"{'group':<10}{'rows':>6}{'rule':>6}{'reached':>9}{'mutant':>8}"]
    for group, count in coverage.groups().items():
        numbers = f"{count['rule']:>6}{count['reached']:>9}{count['mutant']:>8}"
        lines.append(f"{group:<10}{count['rows']:>6}{numbers}")
    unproven = coverage.unproven()
    reached = sum(1 for row in coverage.rows if coverage.reached(row))
    broken = sum(1 for row in coverage.rows if coverage.mutants[row])
    lines += [
        "",
        f"MUST rows that no handler reaches or no mutant breaks: {' '.join(unproven) or 'none'}",
    ]
    lines.append(
        f"of {total} requirements {total - len(coverage.untested())} have tests, "
        f"{reached} are reached by a handler, {broken} have a mutant"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--catalogue", type=Path, default=ROOT / "docs" / "requirements.csv")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    options = parser.parse_args(arguments)
    coverage = collect(catalogue(options.catalogue), options.tests)
    print(as_json(coverage) if options.json else as_text(coverage))
    for problem in coverage.problems:
        print(problem, file=sys.stderr)
    return 1 if coverage.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Which rows of docs/requirements.csv have tests, and which have none.

A test names the rows it shows with `@pytest.mark.requirement("SW-6", "SW-7")`. The markers are read
from the syntax trees, so nothing is imported or run. An unknown id ends with status 1: a typing
error there would count as proof of nothing.
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


@dataclass(frozen=True, slots=True)
class Mark:
    """One id named by one test; `id` is None where the marker's argument is not a plain string."""

    id: str | None
    test: str
    line: int


@dataclass(slots=True)
class Coverage:
    """The catalogue's ids in its own order, each with the tests that name it."""

    tests: dict[str, list[str]]
    problems: list[str] = field(default_factory=list)

    def groups(self) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for row, named in self.tests.items():
            group = counts.setdefault(row.rpartition("-")[0], {"tested": 0, "untested": 0})
            group["tested" if named else "untested"] += 1
        return counts

    def untested(self) -> list[str]:
        return [row for row, named in self.tests.items() if not named]


def catalogue(path: Path) -> list[str]:
    """The ids of the catalogue in file order."""
    with path.open(encoding="utf-8", newline="") as lines:
        ids = [row["id"] for row in csv.DictReader(lines)]
    repeated = {row for row in ids if ids.count(row) > 1}
    if repeated:
        raise SystemExit(f"{path}: listed twice: {', '.join(sorted(repeated))}")
    return ids


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

    def visit(node: ast.AST, where: str) -> Iterator[Mark]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}::{node.name}"
        if isinstance(node, ast.Call) and _is_marker(node.func):
            # A marker without arguments names nothing; it is a problem like any unreadable one.
            for argument in node.args or [node]:
                named = argument.value if isinstance(argument, ast.Constant) else None
                yield Mark(named if isinstance(named, str) else None, where, node.lineno)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, where)

    yield from visit(ast.parse(source, file), file)


def collect(ids: Sequence[str], tests: Path) -> Coverage:
    """Join the catalogue with the markers of every Python file under the tests' folder."""
    coverage = Coverage({row: [] for row in ids})
    for path in sorted(tests.rglob("*.py")):
        file = path.relative_to(tests.parent).as_posix()
        for mark in marks_in(path.read_text(encoding="utf-8"), file):
            if mark.id is None:
                coverage.problems.append(
                    f"{file}:{mark.line}: the marker wants ids as plain strings"
                )
            elif mark.id not in coverage.tests:
                coverage.problems.append(f"{file}:{mark.line}: unknown requirement {mark.id!r}")
            elif mark.test not in coverage.tests[mark.id]:
                coverage.tests[mark.id].append(mark.test)
    return coverage


def as_json(coverage: Coverage) -> str:
    untested = coverage.untested()
    total = len(coverage.tests)
    model = {
        "total": total,
        "tested": total - len(untested),
        "groups": coverage.groups(),
        "requirements": coverage.tests,
        "untested": untested,
        "problems": coverage.problems,
    }
    return json.dumps(model, indent=2)


def as_text(coverage: Coverage) -> str:
    untested = coverage.untested()
    total = len(coverage.tests)
    lines = [
        f"{row:<10}{len(named):>4}  {named[0]}" for row, named in coverage.tests.items() if named
    ]
    lines += ["", f"{'group':<10}{'tested':>8}{'none':>8}  without a test"]
    for group, count in coverage.groups().items():
        bare = " ".join(
            row.rpartition("-")[2] for row in untested if row.rpartition("-")[0] == group
        )
        lines.append(f"{group:<10}{count['tested']:>8}{count['untested']:>8}  {bare}".rstrip())
    lines += ["", f"{total - len(untested)} of {total} requirements have tests"]
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

"""The table of conformance names tests that are there, and the page shows the table."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.parts import ROOT, script


@cache
def functions(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_every_rule_has_a_number_and_a_test_that_is_there() -> None:
    rules = script("conformance").rules()
    assert [rule.name for rule in rules] == [f"E{number:02}" for number in range(1, len(rules) + 1)]
    for rule in rules:
        assert rule.says.endswith("."), rule
        assert rule.tests, rule
        for test in rule.tests:
            file, _, name = test.partition("::")
            assert name in functions(ROOT / file), test


def test_the_page_shows_the_table_and_every_rule_held_when_it_was_made() -> None:
    rules = script("conformance").rules()
    held = {test: "passes" for rule in rules for test in rule.tests}
    shown = (ROOT / "docs" / "reference" / "conformance.md").read_text(encoding="utf-8")
    assert shown == script("conformance").page(rules, held)


def test_the_worst_of_several_tests_is_the_result() -> None:
    rule = script("conformance").Rule("E01", "x", "y.", ("a::b", "a::c"))
    text = script("conformance").page([rule], {"a::b": "passes", "a::c": "fails"})
    assert text.endswith("| fails |\n")

"""Mutant: one deliberate bug, and what must notice it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from tests.parts import ROOT

SHARE = 5
"""One mutant of so many is run by `make test`, all others by `make soak`."""

PLAIN = "messages=40"
"""The options of a simulated world in which most bugs show."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: the expression or statements it replaces, and what must turn red.

    It is addressed by `module:function` (`module:Class.method`, or the module alone for its own
    statements) and the code as Python reads it, so that layout, comments and moves within the
    function do not matter.

    A world is judged by the promises of `caught_by`. Where `tests` are named they are run
    instead, and at least one of them must fail: a bug that only stops them from being
    collected counts as a mistake in the mutant, not as caught.
    """

    name: str
    place: str
    old: str
    new: str
    # Predicates of the journal's checker, any of which may catch it.
    caught_by: tuple[str, ...] = ()
    world: str = PLAIN
    # The row of docs/requirements.csv that the bug breaks; several are separated by a space.
    requirement: str = ""
    # Tests, as pytest names them, any of which may catch it.
    tests: tuple[str, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Whether `make test` runs it: its name alone decides, whatever other mutants there are."""
        return crc32(self.name.encode()) % SHARE == 0

    @property
    def module(self) -> str:
        """The module that the bug sits in."""
        return self.place.partition(":")[0]

    @property
    def source(self) -> Path:
        """The file that the bug is put into."""
        return ROOT / "src" / Path(*self.module.split(".")).with_suffix(".py")

    @property
    def package(self) -> str:
        """The package of the product that the bug sits in."""
        return self.module.split(".")[1]

    @property
    def requirements(self) -> tuple[str, ...]:
        """The rows of the catalogue that the bug breaks."""
        return tuple(self.requirement.split())

    def put_into(self, source: str) -> ast.Module:
        """The module with the bug in it; LookupError unless its place is there exactly once."""
        tree = ast.parse(source)
        old, new = _parsed(self.old, self.new)
        places = list(_places(_function(tree, self.place.partition(":")[2]), old))
        if len(places) != 1:
            raise LookupError(f"{self.name!r}: its code is {len(places)} times in {self.place}")
        parent, field, first = places[0]
        held = getattr(parent, field)
        replaced = held[first] if isinstance(held, list) else held
        for node in new:
            ast.copy_location(node, replaced)
        if isinstance(held, list):
            held[first : first + len(old)] = new
        else:
            setattr(parent, field, new[0])
        return ast.fix_missing_locations(tree)


def _parsed(old: str, new: str) -> tuple[list[ast.AST], list[ast.AST]]:
    """Both as one expression each where they are that, else as statements."""
    try:
        return [ast.parse(old, mode="eval").body], [ast.parse(new, mode="eval").body]
    except SyntaxError:
        # A `return` is no statement of a module, but the parser alone does not mind.
        return list(ast.parse(old).body), list(ast.parse(new).body)


def _function(tree: ast.Module, name: str) -> ast.AST:
    """The function or class of that dotted name, or the whole module."""
    scope: ast.AST = tree
    for part in filter(None, name.split(".")):
        inner = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == part
            and node is not scope
        ]
        direct = [node for node in inner if node in getattr(scope, "body", ())]
        found = direct or inner
        if len(found) != 1:
            raise LookupError(f"{name} is there {len(found)} times")
        scope = found[0]
    return scope


def _places(scope: ast.AST, wanted: list[ast.AST]) -> Iterator[tuple[ast.AST, str, int]]:
    """Where those nodes stand side by side: the parent, its field, and the first one's index."""
    dumps = [ast.dump(node) for node in wanted]
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            held = value if isinstance(value, list) else [value]
            for first in range(len(held) - len(wanted) + 1):
                run = held[first : first + len(wanted)]
                if type(run[0]) is type(wanted[0]) and [ast.dump(node) for node in run] == dumps:
                    yield parent, field, first

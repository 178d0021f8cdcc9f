"""Syntax trees of sources, each parsed and walked once in a run however many rules look at it."""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def _nothing_thrown_away() -> Iterator[None]:
    """Looking for garbage among so many new nodes takes four times as long as parsing them."""
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


@cache
def tree_of(source: str) -> ast.Module:
    """The tree; whoever looks at it changes nothing."""
    with _nothing_thrown_away():
        return ast.parse(source)


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """Every node of the tree, as `ast.walk` gives them."""
    with _nothing_thrown_away():
        return tuple(ast.walk(tree_of(source)))

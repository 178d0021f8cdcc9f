"""Syntax trees of sources, each parsed and walked once in a run however many rules look at it."""

import ast
from functools import cache


@cache
def tree_of(source: str) -> ast.Module:
    """The tree; whoever looks at it changes nothing."""
    return ast.parse(source)


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """Every node of the tree, as `ast.walk` gives them."""
    return tuple(ast.walk(tree_of(source)))

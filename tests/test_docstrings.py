"""Every public name of the package says what it is."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.syntax import nodes_of, tree_of

SOURCE = Path(__file__).resolve().parent.parent / "src" / "oncewire"

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def contract_methods(sources: Iterable[str]) -> set[str]:
    """Methods that a contract (a Protocol) describes: what keeps to it need not say it again."""
    found = set()
    for source in sources:
        for node in nodes_of(source):
            if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases):
                found |= {
                    method.name
                    for method in node.body
                    if isinstance(method, Definition) and ast.get_docstring(method)
                }
    return found


def is_overload(node: Definition) -> bool:
    """Whether it only narrows the types of the definition that follows it."""
    return "overload" in map(ast.unparse, node.decorator_list)


def silent(name: str, tree: ast.Module, described: set[str]) -> Iterator[str]:
    """The public names of a module that say nothing."""
    if not ast.get_docstring(tree):
        yield name
    for node in tree.body:
        if not isinstance(node, Definition) or node.name.startswith("_") or is_overload(node):
            continue
        if not ast.get_docstring(node):
            yield f"{name}: {node.name}"
        if isinstance(node, ast.ClassDef):
            yield from (
                f"{name}: {node.name}.{method.name}"
                for method in node.body
                if isinstance(method, Definition)
                and not method.name.startswith("_")
                and not ast.get_docstring(method)
                and method.name not in described
            )


def test_no_public_name_is_silent() -> None:
    sources = {
        path.relative_to(SOURCE).as_posix(): path.read_text()
        for path in sorted(SOURCE.rglob("*.py"))
    }
    described = contract_methods(sources.values())
    found = [
        line for name, text in sources.items() for line in silent(name, tree_of(text), described)
    ]
    assert found == []


def test_a_silent_name_is_seen() -> None:
    contract = "class Book(Protocol):\n    def read(self):\n        'One row.'\n"
    described = contract_methods([contract])
    source = "class Book:\n    def read(self): ...\n    def write(self): ...\ndef _own(): ...\n"
    assert list(silent("a.py", ast.parse(source), described)) == [
        "a.py",
        "a.py: Book",
        "a.py: Book.write",
    ]

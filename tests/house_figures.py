"""The size of the house in figures: modules, lines of code, import depth, circles, and more.

`scripts/house.py` prints them and `tests/test_house.py` holds the bounds that were reached.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.house_map import Graph, House, circles, map_of
from tests.house_rules import module_name
from tests.syntax import nodes_of, tree_of

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is counted of one source tree."""

    modules: int
    lines: int
    code_lines: int
    """Lines that are neither blank, comment nor docstring."""
    import_depth: int
    """Modules on the longest chain of imports at the top of modules."""
    circles_loaded: int
    circles_named: int
    """Circles between modules where imports for annotations count too."""
    import_share: float
    """Lines of import statements, in per cent of the lines of code."""
    once_share: float
    """Private functions that their module names once, in per cent of all functions."""
    docstring_share: float
    """Functions and classes with a docstring, in per cent."""
    under_60_lines: int
    """Modules shorter than 60 lines, without `__init__`."""


def figures_of(source_root: Path) -> Figures:
    """Count a source tree."""
    paths = sorted((source_root / "oncewire").rglob("*.py"))
    sources = {module_name(path, source_root): path.read_text(encoding="utf-8") for path in paths}
    packages = frozenset(
        module_name(path, source_root) for path in paths if path.name == "__init__.py"
    )
    return count(sources, map_of(sources, packages))


def count(sources: Mapping[str, str], house: House) -> Figures:
    """Count some modules, given by their names."""
    code = {name: code_lines(source) for name, source in sources.items()}
    imports = sum(len(_import_lines(source) & code[name]) for name, source in sources.items())
    functions = [node for text in sources.values() for node in nodes_of(text) if _is_function(node)]
    documented = [
        ast.get_docstring(node, clean=False) is not None
        for text in sources.values()
        for node in nodes_of(text)
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef))
    ]
    total = sum(map(len, code.values()))
    return Figures(
        modules=len(sources),
        lines=sum(len(source.splitlines()) for source in sources.values()),
        code_lines=total,
        import_depth=depth(_at_the_top(sources, house)),
        circles_loaded=len(circles(house.loaded)),
        circles_named=len(circles(house.named)),
        import_share=_share(imports, total),
        once_share=_share(sum(map(used_once, sources.values())), len(functions)),
        docstring_share=_share(sum(documented), len(documented)),
        under_60_lines=sum(
            len(source.splitlines()) < 60 and name not in house.packages
            for name, source in sources.items()
        ),
    )


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that hold code."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for scope in nodes_of(source):
        if isinstance(scope, _SCOPES):
            for node in scope.body:
                if _is_text(node):
                    found -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def used_once(source: str) -> int:
    """Private functions and methods that their module names exactly once."""
    named: Counter[str] = Counter()
    for node in nodes_of(source):
        if isinstance(node, ast.Name):
            named[node.id] += 1
        elif isinstance(node, ast.Attribute):
            named[node.attr] += 1
    return sum(
        named[node.name] == 1
        for node in nodes_of(source)
        if isinstance(node, _FUNCTIONS)
        and node.name.startswith("_")
        and not node.name.endswith("__")
    )


def module_list(source_root: Path) -> str:
    """A line for each module, folder by folder: its name and the first sentence of its docstring,
    as ARCHITECTURE.md has them."""
    home = source_root / "oncewire"
    lines: list[str] = []
    for folder in sorted({path.parent for path in home.rglob("*.py")}):
        name = "" if folder == home else f"{folder.relative_to(home).as_posix()}/"
        lines.append(f"\n`{name or '__init__.py'}`")
        for path in sorted(folder.glob("*.py")):
            told = ast.get_docstring(tree_of(path.read_text(encoding="utf-8"))) or ""
            sentence = " ".join(told.split("\n\n")[0].split())
            if path.name == "__init__.py":
                lines[-1] += f": {sentence}\n"
            else:
                lines.append(f"- `{name}{path.name}`: {sentence}")
    return "\n".join(lines).strip() + "\n"


def depth(graph: Graph) -> int:
    """How many modules stand on the longest chain of arrows; circles are entered once."""
    known: dict[str, int] = {}

    def below(module: str, above: frozenset[str]) -> int:
        if module not in known and module not in above:
            chain = above | {module}
            known[module] = 1 + max((below(to, chain) for to in graph[module]), default=0)
        return known.get(module, 0)

    return max(below(module, frozenset()) for module in graph)


def _at_the_top(sources: Mapping[str, str], house: House) -> Graph:
    """The arrows of imports that a module makes when it is loaded."""
    tops = {}
    for name, source in sources.items():
        statements = [
            node for node in tree_of(source).body if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        tops[name] = "\n".join(map(ast.unparse, statements))
    return map_of(tops, house.packages).loaded


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, _FUNCTIONS)


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, of a scope or of the field before it."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _import_lines(source: str) -> set[int]:
    return {
        line
        for node in nodes_of(source)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0

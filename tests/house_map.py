"""The map of the house: which module imports which, the rooms of every folder, and circles.

A folder's rooms are what stands directly in it: its files, and its sub-folders, each taken as one.
An arrow leads from one room to another when a module of the one imports a module of the other, at
the top, inside a function or by its name as text. A circle means that neither room can be read,
tested or moved without the other.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.house_rules import imported, module_name
from tests.syntax import nodes_of, tree_of

Graph = dict[str, set[str]]


@dataclass(frozen=True, slots=True)
class House:
    """Every module of a source tree with the modules it imports."""

    loaded: Graph
    """Arrows that load the other module, sooner or later."""
    named: Graph
    """Those, and the ones that only name it in annotations (`if TYPE_CHECKING`)."""
    packages: frozenset[str]
    """The folders."""

    def rooms(self, folder: str) -> Graph:
        """The rooms of a folder and the arrows between them."""
        return _joined(self.named, folder)

    def circles(self) -> list[list[str]]:
        """Circles between modules, and between the rooms of any folder.

        A file that only names its neighbour in annotations can still be loaded without it, so
        that is no circle between two files; between sub-folders it is one.
        """
        found = circles(self.loaded)
        for folder in sorted(self.packages):
            loaded, named = _joined(self.loaded, folder), _joined(self.named, folder)
            inner = {room for room in named if f"{folder}.{room}" in self.packages}
            graph = {
                room: loaded[room] | {to for to in targets if to in inner or room in inner}
                for room, targets in named.items()
            }
            found += [[f"{folder}.{room}" for room in circle] for circle in circles(graph)]
        return sorted({tuple(circle): circle for circle in found}.values())

    def module_arrows(self, folder: str) -> int:
        """How many imports join two modules below a folder."""
        return sum(
            _room(target, folder) is not None
            for module, targets in self.named.items()
            if _room(module, folder) is not None
            for target in targets
        )


def _joined(graph: Graph, folder: str) -> Graph:
    """The arrows between the rooms of a folder that follow from those between modules."""
    found: Graph = {}
    for module, targets in graph.items():
        room = _room(module, folder)
        if room is not None:
            inside = {_room(target, folder) for target in targets}
            found.setdefault(room, set()).update(
                target for target in inside if target is not None and target != room
            )
    return found


def _room(module: str, folder: str) -> str | None:
    """The room of a folder that a module belongs to; None outside, and for the folder itself."""
    if not module.startswith(folder + "."):
        return None
    return module.removeprefix(folder + ".").split(".")[0]


def read_house(source_root: Path, paths: Iterable[Path]) -> House:
    """The map of the modules at some paths."""
    sources, packages = {}, set()
    for path in paths:
        name = module_name(path, source_root)
        sources[name] = path.read_text(encoding="utf-8")
        if path.name == "__init__.py":
            packages.add(name)
    return map_of(sources, frozenset(packages))


def map_of(sources: Mapping[str, str], packages: frozenset[str] = frozenset()) -> House:
    """The map of some modules, given by their names."""
    loaded: Graph = {}
    named: Graph = {}
    for name, source in sources.items():
        is_package = name in packages
        nodes = nodes_of(source)
        named[name] = set(_targets(nodes, name, sources, is_package=is_package))
        only_named = _for_types(tree_of(source))
        really = [node for node in nodes if node not in only_named] if only_named else nodes
        loaded[name] = set(_targets(really, name, sources, is_package=is_package))
    return House(loaded, named, packages)


def _targets(
    nodes: Iterable[ast.AST], module: str, sources: Mapping[str, str], *, is_package: bool
) -> Iterator[str]:
    for _line, full in imported(nodes, module, is_package=is_package):
        # `from package.module import name` and `from package import module` look the same here.
        for target in (full, full.rpartition(".")[0]):
            if target in sources:
                if target != module:
                    yield target
                break


def _for_types(tree: ast.Module) -> set[ast.AST]:
    """What type checkers alone read."""
    return {inner for node in tree.body if _is_for_types(node) for inner in ast.walk(node)}


def _is_for_types(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Every largest set of nodes that can all reach each other (Tarjan), as sorted names."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            circle = sorted(stack[at:])
            del stack[at:]
            if len(circle) > 1:
                found.append(circle)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)

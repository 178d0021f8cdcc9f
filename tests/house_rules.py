"""The house rules as functions: each takes sources and hands back the sentences of what is wrong.

They read text and syntax trees only, so a rule can be shown a bad sample as easily as the package.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.syntax import nodes_of

PACKAGE = "oncewire"
FILE_LINES = 800

# Which package may import which; `errors` and the package itself are always allowed.
# A dotted entry opens that one module only: the handler knows store and transport by contract
# and the values it speaks of.
_CORE = {"message", "protocol", "wire", "agreement", "journal"}
ALLOWED: dict[str, set[str]] = {
    # The door: it names what programs use, and loads it when it is asked for.
    "__init__": {"message", "protocol", "handler", "entry"},
    "__main__": {"entry"},
    "errors": set(),
    "message": set(),
    "protocol": {"message"},
    "wire": {"message"},
    "agreement": {"message", "protocol"},
    "journal": {"message", "protocol"},
    "store": {"message", "protocol", "journal"},
    "transport": {"wire"},
    "handler": _CORE
    | {"store.contract", "store.spool_contract", "store.records", "transport.contract"},
    "pipeline": {
        "message",
        "protocol",
        "wire",
        "journal",
        "store.postgresql",
        "store.bucket_spool",
    },
    "entry": _CORE | {"store", "transport", "handler", "pipeline"},
    # The laboratory: only the command loader names it, as text.
    "lab": _CORE | {"store", "transport", "handler", "pipeline", "entry"},
}

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}

# Folders that tools make, anywhere, and those they make at the root only: a package of ours may
# well be called `demo`, and its files must be read.
GENERATED = {
    ".git", ".venv", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__",
    "spark-warehouse", "metastore_db", "derby.log", ".coverage",
}  # fmt: skip
GENERATED_AT_ROOT = {"build", "dist", "htmlcov", "demo", "bench/results"}

# Written with gaps so that this file does not name what it forbids.
_HOSTS = [
    "pypi|org", "pythonhosted|org", "npmjs|org", "npmjs|com", "repo1.maven|org", "maven.apache|org",
    "docker|io", "ghcr|io", "quay|io", "crates|io", "anaconda|org", "deb.debian|org",
]  # fmt: skip
_OPTIONS = ["--index|-url", "--extra-index|-url", "--find|-links"]
_PLACES = ["/wo|rk/", "/ro|ot/"]
_WORDS = [host.replace("|", ".") for host in _HOSTS]
_WORDS += [word.replace("|", "") for word in (*_OPTIONS, *_PLACES)]
_FORBIDDEN_HOST = re.compile(
    "|".join(
        [rf"(?<![\w-]){re.escape(host.replace('|', '.'))}(?![\w-])" for host in _HOSTS]
        + [re.escape(option.replace("|", "")) for option in _OPTIONS]
    )
)
_FORBIDDEN_PLACE = re.compile(
    "|".join(rf"(?<![\w.}}-]){re.escape(place.replace('|', ''))}" for place in _PLACES)
)


def project_files(root: Path, folder: Path | None = None) -> Iterator[Path]:
    """Every file of the project, without what tools generated."""
    for path in sorted((folder or root).iterdir()):
        if path.name in GENERATED or path.relative_to(root).as_posix() in GENERATED_AT_ROOT:
            continue
        if path.is_dir():
            yield from project_files(root, path)
        elif not path.is_symlink():
            yield path


def module_name(path: Path, source_root: Path) -> str:
    """`src/oncewire/store/spool.py` is `oncewire.store.spool`; a package is its folder's name."""
    parts = path.relative_to(source_root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(
    nodes: Iterable[ast.AST], module: str, *, is_package: bool
) -> Iterator[tuple[int, str]]:
    """Each (line, full dotted name) of the package that the source of these nodes imports, however
    it does so."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(node, module, is_package=is_package)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            name = called.id if isinstance(called, ast.Name) else called
            first = node.args[0]
            if (
                name in {"import_module", "__import__"}
                and isinstance(first, ast.Constant)
                and isinstance(first.value, str)
            ):
                yield node.lineno, first.value


def _base_of(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    """The absolute name behind `from ... import`, dots resolved as Python does."""
    if node.level == 0:
        return node.module or ""
    anchor = module.split(".")
    climb = node.level - 1 if is_package else node.level
    anchor = anchor[: len(anchor) - climb]
    return ".".join([*anchor, node.module] if node.module else anchor)


def _owner(module: str) -> str:
    """The row of ALLOWED that a module of the package belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def bad_arrows(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Imports that the table does not allow to this module."""
    owner = _owner(module)
    if owner not in ALLOWED:
        return [f"{module}: `{owner}` is not one of the packages of ARCHITECTURE.md"]
    allowed = ALLOWED[owner] | {owner, "errors"}
    wrong = []
    for line, name in imported(nodes_of(source), module, is_package=is_package):
        parts = name.split(".")
        if parts[0] != PACKAGE:
            continue
        inner = parts[1:]
        # `from oncewire import __version__` takes a value of the top package, not a package.
        if not inner or inner[0] not in ALLOWED:
            continue
        if any(inner[: len(entry.split("."))] == entry.split(".") for entry in allowed):
            continue
        wrong.append(f"{module}:{line}: {owner} may not import {name}")
    return wrong


def vague_names(paths: Iterable[Path]) -> list[str]:
    """Modules and packages whose name says nothing about what they hold."""
    return [
        f"{path}: name it for the one thing it holds"
        for path in paths
        if VAGUE_NAMES & {part.lower() for part in path.with_suffix("").parts}
    ]


def too_long(source: str, name: str) -> list[str]:
    """Files that hold more than one noun. Ruff bounds how complex a function is."""
    lines = len(source.splitlines())
    if lines > FILE_LINES:
        return [f"{name}: {lines} lines, more than {FILE_LINES}: split it by noun"]
    return []


def foreign_places(text: str, name: str) -> list[str]:
    """Lines that name a package registry, or a path that exists on one machine only."""
    wrong = []
    # Few files have any of the words at all; where one has, the rules look at each line.
    lines = text.splitlines() if any(word in text for word in _WORDS) else []
    for number, line in enumerate(lines, start=1):
        host = _FORBIDDEN_HOST.search(line)
        if host:
            wrong.append(f"{name}:{number}: names a registry or index ({host.group()})")
        place = _FORBIDDEN_PLACE.search(line)
        if place:
            wrong.append(f"{name}:{number}: names a path of one machine ({place.group()})")
    return wrong


def modules_pulled(code: str, watched: set[str]) -> set[str]:
    """Which of the watched modules a fresh interpreter has loaded after running the code."""
    probe = f"{code}\nimport sys\nprint(*sorted({watched!r} & set(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())

"""Nothing stands in the package that neither it nor a bench, a script or a user's program uses."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.syntax import nodes_of

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "oncewire"

# Used by nobody who can be seen from here, and why each of them stays.
ALLOWED = {
    # Spark and pickle call these by their own names.
    **dict.fromkeys(
        ("streamReader", "initialOffset", "getDefaultReadLimit",
         "latestOffset", "prepareForTriggerAvailableNow", "reportLatestOffset"),
        "the interface of a Spark data source",
    ),
    "readinto": "the interface of Python's files",
    **dict.fromkeys(
        ("eof_received", "connected",
         "on_header", "on_body", "on_message_complete"),
        "the interfaces of asyncio's protocols and of httptools",
    ),
    **dict.fromkeys(
        ("handle_RCPT", "smtp_DATA", "handle_exception"), "the interface of aiosmtpd's handlers"
    ),
    **dict.fromkeys(
        ("begin_auth", "password_auth_supported", "validate_password"),
        "the interface of asyncssh's servers",
    ),
    **dict.fromkeys(("persistent_id", "persistent_load", "find_class"), "the interface of pickle"),
    "judge_message": "one message judged alone, as the tests of each promise do",
    "fail_next_transition": "how a test makes the store in memory fail",
}  # fmt: skip


def names_used(source: str) -> Iterator[str]:
    """Every name that a module speaks of other than by defining or importing it."""
    for node in nodes_of(source):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w.:]+", str(node.value)):
            # Loaded by name, as `package.module:name`.
            yield from re.split(r"[.:]", str(node.value))


def names_defined(source: str) -> Iterator[str]:
    """Public functions, methods and classes."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in nodes_of(source):
        if isinstance(node, kinds) and not node.name.startswith("_"):
            yield node.name


def unused(sources: dict[str, str], users: dict[str, str]) -> set[str]:
    """Names that the sources define and neither they nor the users speak of."""
    used: Counter[str] = Counter()
    for text in (*sources.values(), *users.values()):
        used.update(names_used(text))
    return {name for text in sources.values() for name in names_defined(text)} - set(used)


def _texts(*folders: Path) -> dict[str, str]:
    return {str(path): path.read_text() for folder in folders for path in folder.rglob("*.py")}


@cache
def _found() -> set[str]:
    return unused(_texts(SOURCE), _texts(ROOT / "bench", ROOT / "scripts"))


def test_every_public_name_is_used_or_has_a_reason() -> None:
    assert _found() - set(ALLOWED) == set(), "remove it, use it, or say why it stays"


def test_no_reason_outlives_its_name() -> None:
    assert set(ALLOWED) - _found() == set(), "it is used now, or gone"


def test_an_unused_name_is_seen() -> None:
    source = "def used(): ...\ndef idle(): ...\nclass Idle:\n    def idler(self): ...\n_x = used\n"
    assert unused({"a": source}, {}) == {"idle", "Idle", "idler"}
    assert unused({"a": source}, {"b": "import a\na.Idle().idler(); a.idle()"}) == set()

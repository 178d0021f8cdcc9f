"""A kind and its facts are spelled once: in `protocol/notes.py` and `protocol/notes.py`."""

import ast
import re
from pathlib import Path

import pytest

from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from tests.syntax import nodes_of

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "oncewire"
WRITERS = [
    path for folder in ("protocol", "handler") for path in sorted((SOURCE / folder).rglob("*.py"))
]
DEFINED = {SOURCE / "protocol" / "kinds.py", SOURCE / "protocol" / "notes.py"}


def wrong_notes(source: str) -> list[str]:
    """Where a note is not made from its definition, in words."""
    found = []
    for node in nodes_of(source):
        if isinstance(node, ast.Call) and _called(node) in ("Note", "note_of"):
            what = node.args[0] if node.args else None
            if what is None or isinstance(what, ast.Constant | ast.Dict | ast.JoinedStr):
                found.append(f"line {node.lineno}: what is noted is not a class of notes.py")
            elif isinstance(what, ast.Attribute) and what.attr == "value":
                found.append(f"line {node.lineno}: a kind is spelled out")
            if any(word.arg in ("detail", "kind") for word in node.keywords):
                found.append(f"line {node.lineno}: facts beside the definition")
        if isinstance(node, ast.Compare) and _is_kind_word(node):
            found.append(f"line {node.lineno}: a kind is compared with a bare word")
        if isinstance(node, ast.Call) and _called(node) == "Row" and len(node.args) > 18:
            # The columns as `HandlerContext.write` fills them: kind and detail come from a note.
            kind, detail = node.args[5], node.args[18]
            if isinstance(kind, ast.Constant) or isinstance(detail, ast.Dict | ast.Constant):
                found.append(f"line {node.lineno}: a row is written past its definition")
    return found


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _is_kind_word(node: ast.Compare) -> bool:
    sides = (node.left, *node.comparators)
    words = {side.value for side in sides if isinstance(side, ast.Constant)}
    asked = any(isinstance(side, ast.Attribute) and side.attr == "kind" for side in sides)
    return asked and bool(words & {kind.value for kind in Kind})


@pytest.mark.parametrize("path", WRITERS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_writer_spells_a_kind_or_a_fact(path: Path) -> None:
    if path not in DEFINED:
        assert wrong_notes(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        'Note("sent", "m1")',
        "Note(Kind.SENT.value)",
        'Note(notes.Failed("a", "b"), detail={})',
        'note_of("sent", outgoing)',
        'effect.kind == "warned"',
    ],
)
def test_a_note_past_its_definition_is_seen(source: str) -> None:
    assert wrong_notes(source)


def test_every_kind_has_its_definition_its_writer_and_its_row_of_the_page() -> None:
    """A kind that is added is forgotten in none of them."""
    page = (ROOT / "docs" / "reference" / "journal.md").read_text()
    source = "\n".join(path.read_text() for path in WRITERS if path not in DEFINED)
    for kind in Kind:
        assert f"`{kind.value}`" in page, kind
        if kind is Kind.TERMS:
            continue
        name = notes.NOTES[kind].__name__
        written = re.search(rf"\b{name}\(", source) is not None
        assert written, name

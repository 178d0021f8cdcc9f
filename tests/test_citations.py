"""Every citation leads somewhere, and what a user reads has none of those numbers."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from oncewire.agreement.compose import compose, profile_values
from oncewire.agreement.keys import KEYS
from oncewire.entry.cli.main import build
from tests import house_rules
from tests.citations import Sources, anchors, said
from tests.parts import ROOT

SOURCES = Sources(ROOT)
DECISIONS = (ROOT / "docs" / "explanation" / "decisions.md").read_text(encoding="utf-8")
FOLDERS = {"src", "tests", "bench", "scripts"}
FILES = [
    path
    for path in house_rules.project_files(ROOT)
    if (path.suffix == ".md" and "made" not in path.parts)
    or (path.suffix == ".py" and path.relative_to(ROOT).parts[0] in FOLDERS)
]
MAPS = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/explanation/decisions.md",
    "docs/internals/design.md",
    "docs/reference/glossary.md",
)
"""Pages that name modules: whoever moves one finds here what to change."""

FOR_REFERENCE = {
    *("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("docs/explanation/decisions.md", "docs/internals/design.md", "docs/internals/matrix.md"),
}
"""Pages for whoever works on the code; every other is for users."""


_DECISION = r'^### (C\d+|gap \d+|DRV-\d+) .+\n<a id="([\w-]+)"></a>\n'
_DEFAULTS = r"^\| `([\w.]+)` \| C[^|]+ \| (.+) \| (.+) \| (.+) \|$"


# --- citations ---------------------------------------------------------------------------------


@pytest.mark.long
def test_every_citation_leads_somewhere() -> None:
    wrong = []
    for path in FILES:
        file = path.relative_to(ROOT).as_posix()
        wrong += SOURCES.dangling(path.read_text(encoding="utf-8"), file)
    assert len(FILES) > 500
    assert not wrong, "\n".join(wrong)


# In pieces, so that this file stays clean itself.
@pytest.mark.parametrize(
    "pieces",
    [
        ("as C", "43 says"),
        ("see gap", " 17"),
        ("(DRV", "-10)"),
        ("RTY", "-99"),
        ("CPA-9", "..99"),
        ("S", "17"),
        ("docs/", "nowhere.md"),
        ("docs/decisions", ".md#c43"),
        ("the page WIRE", ".md"),
        ("[a page](docs/", "nowhere.md)"),
        ("[a heading](README", ".md#no-such-heading)"),
    ],
)
def test_a_citation_that_leads_nowhere_is_seen(pieces: tuple[str, ...]) -> None:
    assert len(SOURCES.dangling("".join(pieces), "sample.md")) >= 1


@pytest.mark.parametrize(
    "text",
    ["C42", "gaps 13-16", "DRV-9", "CPA-9..12", "S15, L3", "docs/explanation/decisions.md#c7",
     "canonical C14N", "[here](#tests)",
     "[there](docs/reference/journal.md#promises)", "corpus/INDEX.md",
     "the PT1S"],
)  # fmt: skip
def test_a_citation_that_leads_somewhere_passes(text: str) -> None:
    assert SOURCES.dangling(text, "ARCHITECTURE.md") == []


@pytest.mark.parametrize("page", MAPS)
def test_a_page_names_only_modules_that_exist(page: str) -> None:
    wrong = SOURCES.lost_paths((ROOT / page).read_text(encoding="utf-8"), page)
    assert not wrong, "\n".join(wrong)


def test_a_module_that_moved_is_seen() -> None:
    text = "`wire/codec.py`, `journal/predicates/`, `tests/parts.py`, `src/oncewire/errors.py`"
    assert SOURCES.lost_paths(text, "sample") == []
    assert len(SOURCES.lost_paths("`wire/moved.py` and `nowhere/`", "sample")) == 2


# --- what users read ---------------------------------------------------------------------------


def _messages() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        for line, text in said(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(ROOT)}:{line}", text


def _helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    context = command.context_class(command, info_name=name, parent=parent)
    yield context.command_path, command.get_help(context)
    for inner_name, inner in getattr(command, "commands", {}).items():
        yield from _helps(inner, inner_name, context)


@pytest.mark.long
def test_no_message_cites_a_number() -> None:
    found = [f"{where}: {text!r}" for where, text in _messages() if SOURCES.numbered(text)]
    assert not found, "\n".join(found)


def test_no_help_cites_a_number() -> None:
    helps = list(_helps(get_command(build()), "oncewire"))
    assert len(helps) > 30
    assert not [where for where, text in helps if SOURCES.numbered(text)]


def test_no_page_for_users_cites_a_number() -> None:
    pages = [path for path in FILES if path.suffix == ".md"]
    found = [
        f"{path.name}: {number}"
        for path in pages
        if path.relative_to(ROOT).as_posix() not in FOR_REFERENCE
        for number in SOURCES.numbered(path.read_text(encoding="utf-8"))
    ]
    assert len(pages) > len(FOR_REFERENCE) + 5
    assert not found, "\n".join(found)


def test_a_message_is_told_from_a_docstring() -> None:
    source = '"""C1"""\nX = 1\n"""C2"""\ndef f():\n    """C3"""\n    raise E(f"see {X} (C4)")\n'
    assert [text for _, text in said(source) if SOURCES.numbered(text)] == [" (C4)"]


# --- the page of decisions ---------------------------------------------------------------------


def test_every_decision_has_its_heading_and_anchor() -> None:
    wanted = [f"C{n}" for n in range(1, 43)]
    wanted += [f"gap {n}" for n in range(1, 17)] + [f"DRV-{n}" for n in range(1, 10)]
    found = re.findall(_DECISION, DECISIONS, re.MULTILINE)
    assert [name for name, _ in found] == wanted
    assert [anchor for _, anchor in found] == [name.lower().replace(" ", "-") for name in wanted]


def test_every_disagreement_names_its_term_or_is_fixed() -> None:
    sections = re.findall(r"^### C\d+ .+?(?=^##)", DECISIONS, re.MULTILINE | re.DOTALL)
    assert len(sections) == 42
    for section in sections:
        terms = re.findall(r"Terms?:\s+(`[^`]+`(?:,\s+`[^`]+`)*)", section)
        named = {name for one in terms for name in re.findall(r"`([^`]+)`", one)}
        assert named or "Fixed" in section, section
        assert named <= set(KEYS), section


def test_the_defaults_on_the_page_are_those_of_the_profiles() -> None:
    rows = re.findall(_DEFAULTS, DECISIONS, re.MULTILINE)
    profiles = [compose(profile_values(name)) for name in ("ebms2", "ms-0.9x", "rm-0.78")]
    assert len(rows) > 20
    for name, *shown in rows:
        values = [next(one.value for one in whole.values if one.key == name) for whole in profiles]
        assert shown == [str(_plain(name, value)) for value in values], name


def _plain(name: str, value: object) -> object:
    plain = KEYS[name].kind.write(value)
    return str(plain).lower() if isinstance(plain, bool) else plain


def test_anchors_are_explicit_or_headings() -> None:
    page = '# The journal\n\n### C7 Announcing\n<a id="c7"></a>\n## What `x` is, and why\n'
    assert anchors(page) == {"the-journal", "c7-announcing", "c7", "what-x-is-and-why"}


def test_the_glossary_says_each_word_once_and_in_order() -> None:
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    parts = [re.findall(r"^\*\*([^*]+)\*\*", part, re.MULTILINE) for part in page.split("\n## ")]
    words = [word for part in parts for word in part]
    assert all(part == sorted(part) for part in parts)
    assert len(words) == len(set(words))
    assert {
        "acknowledgement", "agreement", "answer", "channel", "claim", "document", "envelope",
        "epoch", "hand-over", "hint", "hub", "incident", "journal", "message", "node", "outcome",
        "parcel", "partner", "party", "payload", "receipt", "reply", "response", "terms", "window",
    } <= set(words)  # fmt: skip

"""docs/reference/journal.md names each column, kind, fact, outcome and finding of the code."""

import re

from oncewire.journal.predicates.context import ViolationKind
from oncewire.journal.row import COLUMNS, JOURNAL_VERSION
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import Outcome
from tests.parts import ROOT

TEXT = (ROOT / "docs" / "reference" / "journal.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([a-z_]+)`", TEXT))


def test_every_column_and_kind_is_documented() -> None:
    assert set(COLUMNS) <= NAMED
    assert {kind.value for kind in Kind} <= NAMED


def test_every_fact_of_every_detail_is_documented() -> None:
    facts = {name for cls in notes.DETAILS.values() for name in cls.__struct_fields__}
    assert facts <= NAMED


def test_every_outcome_and_finding_is_documented() -> None:
    assert {outcome.value for outcome in Outcome} <= NAMED
    assert {kind.value for kind in ViolationKind} <= NAMED


def test_the_version_is_the_present_one() -> None:
    assert f"It is version {JOURNAL_VERSION} " in TEXT


def test_the_handler_writes_no_row_of_a_kind_that_the_contract_does_not_have() -> None:
    known = {kind.value for kind in Kind}
    for file in sorted((ROOT / "src" / "oncewire").rglob("*.py")):
        written = set(re.findall(r'\bNote\(\s*"([a-z_]+)"', file.read_text(encoding="utf-8")))
        assert written <= known, (file.name, written - known)

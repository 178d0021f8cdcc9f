"""Details: every kind's facts come back as they were written, and anything else is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.errors import JournalProblem, StoreProblem
from oncewire.protocol import notes
from oncewire.protocol.notes import Detail, Kind, read_terms, write_terms
from oncewire.protocol.terms import Terms
from tests.journal.histories import ORDERED

SAMPLES = [
    notes.Started("0.1.0", parties=("urn:a", "urn:b")),
    notes.ClockSet(-3_600_000_000, "in doubt"),
    notes.Trimmed(100, 140, "pat"),
    notes.Submitted("a", "b", "cpa", "conv", "orders", "New", 5, split_id="d", split_number=1),
    notes.Numbered("Reset"),
    notes.SendFailed("refused", "connection refused"),
    notes.Acknowledged("response", late=True, signed=True, hop=True),
    notes.Rejected("Inconsistent", "Warning", "why"),
    notes.Warned("Inconsistent", "//Service", "why"),
    notes.Ignored("error", "SecurityFailure", "why", 4),
    notes.Transient(5),
    notes.Expired("TimeToLive"),
    notes.Failed("unknown", "exhausted"),
    notes.Notified("Warning"),
    notes.Suspended("why"),
    notes.Resumed("operator"),
    notes.Abandoned("operator", "why"),
    notes.EpochEnded("why"),
    notes.Received("a", "b", signature_required=True, signature="verified"),
    notes.Duplicate("original"),
    notes.Refused("MimeProblem", location="cid:x", problem="missing"),
    notes.Skipped("refused"),
    notes.WarningSent("Inconsistent", "//Service", "why"),
    notes.AckSent(signed=True),
    notes.HandedOver(redelivered=True, lease_expired=True),
    notes.Confirmed("pat"),
    notes.Joined(3),
    notes.Forwarded("a", "b", 5),
    notes.HoldSet("pat"),
    notes.HoldLifted("pat"),
    notes.Incident("1", "what", "do"),
    notes.Resolved("1", "operator"),
]


@pytest.mark.parametrize("said", SAMPLES, ids=lambda said: said.KIND.value)
def test_what_was_written_is_read(said: Detail) -> None:
    text = said.write()
    assert text is not None
    assert ": " not in text
    assert type(said).read(text) == said


def test_every_kind_with_a_detail_has_its_class_and_a_sample() -> None:
    silent = {Kind.STOPPED, Kind.TERMS, Kind.SENT, Kind.EXHAUSTED, Kind.EPOCH_BEGAN}
    silent |= {Kind.PASSED_ON}
    assert set(notes.DETAILS) == set(Kind) - silent
    assert set(notes.NOTES) == set(Kind) - {Kind.TERMS}
    assert {said.KIND for said in SAMPLES} == set(notes.DETAILS)


def test_nothing_to_say_is_no_text() -> None:
    assert notes.Acknowledged().write() is None
    assert notes.Acknowledged.read(None) == notes.Acknowledged()


def test_a_fact_that_is_not_known_here_is_passed_over() -> None:
    assert notes.Numbered.read('{"status":"Reset","colour":"blue"}') == notes.Numbered("Reset")


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (notes.Numbered, "{"),
        (notes.Numbered, "[]"),
        (notes.Numbered, '"Reset"'),
        (notes.Numbered, '{"status":5}'),
        (notes.Acknowledged, '{"late":1}'),
        (notes.Transient, '{"until":true}'),
        (notes.Transient, '{"until":"soon"}'),
        (notes.Started, '{"version":"1","parties":"urn:a"}'),
        (notes.Joined, "{}"),
        (notes.Joined, None),
    ],
)
def test_a_detail_that_cannot_be_read_is_a_named_problem(
    cls: type[Detail], text: str | None
) -> None:
    with pytest.raises(JournalProblem, match=cls.KIND.value) as raised:
        cls.read(text)
    assert raised.value.remedy


@pytest.mark.parametrize("terms", [Terms(), ORDERED])
def test_terms_come_back_with_the_same_id(terms: Terms) -> None:
    assert read_terms(write_terms(terms)).terms_id == terms.terms_id


@pytest.mark.parametrize(
    "text",
    [
        "5",
        '{"colour":"blue"}',
        '{"flow":"fast"}',
        '{"numbers":5}',
        '{"timeout":"soon"}',
        '{"ordered":true}',
    ],
)
def test_terms_that_cannot_be_read_are_a_named_problem(text: str) -> None:
    with pytest.raises(JournalProblem):
        read_terms(text)


@given(st.text(max_size=40))
def test_no_text_is_anything_but_read_or_a_named_problem(text: str) -> None:
    for cls in notes.DETAILS.values():
        try:
            cls.read(text)
        except JournalProblem:
            continue


def test_a_text_that_is_no_unicode_is_refused_by_name() -> None:
    with pytest.raises(StoreProblem, match="no Unicode"):
        notes.Failed("unknown", reason="\ud800").write()

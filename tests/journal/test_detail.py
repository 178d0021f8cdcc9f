"""Details: every kind's facts come back as they were written, and anything else is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.errors import JournalProblem
from oncewire.journal import detail
from oncewire.journal.row import Kind
from oncewire.protocol.terms import Terms
from tests.journal.histories import ORDERED

SAMPLES = [
    detail.Started("0.1.0", parties=("urn:a", "urn:b")),
    detail.ClockSet(-3_600_000_000, "in doubt"),
    detail.Submitted("a", "b", "cpa", "conv", "orders", "New", 5, split_id="d", split_number=1),
    detail.Numbered("Reset"),
    detail.SendFailed("refused", "connection refused"),
    detail.Acknowledged("response", late=True, signed=True, hop=True),
    detail.Rejected("Inconsistent", "Warning", "why"),
    detail.Warned("Inconsistent", "//Service", "why"),
    detail.Ignored("error", "SecurityFailure", "why", 4),
    detail.Transient(5),
    detail.Expired("TimeToLive"),
    detail.Failed("unknown", "exhausted"),
    detail.Notified("Warning"),
    detail.Suspended("why"),
    detail.Resumed("operator"),
    detail.Abandoned("operator", "why"),
    detail.EpochEnded("why"),
    detail.Received("a", "b", signature_required=True, signature="verified"),
    detail.Duplicate("original"),
    detail.Refused("MimeProblem", location="cid:x", problem="missing"),
    detail.Skipped("refused"),
    detail.WarningSent("Inconsistent", "//Service", "why"),
    detail.AckSent(signed=True),
    detail.HandedOver(redelivered=True, lease_expired=True),
    detail.Joined(3),
    detail.Forwarded("a", "b", 5),
    detail.Incident("1", "what", "do"),
    detail.Resolved("1", "operator"),
]


@pytest.mark.parametrize("said", SAMPLES, ids=lambda said: said.KIND.value)
def test_what_was_written_is_read(said: detail.Detail) -> None:
    text = said.write()
    assert text is not None
    assert ": " not in text
    assert type(said).read(text) == said


def test_every_kind_with_a_detail_has_its_class_and_a_sample() -> None:
    silent = {Kind.STOPPED, Kind.TERMS, Kind.SENT, Kind.EXHAUSTED, Kind.EPOCH_BEGAN}
    silent |= {Kind.CONFIRMED, Kind.PASSED_ON}
    assert set(detail.DETAILS) == set(Kind) - silent
    assert {said.KIND for said in SAMPLES} == set(detail.DETAILS)


def test_nothing_to_say_is_no_text() -> None:
    assert detail.Acknowledged().write() is None
    assert detail.Acknowledged.read(None) == detail.Acknowledged()


def test_a_fact_that_is_not_known_here_is_passed_over() -> None:
    assert detail.Numbered.read('{"status":"Reset","colour":"blue"}') == detail.Numbered("Reset")


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (detail.Numbered, "{"),
        (detail.Numbered, "[]"),
        (detail.Numbered, '"Reset"'),
        (detail.Numbered, '{"status":5}'),
        (detail.Acknowledged, '{"late":1}'),
        (detail.Transient, '{"until":true}'),
        (detail.Transient, '{"until":"soon"}'),
        (detail.Started, '{"version":"1","parties":"urn:a"}'),
        (detail.Joined, "{}"),
        (detail.Joined, None),
    ],
)
def test_a_detail_that_cannot_be_read_is_a_named_problem(
    cls: type[detail.Detail], text: str | None
) -> None:
    with pytest.raises(JournalProblem, match=cls.KIND.value) as raised:
        cls.read(text)
    assert raised.value.remedy


@pytest.mark.parametrize("terms", [Terms(), ORDERED])
def test_terms_come_back_with_the_same_id(terms: Terms) -> None:
    assert detail.read_terms(detail.write_terms(terms)).terms_id == terms.terms_id


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
        detail.read_terms(text)


@given(st.text(max_size=40))
def test_no_text_is_anything_but_read_or_a_named_problem(text: str) -> None:
    for cls in detail.DETAILS.values():
        try:
            cls.read(text)
        except JournalProblem:
            continue

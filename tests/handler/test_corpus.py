"""The whole handler answers every message of the public corpus as its index says."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.handler.actions import Submission
from oncewire.journal.check import check_journal
from oncewire.message.envelope import Payload, Severity
from oncewire.message.ids import Service
from oncewire.message.instant import DAY
from tests.handler.corpus_cases import ANSWERING, ARRIVING, parcel_of
from tests.handler.network import HTTP, Network
from tests.wire.samples import corpus_messages


def test_every_message_of_the_corpus_is_a_case(corpus: Path) -> None:
    assert set(corpus_messages(corpus)) == set(ARRIVING) | set(ANSWERING)
    assert not set(ARRIVING) & set(ANSWERING)


@pytest.mark.requirement("SYNC-1", "SYNC-12", "TRN-5")
@pytest.mark.parametrize("name", ARRIVING)
def test_it_is_answered(corpus: Path, name: str) -> None:
    case = ARRIVING[name]
    desk = case.desk(corpus)
    reply = desk.hand_in(parcel_of(corpus, name), case.source)
    assert reply.status == case.status
    assert (reply.message.kind if reply.message is not None else None) is case.kind
    assert (reply.fault.code if reply.fault is not None else None) == case.fault
    if case.error is not None:
        assert reply.error == (*case.error, Severity.ERROR.value)
    posted = desk.signals()
    assert [message.kind for message in posted] == ([case.posted] if case.posted else [])
    if case.posted_error is not None:
        assert posted[0].error_list is not None
        error = posted[0].error_list.errors[0]
        assert (error.code, error.location) == case.posted_error
        assert error.severity is Severity.ERROR
    taken = desk.given()
    if case.taken is None:
        assert taken == []
    else:
        assert [tuple(one.size for one in message.payloads) for message in taken] == [case.taken]
    refused = bool(case.error or case.posted_error or case.fault or case.silent)
    assert bool(desk.refused) is refused
    assert bool(desk.rows("received")) is (case.taken is not None)
    assert desk.verify(healed=False).violations == ()


@pytest.mark.parametrize("name", ARRIVING)
def test_what_answers_it_goes_to_its_sender(corpus: Path, name: str) -> None:
    case = ARRIVING[name]
    desk = case.desk(corpus)
    reply = desk.hand_in(parcel_of(corpus, name), case.source)
    messages = [*desk.signals(), *([reply.message] if reply.message is not None else [])]
    (agreement,) = desk.engine.context.agreements
    for message in messages:
        assert agreement.own.is_named_by(message.header.from_party)
        assert agreement.partner.is_named_by(message.header.to_party)
        assert message.header.ref_to_message_id
        assert message.header.service == Service("urn:oasis:names:tc:ebxml-msg:service")
        assert message.header.action == message.kind.value
    expected = "mailto:msh@partner" if case.source is not HTTP else "http://partner/msh"
    assert all(one.address == expected for one in desk.posted)


def sent_before(desk: Network, cpa_id: str, message_id: str, number: str = "") -> None:
    desk.submit(
        Submission(
            cpa_id,
            Service("urn:test:service"),
            "Action",
            (Payload.of(f"doc{number}", "text/plain", b"document"),),
            message_id=message_id + number,
        )
    )


@pytest.mark.requirement("RM-14", "ERR-2")
@pytest.mark.parametrize("name", ANSWERING)
def test_it_settles_the_message_it_answers(corpus: Path, name: str) -> None:
    case = ANSWERING[name]
    desk = case.desk(corpus)
    sent_before(desk, case.cpa_id, case.message_id)
    # The transfer goes on: another message of the same agreement is not touched.
    sent_before(desk, case.cpa_id, case.message_id, "-2")
    answer = parcel_of(corpus, name)
    if case.source is HTTP:
        desk.hear(desk.posts[0], answer, sent=case.sent)
    else:
        desk.hear(desk.posts[0], None)
        assert desk.hand_in(answer, case.source).status == 204
    assert desk.state(case.message_id) is case.state
    assert desk.state(f"{case.message_id}-2") is desk.state(f"{case.message_id}-2").OUTSTANDING
    # Nothing answers an acknowledgement or an error.
    assert desk.posted == []
    if case.reason:
        (notice,) = desk.notices
        assert notice.message_id == case.message_id
        assert notice.severity is Severity.ERROR
        assert case.reason in notice.reason
    else:
        assert desk.notices == []
    taken = [tuple(one.size for one in message.payloads) for message in desk.given()]
    assert taken == ([case.taken] if case.taken is not None else [])
    assert desk.verify(healed=False).violations == ()


@pytest.mark.parametrize("name", ANSWERING)
def test_it_ends_the_attempts_or_leaves_them_running(corpus: Path, name: str) -> None:
    case = ANSWERING[name]
    desk = case.desk(corpus)
    sent_before(desk, case.cpa_id, case.message_id)
    desk.hear(desk.posts[0], None)
    answer = parcel_of(corpus, name)
    if case.source is HTTP:
        desk.hear(desk.posts[0], answer, sent=case.sent)
    else:
        desk.hand_in(answer, case.source)
    terms = desk.terms(case.message_id)
    desk.pass_time(terms.retry_interval)
    assert (len(desk.posts) == 2) is case.resent
    desk.pass_time(10 * DAY)
    if not case.resent:
        assert len(desk.posts) == 1


@pytest.mark.parametrize("name", ANSWERING)
def test_without_the_message_it_answers_it_changes_nothing(corpus: Path, name: str) -> None:
    """A stray acknowledgement, error or fault is recorded; nobody is answered."""
    case = ANSWERING[name]
    desk = case.desk(corpus)
    sent_before(desk, case.cpa_id, "another")
    reply = desk.hand_in(parcel_of(corpus, name), case.source)
    assert reply.message is None
    assert (reply.status, reply.fault is not None) == ((204, False) if case.sent else (500, True))
    assert desk.state("another") is desk.state("another").OUTSTANDING
    assert desk.notices == []
    assert desk.posted == []
    assert desk.refused == 1
    # What nobody sent is not among the messages that were not delivered.
    assert check_journal(desk.rows(), healed=False).messages == 1


def test_both_errors_of_one_report_are_heard(corpus: Path) -> None:
    name = "nhs-mhs/test_messages/ebxml_response_error_multiple.xml"
    case = ANSWERING[name]
    desk = case.desk(corpus)
    sent_before(desk, case.cpa_id, case.message_id)
    desk.hear(desk.posts[0], parcel_of(corpus, name))
    (rejected,) = desk.rows("rejected")
    (notice,) = desk.notices
    for number in ("501319:Unknown eb:CPAId", "501320:Unknown something else"):
        assert number in (rejected.detail or "")
        assert number in notice.reason

"""A document in parts between two engines: whole, once, in order, or one notice."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from oncewire.errors import EbxmlError, InvalidValue, NotAllowed, StoreDamaged, StoreFull
from oncewire.handler.actions import Join, Post, Submission
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.receiving import joining
from oncewire.handler.runtime import retention
from oncewire.handler.sending.transmit import Transmission
from oncewire.journal.history import explain
from oncewire.message.envelope import MessageStatus, Payload
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND
from oncewire.protocol import documents
from oncewire.protocol.documents import DocumentState, SplitDocument
from oncewire.protocol.states import FINAL_OUTGOING, Outcome, OutgoingState
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import SpoolSlice, StoredOutgoing
from tests.handler.network import Network

SPLIT = "[payload]\nmax_size = 1000\n"
EBMS2 = SPLIT + '[wire]\nextensions = ["split", "compression"]\n'
DATA = random.Random(7).randbytes(9_500)
WAYS = [("window", SPLIT), ("ms-0.9x", SPLIT), ("rm-0.78", SPLIT), ("ebms2", EBMS2)]


def submit(pair: Network, *documents: bytes, message_id: str = "doc@alpha") -> None:
    payloads = tuple(
        Payload.of(f"payload-{number}", "text/plain", data) for number, data in enumerate(documents)
    )
    service = Service("urn:test:orders")
    pair.send(service=service, payloads=payloads, message_id=message_id)


def taken(pair: Network) -> list[GivenMessage]:
    """What the application at beta is given, and confirms."""
    given = pair.beta.hand_over(100, 30 * SECOND)
    pair.settle("beta")
    for each in given:
        pair.beta.confirm(each.sender, each.message_id)
    pair.settle("beta")
    return given


def sent(pair: Network) -> dict[str, StoredOutgoing]:
    with pair.alpha.context.store.reader() as reader:
        return {kept.outgoing.message_id: kept for kept in reader.outgoing_list(limit=1_000)}


def clean(pair: Network) -> None:
    report = pair.verify()
    assert report.clean, report


def test_it_waits_for_no_connection_whose_response_was_agreed_meanwhile() -> None:
    """The receiver's agreement asks for a response on the connection, which no part has."""
    pair = Network.pair("ms-0.9x", SPLIT)
    sync = SPLIT + '[sync]\nmode = "signalsAndResponse"\nretries = "none"\n'
    pair.beta.context.application_called = True
    pair.beta.context.agreements = Network.pair("ms-0.9x", sync).beta.context.agreements
    submit(pair, DATA)
    pair.pass_time()
    assert "confirmed" in pair.kinds("beta")
    assert "refused" not in pair.kinds("beta")
    clean(pair)


@pytest.mark.requirement("SEQ-2")
@pytest.mark.parametrize("lost", range(1, 8))
def test_parts_whose_numbers_wrap_around_keep_their_order(lost: int) -> None:
    """Number 6 is followed by 1: the part that completes the document may be either of them."""
    lose = iter([*[False] * (lost - 1), True])
    range_of_six = "[sequence]\nrange = [1, 6]\n[flow]\nwindow = 3\n"
    pair = Network.pair("window", SPLIT + range_of_six, lose_request=lambda post: next(lose, False))
    submit(pair, DATA[:6_500])
    pair.pass_time()
    assert len(taken(pair)) == 1
    clean(pair)


class FullOnce(Network):
    """The disk of beta is full when the first document is to be stored as whole."""

    full = True

    def join(self, name: str, action: Join) -> None:
        if not self.full:
            super().join(name, action)
            return
        self.full, store = False, self.engines[name].context.store
        assert isinstance(store, MemoryStore)
        store.fail_next_commit(StoreFull("full"))
        with pytest.raises(StoreFull):
            super().join(name, action)


@pytest.mark.requirement("SW-10", "BIG-6")
def test_what_follows_a_document_waits_also_where_the_disk_was_full() -> None:
    pair = FullOnce.pair("window", SPLIT)
    submit(pair, DATA[:1_500])
    pair.send(2)
    assert taken(pair) == []
    pair.pass_time()
    assert [given.message_id for given in taken(pair)] == ["doc@alpha", "order-2@alpha"]
    clean(pair)


@pytest.mark.requirement("BIG-3", "BIG-4", "BIG-5", "BIG-6")
@pytest.mark.parametrize(("profile", "extra"), WAYS)
def test_it_is_handed_over_whole_and_once(profile: str, extra: str) -> None:
    pair = Network.pair(profile, extra)
    submit(pair, DATA)
    (given,) = taken(pair)
    assert given.message_id == "doc@alpha"
    assert given.header.split is None
    assert [payload.data for payload in given.payloads] == [DATA]
    assert given.payloads[0].media_type == "text/plain"
    assert given.payloads[0].mime_headers == ()
    assert taken(pair) == []
    rows = sent(pair)
    assert len(rows) == 11
    assert {kept.outgoing.state for kept in rows.values()} == {OutgoingState.DELIVERED}
    numbers = [kept.facts.split_number for kept in rows.values()]
    assert sorted(filter(None, numbers)) == list(range(1, 11))
    assert pair.notices == []
    clean(pair)


@pytest.mark.parametrize(("profile", "extra"), [("ms-0.9x", SPLIT), ("ebms2", EBMS2)])
def test_large_parts_are_made_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, profile: str, extra: str
) -> None:
    """Each is read and digested in its turn, and everybody else waits for that."""
    monkeypatch.setattr(documents, "UNDER_WAY_BYTES", 3_500)
    pair = Network.pair(profile, extra, lose_request=lambda post: True)
    submit(pair, DATA)
    parts = [kept for kept in sent(pair).values() if kept.facts.split_number is not None]
    assert len(parts) == 3


def test_it_is_counted_once() -> None:
    pair = Network.pair("window", SPLIT)
    submit(pair, DATA)
    pair.send(1)
    assert len(taken(pair)) == 2
    for name, state in (("alpha", "out.delivered"), ("beta", "in.confirmed")):
        with pair.engines[name].context.store.reader() as reader:
            counts = reader.counts()
            rows = reader.journal_of("doc@alpha")
        assert {key: count for key, count in counts.items() if count} == {state: 2}
        told = explain(rows)
        assert "attempt 0" not in told
        assert "in parts" in told or name == "beta"
    report = pair.verify()
    assert (report.messages, report.parts) == (2, 10)


@pytest.mark.parametrize(("profile", "extra"), WAYS)
def test_several_payloads_stay_several(profile: str, extra: str) -> None:
    pair = Network.pair(profile, extra)
    documents = (DATA, b"small", b"", DATA[:1000], DATA[:1001])
    submit(pair, *documents)
    (given,) = taken(pair)
    assert [payload.data for payload in given.payloads] == list(documents)
    assert [payload.content_id for payload in given.payloads] == [f"payload-{n}" for n in range(5)]
    clean(pair)


def test_no_part_is_a_copy_of_the_document() -> None:
    pair = Network.pair("window", SPLIT)
    submit(pair, DATA)
    store = pair.alpha.context.store
    with store.reader() as reader:
        (file,) = reader.spooled()
        for number in range(1, 11):
            parcel = reader.outgoing_parcel(f"{number}-of-10.doc@alpha")
            assert parcel is not None
            (slice_,) = [part for part in parcel.body if isinstance(part, SpoolSlice)]
            length = 1000 if number < 10 else 500
            assert slice_ == SpoolSlice(file, (number - 1) * 1000, length)
    with store.spool.open(file) as spooled:
        assert spooled.read() == DATA


@pytest.mark.long
@pytest.mark.requirement("BIG-6")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("profile", "extra"), WAYS)
def test_lost_parts_and_answers_are_sent_again_alone(profile: str, extra: str, seed: int) -> None:
    luck = random.Random(seed)
    pair = Network.pair(
        profile,
        extra,
        lose_request=lambda post: post.attempt < 2 and luck.random() < 0.4,
        lose_answer=lambda number: number < 20 and number % (seed + 3) == 0,
    )
    submit(pair, DATA)
    pair.pass_time(*[90 * SECOND] * 25)
    assert sent(pair)["doc@alpha"].outgoing.state is OutgoingState.DELIVERED
    assert [given.payloads[0].data for given in taken(pair)] == [DATA]
    assert pair.notices == []
    clean(pair)


@pytest.mark.long
@pytest.mark.parametrize("crashes", ["alpha", "beta", "both"])
@pytest.mark.parametrize(("profile", "extra"), WAYS)
def test_a_crash_in_the_middle_loses_nothing(profile: str, extra: str, crashes: str) -> None:
    count = 0

    def lose(_: int) -> bool:
        nonlocal count
        count += 1
        return count > 4

    pair = Network.pair(profile, extra, lose_request=lose)
    submit(pair, DATA)
    before = {
        name for name, kept in sent(pair).items() if kept.outgoing.state is OutgoingState.DELIVERED
    }
    for name in ("alpha", "beta"):
        if crashes in (name, "both"):
            pair.crash(name)
    posted = []
    pair.lose_request = lambda post: False
    pair.alpha.context.world.time += 90 * SECOND  # type: ignore[attr-defined]
    pair.pass_time(*[90 * SECOND] * 6)
    rows = pair.rows()
    restarted = max(row.seq for row in rows if row.kind == "started")
    posted = [row.message_id for row in rows if row.kind == "sent" and row.seq > restarted]
    if crashes != "beta":
        assert before.isdisjoint(posted)
    assert [given.payloads[0].data for given in taken(pair)] == [DATA]
    clean(pair)


def test_a_part_that_never_arrives_ends_the_document_with_one_notice() -> None:
    third = "3-of-10.doc@alpha"
    pair = Network.pair("window", SPLIT, lose_request=lambda post: post.message_id == third)
    submit(pair, DATA)
    pair.pass_time(*[2 * HOUR] * 13)
    assert [notice.message_id for notice in pair.notices] == ["doc@alpha"]
    assert pair.notices[0].outcome in (Outcome.UNKNOWN, Outcome.NOT_DELIVERED)
    assert "part 3 of 10" in pair.notices[0].reason
    assert taken(pair) == []
    pair.pass_time(*[HOUR] * 3)
    with pair.beta.context.store.reader() as reader:
        assert reader.spooled() == set()
        document = reader.document("urn:test:alpha", "doc@alpha")
        assert document is not None
        assert document.state.value == "failed"
    clean(pair)


@pytest.mark.requirement("BIG-1")
def test_what_cannot_be_split_is_refused_by_name() -> None:
    pair = Network.pair("ebms2", SPLIT)
    with pytest.raises(InvalidValue, match=r"no more than 1,000 are agreed") as caught:
        submit(pair, DATA)
    assert "wire.extensions" in caught.value.remedy
    service = Service("urn:test:orders")
    order = Submission("alpha-beta", service, "New", (Payload.of("o", "text/plain", DATA),))
    pair = Network.pair("window", SPLIT)
    with pytest.raises(InvalidValue, match="missed by nobody"):
        pair.alpha.submit(replace(order, best_effort=True))


def test_a_submission_that_is_repeated_is_the_same_document() -> None:
    pair = Network.pair("window", SPLIT)
    submit(pair, DATA)
    submit(pair, DATA)
    assert len(taken(pair)) == 1
    with pytest.raises(InvalidValue, match="used for another"):
        submit(pair, DATA + b"!")


def test_what_follows_on_an_ordered_channel_comes_after_it() -> None:
    pair = Network.pair("window", SPLIT)
    for number in range(3):
        submit(pair, DATA, message_id=f"doc-{number}@alpha")
        pair.send(number)
    order = [given.message_id for given in taken(pair)]
    expected = [name for n in range(3) for name in (f"doc-{n}@alpha", f"order-{n}@alpha")]
    assert order == expected
    clean(pair)


def test_what_follows_on_another_channel_need_not_wait_for_it() -> None:
    pair = Network.pair("window", SPLIT + "[sequence]\nordered = false\n")
    pair.carrying = False
    submit(pair, DATA * 5)
    pair.send(1)
    went: list[str] = []
    while pair.kept:
        name, action = pair.kept.pop(0)
        if isinstance(action, Post):
            went.append(action.message_id)
        pair.carry(name, action)
    assert went.index("order-1@alpha") < 15
    assert len(went) == 49
    assert {given.message_id for given in taken(pair)} == {"doc@alpha", "order-1@alpha"}
    clean(pair)


@pytest.mark.requirement("SEQ-5", "SEQ-8")
@pytest.mark.parametrize("before", range(1, 7))
def test_what_has_no_timestamp_of_its_hop_waits_for_the_parts_before_it(before: int) -> None:
    """In v0-078 a message has its own timestamp only: a part is older than a message that was
    submitted after its document, and would look like a straggler as the first after a wrap."""
    few = "[sequence]\nordered = false\nrange = [1, 6]\n"
    pair = Network.pair("rm-0.78", SPLIT + few)
    pair.carrying = False
    submit(pair, DATA[:7_000])
    went: list[str] = []
    while pair.kept:
        name, action = pair.kept.pop(0)
        if isinstance(action, Post):
            went.append(action.message_id)
            if len(went) == before:
                pair.send(1)
        pair.carry(name, action)
    stamps = [kept.facts.timestamp for kept in map(pair.stored, went)]
    assert stamps == sorted(stamps)
    assert {given.message_id for given in taken(pair)} == {"doc@alpha", "order-1@alpha"}
    clean(pair)


@pytest.mark.parametrize(
    ("certain", "outcome"), [(True, OutgoingState.NOT_DELIVERED), (False, OutgoingState.UNKNOWN)]
)
def test_an_operator_gives_a_document_up_with_its_parts(
    certain: bool, outcome: OutgoingState
) -> None:
    """Where a part certainly never got there nobody can have put the document together."""
    pair = Network.pair("ms-0.9x", SPLIT)
    pair.lose_request = lambda post: Transmission(
        post.message_id, post.attempt, sent=False, certain=certain
    )
    submit(pair, DATA[:5_000])
    assert len(pair.posts) == 5
    pair.alpha.abandon("doc@alpha")
    pair.settle("alpha")
    assert [notice.message_id for notice in pair.notices] == ["doc@alpha"]
    assert {kept.outgoing.state for kept in sent(pair).values()} == {outcome}


def test_an_operator_has_a_document_go_on_by_its_own_id() -> None:
    away = [True]
    pair = Network.pair("ms-0.9x", SPLIT, lose_request=lambda post: away[0])
    submit(pair, DATA)
    away.clear()
    away.append(False)
    pair.pass_time(SECOND)
    assert taken(pair) == []
    pair.alpha.resume(message_id="doc@alpha")
    pair.pass_time(SECOND)
    assert [given.message_id for given in taken(pair)] == ["doc@alpha"]
    clean(pair)


def test_a_document_that_failed_is_not_resumed() -> None:
    pair = Network.pair("ms-0.9x", SPLIT, lose_request=lambda post: True)
    submit(pair, DATA)
    pair.alpha.abandon("doc@alpha")
    pair.settle("alpha")
    with pytest.raises(NotAllowed, match="ended as"):
        pair.alpha.resume(message_id="doc@alpha")


def test_no_part_of_a_document_that_failed_is_resumed_and_its_incident_can_be_closed() -> None:
    once = '[delivery]\nretries = 0\non_exhausted = "fail_message"\n'
    pair = Network.pair("ms-0.9x", SPLIT + once, lose_request=lambda post: True)
    submit(pair, DATA)
    pair.pass_time(HOUR)
    (part_id, *_) = [each.message_id for each in pair.incidents()]
    assert part_id not in (None, "doc@alpha")
    before = pair.kinds("alpha")
    with pytest.raises(NotAllowed, match="document doc@alpha ended as"):
        pair.alpha.resume(message_id=part_id)
    pair.alpha.abandon(part_id)
    pair.settle("alpha")
    assert part_id not in [each.message_id for each in pair.incidents()]
    assert Counter(pair.kinds("alpha")) - Counter(before) == {"resolved": 1}


@pytest.mark.requirement("BIG-6")
def test_a_part_that_is_given_up_gives_up_its_document_and_the_other_parts() -> None:
    flow = '[flow]\nmode = "window"\nwindow = 8\n[sequence]\nnumbered = false\nordered = false\n'
    pair = Network.pair("rm-0.78", SPLIT + flow, lose_request=lambda post: True)
    submit(pair, DATA[:5_000])
    pair.pass_time(*[MINUTE] * 30)
    (part_id,) = [each.message_id for each in pair.incidents()]
    assert part_id is not None
    pair.alpha.abandon(part_id)
    pair.settle("alpha")
    assert pair.incidents() == []
    assert {kept.outgoing.state for kept in sent(pair).values()} <= FINAL_OUTGOING
    assert [notice.message_id for notice in pair.notices] == ["doc@alpha"]


@pytest.mark.requirement("BIG-6")
def test_what_is_whole_stays_whole_whatever_comes_after_it() -> None:
    pair = Network.pair("window", SPLIT)
    submit(pair, DATA)
    assert len(taken(pair)) == 1
    pair.crash("beta")
    pair.pass_time(*[HOUR] * 3)
    assert taken(pair) == []
    assert pair.kinds("beta").count("joined") == 1
    with pair.beta.context.store.reader() as reader:
        document = reader.document("urn:test:alpha", "doc@alpha")
    assert document is not None
    assert document.state is DocumentState.WHOLE


@pytest.mark.requirement("OPS-2", "BIG-6")
@pytest.mark.parametrize(("profile", "extra"), [way for way in WAYS if way[0] != "rm-0.78"])
def test_its_receiver_says_what_became_of_a_document_that_is_whole(
    profile: str, extra: str
) -> None:
    pair = Network.pair(profile, extra)
    pair.lose_request = lambda post: True
    submit(pair, DATA[:2_500])
    with pytest.raises(InvalidValue, match="until it is whole") as refused:
        pair.alpha.ask_status("doc@alpha")
    assert "oncewire ask 1-of-3.doc@alpha" in refused.value.remedy
    pair.lose_request = lambda post: False
    pair.pass_time()
    assert sent(pair)["doc@alpha"].outgoing.state is OutgoingState.DELIVERED
    for status in (MessageStatus.RECEIVED, MessageStatus.PROCESSED):
        pair.alpha.ask_status("doc@alpha")
        pair.settle("alpha")
        told = pair.told[-1].response
        assert (told.ref_to_message_id, told.status) == ("doc@alpha", status)
        assert told.timestamp is not None
        taken(pair)
    assert pair.verify().clean


def test_a_document_that_cannot_be_given_up_keeps_nobody_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Network.pair("ebms2", EBMS2.replace(', "compression"', ""))
    pair.lose_request = lambda post: post.message_id.startswith("2-of-3")
    for number in (1, 2):
        pair.send(number, bytes(3000))
    give_up = joining._give_up

    def damaged(context: object, tx: object, document: SplitDocument, error: EbxmlError) -> None:
        if document.split_id == "order-1@alpha":
            raise StoreDamaged("its parts cannot be read")
        give_up(context, tx, document, error)  # type: ignore[arg-type]

    monkeypatch.setattr(joining, "_give_up", damaged)
    with monkeypatch.context() as patch:
        # Retention forgets what was given up.
        patch.setattr(retention, "sweep", lambda *_: None)
        pair.pass_time(400 * DAY)
    with pair.beta.context.store.reader() as reader:
        found = [reader.document("urn:test:alpha", f"order-{number}@alpha") for number in (1, 2)]
    assert [each and each.state for each in found] == [DocumentState.OPEN, DocumentState.FAILED]

"""Ids that are used for two things: nothing is joined that was not split, and nothing vanishes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.journal.check import check_journal
from oncewire.message.envelope import TRIAL_ACTION, TRIAL_MARK, TRIAL_SERVICE, Split
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.instant import DAY, HOUR
from oncewire.protocol.documents import DocumentState
from oncewire.protocol.states import Incoming, IncomingEvent, IncomingState
from oncewire.wire import codec
from tests.handler.documents.test_bounds import refusals
from tests.handler.documents.test_life import EBMS2, SPLIT, taken
from tests.handler.network import Network, agreement_text

DOC = "doc@alpha"


class Posting(Network):
    """A pair of which a stranger to all rules plays the sender."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.send(0, b"whole")
        self.plain = self.line[0].message
        taken(self)
        self._stamp = 0

    def post(
        self, message_id: str, split: tuple[str, int, int] | None = None, **header: object
    ) -> str:
        """Have beta take a message; the errors that it answers with, in words."""
        plain, self._stamp = self.plain, self._stamp + 1
        made = structs.replace(
            plain.header,
            message_id=message_id,
            timestamp=plain.header.timestamp + self._stamp,
            split=None if split is None else Split(*split),
            **header,  # type: ignore[arg-type]
        )
        (deal,) = self.alpha.context.agreements
        message = structs.replace(plain, header=made)
        before = len(self.answers)
        answer = self.deliver("beta", codec.write(message, deal.form))
        said = self.answers[before:]
        if answer.parcel is not None:
            said.append(b"".join(part for part in answer.parcel.body if isinstance(part, bytes)))
        told = b"".join(said)
        return next(
            (code for code in ("Inconsistent", "ValueNotRecognized") if code.encode() in told), ""
        )

    def state(self, split_id: str = DOC) -> DocumentState | None:
        with self.beta.context.store.reader() as reader:
            document = reader.document("urn:test:alpha", split_id)
        return None if document is None else document.state


def names(pair: Network) -> list[str]:
    return [given.message_id for given in taken(pair)]


@pytest.fixture
def pair() -> Posting:
    return Posting.pair("ms-0.9x", SPLIT)


@pytest.mark.requirement("BIG-6")
@pytest.mark.parametrize(
    "split", [None, ("other@alpha", 1, 2), (DOC, 2, 2)], ids=["whole", "part", "its own part"]
)
def test_a_message_under_the_id_of_a_document_that_is_gathered_is_refused(
    pair: Posting, split: tuple[str, int, int] | None
) -> None:
    assert pair.post("p1@alpha", (DOC, 1, 2)) == ""
    assert pair.post(DOC, split) == "Inconsistent"
    assert pair.post("p2@alpha", (DOC, 2, 2)) == ""
    assert names(pair) == [DOC]
    assert pair.state() is DocumentState.WHOLE
    with pair.beta.context.store.reader() as reader:
        report = check_journal(reader.journal_since(0, 1_000), healed=False)
    assert report.clean, report


@pytest.mark.requirement("BIG-6")
def test_a_part_whose_message_id_is_its_split_id_is_refused(pair: Posting) -> None:
    assert pair.post(DOC, (DOC, 1, 1)) == "Inconsistent"
    assert "is the SplitId of a document" in refusals(pair)
    assert names(pair) == []
    assert pair.state() is None


@pytest.mark.requirement("BIG-6")
def test_a_document_whose_id_was_taken_meanwhile_fails_and_says_so(pair: Posting) -> None:
    pair.post("p1@alpha", (DOC, 1, 2))
    with pair.beta.context.transition() as tx:
        # As a version left it that did not look.
        first = tx.incoming("urn:test:alpha", "p1@alpha")
        assert first is not None
        facts = structs.replace(first.facts, split_id=None, split_number=None, split_total=None)
        other = Incoming("urn:test:alpha", DOC, "another", first.incoming.terms_id, 1)
        ready = other.moved(IncomingEvent.ARRIVED, IncomingState.REFUSED)
        tx.add_incoming(structs.replace(first, incoming=ready, facts=facts))
    assert pair.post("p2@alpha", (DOC, 2, 2)) == "Inconsistent"
    assert pair.state() is DocumentState.FAILED
    assert "is the id of another message" in refusals(pair)
    assert names(pair) == []


@pytest.mark.requirement("BIG-6", "STO-7")
@pytest.mark.parametrize("gone", ["order-0@alpha", DOC])
def test_a_document_under_an_id_that_retention_removed_is_refused(pair: Posting, gone: str) -> None:
    for number in (1, 2):
        assert pair.post(f"p{number}@alpha", (DOC, number, 2)) == ""
    assert names(pair) == [DOC]
    pair.pass_time(365 * DAY)
    pair.pass_time(HOUR)
    with pair.beta.context.transition() as tx:
        assert tx.incoming("urn:test:alpha", gone) is None
        assert tx.document("urn:test:alpha", gone) is None
    late = pair.post("late@alpha", (gone, 1, 2), time_to_live=None)
    assert late == "Inconsistent"
    assert f"SplitId {gone} is the id of another message or document" in refusals(pair)
    with pair.beta.context.transition() as tx:
        assert list(tx.open_documents()) == []


@pytest.mark.requirement("BIG-4", "BIG-6")
@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("action", "Cancel", "Action"),
        ("service", Service("urn:test:returns"), "Service"),
        ("conversation_id", "other talk", "ConversationId"),
        ("ref_to_message_id", "order-0@alpha", "RefToMessageId"),
    ],
)
def test_a_part_with_another_header_than_its_document_is_refused(
    pair: Posting, name: str, value: object, word: str
) -> None:
    pair.post("p1@alpha", (DOC, 1, 2))
    pair.crash("beta")
    assert pair.post("p2@alpha", (DOC, 2, 2), **{name: value}) == "Inconsistent"
    assert f"says another {word}" in refusals(pair)
    assert pair.state() is DocumentState.OPEN
    assert pair.post("p3@alpha", (DOC, 2, 2)) == ""
    assert names(pair) == [DOC]


def test_a_part_under_another_agreement_than_its_document_is_refused(pair: Posting) -> None:
    (deal,) = pair.beta.context.agreements
    second = read_toml(agreement_text("beta", "alpha", "ms-0.9x", SPLIT))
    other = replace(second, cpa_id="other deal")
    pair.beta.context.agreements = Agreements([deal, other])
    pair.post("p1@alpha", (DOC, 1, 2))
    assert pair.post("p2@alpha", (DOC, 2, 2), cpa_id="other deal") == "Inconsistent"
    assert "says another CPAId" in refusals(pair)


def test_parts_of_two_senders_are_two_documents(pair: Posting) -> None:
    gamma = PartyId("urn:test:gamma")
    (deal,) = pair.beta.context.agreements
    partner = replace(deal.partner, party=Party((gamma,)))
    pair.beta.context.agreements = Agreements(
        [deal, replace(deal, cpa_id="gamma", partner=partner)]
    )
    pair.post("p1@alpha", (DOC, 1, 2))
    other = {"cpa_id": "gamma", "from_party": Party((gamma,))}
    assert pair.post("p2@gamma", (DOC, 2, 2), **other) == ""
    assert names(pair) == []
    assert pair.post("p1@gamma", (DOC, 1, 2), **other) == ""
    assert pair.post("p2@alpha", (DOC, 2, 2)) == ""
    assert names(pair) == [DOC, DOC]


@pytest.mark.requirement("BIG-6")
def test_a_copy_of_a_part_is_a_copy_also_where_repeats_pass() -> None:
    loose = '[duplicate]\nelimination = "never"\n[best_effort]\nfilter = false\n'
    never = loose + '[ack]\nrequest = "never"\n[delivery]\nreliable = false\n'
    pair = Posting.pair("ebms2", EBMS2 + never)
    for _ in range(2):
        pair.post("p1@alpha", (DOC, 1, 2), duplicate_elimination=False)
    with pair.beta.context.transition() as tx:
        assert [document.key for document in tx.open_documents()] == [("urn:test:alpha", DOC)]
    pair.post("p2@alpha", (DOC, 2, 2), duplicate_elimination=False)
    assert names(pair) == [DOC]


@pytest.mark.parametrize("number", [1, 2])
def test_no_business_hides_behind_the_name_of_a_trial_as_its_document(
    pair: Posting, number: int
) -> None:
    hidden = f"{TRIAL_MARK}hidden@alpha"
    assert pair.post(f"p{number}@alpha", (hidden, number, 2)) == "ValueNotRecognized"
    assert "trial" in refusals(pair)
    assert pair.state(hidden) is None


@pytest.mark.parametrize("split_id", [DOC, f"{TRIAL_MARK}doc@alpha"])
def test_a_trial_is_never_a_part(pair: Posting, split_id: str) -> None:
    trial = {"service": TRIAL_SERVICE, "action": TRIAL_ACTION}
    told = pair.post(f"{TRIAL_MARK}p1@alpha", (split_id, 1, 2), **trial)
    assert told == "ValueNotRecognized"
    assert "no part" in refusals(pair)
    assert pair.state(split_id) is None

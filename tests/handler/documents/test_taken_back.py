"""What hubs said of parts, and take back: a document is not there without each of its parts."""

from __future__ import annotations

import itertools
import random

import pytest

from oncewire.errors import NotAllowed, TransientError
from oncewire.handler.actions import Post
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.envelope import (
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    Payload,
    StatusResponse,
)
from oncewire.message.form import Dialect
from oncewire.message.ids import Party, Service
from oncewire.message.instant import MINUTE
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from tests.handler.network import START, Network

SPLIT = '[payload]\nmax_size = 1000\n[wire]\nextensions = ["split"]\n'
MID = "[payload]\nmax_size = 1000\n"
DOCUMENT = "doc@alpha"
VIA = '[via]\nparty_id = "urn:test:hub"\nuri = "http://hub/msh"\nhttp = "http://hub/msh"\n'


class Sender(Network):
    """alpha, whose partner is behind a hub; both say what a test lets them say."""

    @classmethod
    def of(cls, profile: str, extra: str, length: int = 2_500) -> Sender:
        sender = cls.pair(
            profile,
            VIA + extra,
            hears=False,
            lose_request=lambda post: Transmission(post.message_id, post.attempt, sent=True),
        )
        sender.said = itertools.count(1)
        payload = Payload.of("scan", "text/plain", random.Random(7).randbytes(length))
        sender.send(payloads=(payload,), message_id=DOCUMENT)
        sender.parts = tuple(sender.attempts)
        return sender

    @property
    def attempts(self) -> list[str]:
        return [post.message_id for post in self.seen(Post, "alpha")]

    @property
    def told(self) -> list[str]:
        return [notice.message_id for notice in self.notices]

    def has(self, who: str, *message_ids: str) -> None:
        """Somebody says that he has those."""
        for message_id in message_ids:
            status = StatusResponse(message_id, MessageStatus.RECEIVED, START)
            header = self._header(who, "StatusResponse", "question@alpha")
            kind = MessageKind.STATUS_RESPONSE
            self._hear(Message(Dialect.EBMS2, kind, header, status_response=status))

    def fails(self, who: str, message_id: str, error: Error | None = None) -> None:
        """Somebody says that one could not be delivered, or what else is wrong with it."""
        errors = ErrorList((error or Error("DeliveryFailure", description="no way"),))
        header = self._header(who, "MessageError", message_id)
        self._hear(Message(Dialect.EBMS2, MessageKind.ERROR, header, error_list=errors))

    def _header(self, who: str, action: str, ref_to: str) -> Header:
        return Header(
            from_party=Party.of(f"urn:test:{who}"),
            to_party=Party.of("urn:test:alpha"),
            cpa_id="alpha-beta",
            conversation_id="talk",
            service=Service("urn:oasis:names:tc:ebxml-msg:service"),
            action=action,
            message_id=f"{next(self.said)}@{who}",
            timestamp=START,
            ref_to_message_id=ref_to,
        )

    def _hear(self, message: Message) -> None:
        (deal,) = self.agreements["alpha"]
        self.deliver("alpha", codec.write(message, deal.form))

    def clean(self) -> bool:
        return self.verify(healed=False).clean


@pytest.mark.requirement("HOP-9", "BIG-6")
def test_other_parts_do_not_deliver_what_lacks_one() -> None:
    sender = Sender.of("ebms2", SPLIT)
    sender.has("hub", *sender.parts)
    assert sender.state(DOCUMENT) is OutgoingState.DELIVERED
    sender.fails("hub", sender.parts[1])
    assert sender.state(DOCUMENT) is OutgoingState.NOT_DELIVERED
    sender.has("beta", sender.parts[2], sender.parts[0])
    assert sender.state(DOCUMENT) is OutgoingState.NOT_DELIVERED
    assert sender.told == [DOCUMENT]
    # Its receiver has the missing one too: then it has the document.
    sender.has("beta", sender.parts[1])
    assert sender.state(DOCUMENT) is OutgoingState.DELIVERED
    assert sender.clean()


@pytest.mark.requirement("HOP-9", "BIG-6")
def test_a_document_is_no_better_proved_than_its_parts() -> None:
    sender = Sender.of("ebms2", SPLIT)
    sender.has("hub", *sender.parts[:2])
    sender.has("beta", sender.parts[2])
    sender.fails("hub", sender.parts[0])
    assert sender.state(DOCUMENT) is OutgoingState.NOT_DELIVERED
    assert sender.clean()


@pytest.mark.requirement("HOP-9")
@pytest.mark.parametrize("index_first", [False, True])
def test_an_index_alone_delivers_no_document(index_first: bool) -> None:
    sender = Sender.of("nhs-fragments", MID)
    sender.has("hub", *sender.parts)
    assert sender.attempts[-1] == DOCUMENT
    if index_first:
        sender.has("beta", DOCUMENT)
        assert sender.state(DOCUMENT) is OutgoingState.DELIVERED
    sender.fails("hub", sender.parts[1])
    assert sender.state(DOCUMENT) is OutgoingState.NOT_DELIVERED
    if not index_first:
        sender.has("beta", DOCUMENT)
        assert sender.state(DOCUMENT) is OutgoingState.NOT_DELIVERED
    assert sender.told == [DOCUMENT]
    # Nor is it named again to anybody.
    for message_id in (DOCUMENT, sender.parts[1]):
        with pytest.raises(NotAllowed, match="send the document anew"):
            sender.alpha.resume(message_id=message_id)
    sender.has("beta", sender.parts[1])
    assert sender.state(DOCUMENT) is OutgoingState.DELIVERED
    assert sender.clean()


@pytest.mark.requirement("HOP-9")
def test_a_hub_that_takes_the_index_back_too_has_said_nothing() -> None:
    sender = Sender.of("nhs-fragments", MID)
    sender.has("hub", *sender.parts)
    sender.fails("hub", sender.parts[1])
    sender.has("hub", DOCUMENT)
    sender.fails("hub", DOCUMENT)
    sender.has("beta", sender.parts[1])
    assert sender.state(DOCUMENT) is OutgoingState.NOT_DELIVERED
    assert sender.clean()


def test_a_fragment_is_taken_back_while_its_index_waits_for_the_operator() -> None:
    sender = Sender.of(
        "nhs-fragments",
        MID + '[delivery]\non_exhausted = "suspend_channel"\npersist_duration = "PT10H"\n'
        'retries = 1\nretry_interval = "PT1M"\n',
    )
    sender.has("hub", *sender.parts)
    sender.pass_time(MINUTE)
    sender.pass_time(MINUTE)
    assert sender.state(DOCUMENT) is OutgoingState.SUSPENDED
    sender.fails("hub", sender.parts[1])
    assert sender.state(DOCUMENT) is OutgoingState.NOT_DELIVERED
    assert sender.told == [DOCUMENT]
    assert sender.incidents() == []


def test_fragments_do_not_deliver_what_names_them_while_it_waits() -> None:
    sender = Sender.of("nhs-fragments", MID + '[wire]\nextensions = ["transient_error"]\n')
    sender.has("hub", *sender.parts[:-1])
    later = Error(TransientError.code, min_retry_secs=120)
    sender.fails("beta", sender.parts[-1], later)
    sender.has("hub", sender.parts[-1])
    assert DOCUMENT not in sender.attempts
    sender.has("beta", *sender.parts)
    assert sender.state(DOCUMENT) is OutgoingState.OUTSTANDING
    for _ in range(3):
        sender.pass_time(MINUTE)
    assert sender.attempts[-1] == DOCUMENT
    sender.has("beta", DOCUMENT)
    assert sender.state(DOCUMENT) is OutgoingState.DELIVERED
    assert sender.clean()


@pytest.mark.parametrize("number", range(1, 8))
def test_a_part_that_is_dropped_can_be_added_again(number: int) -> None:
    document = SplitDocument("", "doc", 7, "terms", START)
    for done in range(1, 8):
        document = document.add(done)
    without = document.drop(number)
    assert [*without.missing] == [number]
    assert without.drop(number) == without
    assert without.add(number) == document


@pytest.mark.requirement("HOP-9", "STO-8")
def test_a_slow_document_is_kept_for_what_is_heard_of_its_last_part() -> None:
    more = '[delivery]\npersist_duration = "PT2H"\nretries = 3\nkeep = "PT0S"\n'
    sender = Sender.of("ebms2", SPLIT + more, length=40_000)
    heard: dict[str, None] = {}
    while len(heard) < 40:
        fresh = [name for name in dict.fromkeys(sender.attempts) if name not in heard]
        sender.pass_time(50 * MINUTE)
        sender.has("hub", *fresh)
        heard.update(dict.fromkeys(fresh))
    assert sender.state(DOCUMENT) is OutgoingState.DELIVERED
    # Everything is swept that nobody needs any more.
    sender.pass_time(60 * MINUTE)
    sender.fails("hub", [*heard][-1])
    assert sender.state(DOCUMENT) is OutgoingState.NOT_DELIVERED
    assert sender.told == [DOCUMENT]

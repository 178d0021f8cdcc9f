"""What ebMS 2.0 forbids between elements of one message, without knowing the agreement.

The reader answers a broken rule with the error given here; the writer refuses to break it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oncewire.errors import EbxmlError, Inconsistent
from oncewire.message import (
    AckRequested,
    Actor,
    DeliverySemantics,
    Message,
    MessageKind,
    SequenceStatus,
    Severity,
)
from oncewire.wire.ebms2 import names as n


def semantics(
    asked: Iterable[AckRequested], *, duplicate_elimination: bool
) -> DeliverySemantics | None:
    """What the elements say together; None for the combinations in between (§6.6)."""
    # Rows 1 and 2 of the table are once-and-only-once, row 8 best effort. A filter alone, or
    # acknowledgements alone, are neither (C1).
    actors = [request.actor for request in asked]
    if not actors:
        return None if duplicate_elimination else DeliverySemantics.BEST_EFFORT
    if duplicate_elimination and Actor.TO_PARTY_MSH in actors:
        return DeliverySemantics.ONCE_AND_ONLY_ONCE
    return None


def broken(message: Message) -> Iterator[EbxmlError]:
    """Each rule the message breaks, as the error that answers it."""
    if message.order is not None:
        yield from _order(message)
    if len(message.ack_requested) > 1 or len(message.acknowledgments) > 1:
        yield from _one_per_actor(message)
    if message.error_list is not None:
        yield from _error_list(message)
    # §7.2: a question stands alone, so that it can be answered without taking anything in.
    if message.status_request is not None and (message.manifest or message.status_response):
        yield Inconsistent(
            "StatusRequest travels with a Manifest or a StatusResponse",
            location="//Body/StatusRequest",
            remedy="ask in a message of its own",
        )
    if message.kind is not MessageKind.NORMAL:
        yield from _signal(message)


def _order(message: Message) -> Iterator[EbxmlError]:
    order = message.order
    if order is None:
        return
    # These locations avoid the word SequenceNumber, which tells a sender to fill a gap.
    location = "//Header/MessageOrder"
    header = message.header
    # The answer would have to wait for messages before it while its connection is held open (§9).
    if header.asks_sync_reply:
        yield Inconsistent(
            "MessageOrder travels with SyncReply",
            location=location,
            remedy="an ordered message is answered asynchronously (§9.1.2)",
        )
    # A receiver that forgot the old numbers has no other sign where the new ones begin.
    if order.status is SequenceStatus.RESET and order.number != 0:
        yield Inconsistent(
            f"status Reset comes with number {order.number}",
            location=location,
            remedy="a reset starts at 0 (§9.1.1)",
        )
    # Both sides must wrap at the same number, or one waits for ever (§9.1.1).
    if order.number > n.SEQUENCE_MAX:
        yield Inconsistent(
            f"number {order.number} is beyond {n.SEQUENCE_MAX}",
            location=location,
            remedy=f"wrap to 0 after {n.SEQUENCE_MAX}",
        )
    # A number may neither get lost nor come twice: without retries a gap stays, without the filter
    # a number repeats.
    if header.semantics is not DeliverySemantics.ONCE_AND_ONLY_ONCE:
        yield Inconsistent(
            "MessageOrder comes without DuplicateElimination and AckRequested of the To Party",
            location=location,
            remedy="order needs once-and-only-once delivery (§9.1)",
        )


def _one_per_actor(message: Message) -> Iterator[EbxmlError]:
    """One per actor (§6.3.1.1, §6.3.2.1): two could ask for different things."""
    for name, actors in (
        ("AckRequested", [request.actor for request in message.ack_requested]),
        ("Acknowledgment", [answer.actor for answer in message.acknowledgments]),
    ):
        for actor in Actor:
            if actors.count(actor) > 1:
                yield Inconsistent(
                    f"two {name} elements have the same actor",
                    location=f"//Header/{name}",
                    remedy=f"send one {name} per actor",
                )


def _error_list(message: Message) -> Iterator[EbxmlError]:
    location = "//Header/ErrorList"
    if message.error_list is None:
        return
    # What failed has no result to report beside it; a warning may ride on anything but a question
    # (§5).
    serious = message.error_list.highest_severity is Severity.ERROR
    if serious and (message.manifest or message.status_response is not None):
        yield Inconsistent(
            "an ErrorList of severity Error travels with a Manifest or a StatusResponse",
            location=location,
            remedy="report it in a message of its own (§4.2.4)",
        )
    # Not even a warning travels with a question (§7.2).
    if message.status_request is not None:
        yield Inconsistent(
            "an ErrorList travels with a StatusRequest",
            location=location,
            remedy="report it in a message of its own (§4.2.4)",
        )


def _signal(message: Message) -> Iterator[EbxmlError]:
    """A signal must bring what its Action announces, or there is nothing to act on."""
    kind = message.kind
    if kind is MessageKind.STATUS_REQUEST and message.status_request is None:
        yield Inconsistent(
            "the Action is StatusRequest, but there is no StatusRequest element",
            location="//Body/StatusRequest",
            remedy="name the message asked about",
        )
    if kind is MessageKind.STATUS_RESPONSE and message.status_response is None:
        yield Inconsistent(
            "the Action is StatusResponse, but there is no StatusResponse element",
            location="//Body/StatusResponse",
            remedy="say what became of the message",
        )
    if kind is MessageKind.ERROR and message.error_list is None:
        yield Inconsistent(
            "the Action is MessageError, but there is no ErrorList",
            location="//Header/ErrorList",
            remedy="report at least one Error",
        )
    # Only a question answers nothing (§3.1.6.3). Some send the reference in the Acknowledgment
    # alone, and mean the same by it.
    needs_ref = kind not in (MessageKind.PING, MessageKind.STATUS_REQUEST)
    if needs_ref and message.header.ref_to_message_id is None and not message.acknowledgments:
        yield Inconsistent(
            f"a {kind.value} names no RefToMessageId",
            location="//Header/MessageHeader/MessageData/RefToMessageId",
            remedy="name the message it answers",
        )

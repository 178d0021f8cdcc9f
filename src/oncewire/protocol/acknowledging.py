"""Acknowledgements owed, and the answer a duplicate gets.

Whether an acknowledgement is owed follows from the message being reliable, not from its
asking for one; asking decides only whether the Acknowledgment *element* is in it, and
whether it is signed (C11).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oncewire.errors import NotSupported
from oncewire.message.acknowledgment import Actor
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.header import AckRequest, ReliableMessagingMethod
from oncewire.message.instant import Duration
from oncewire.protocol.terms import (
    AckBundling,
    DuplicateAnswer,
    NoResponse,
    ReceiptProvided,
    Terms,
)


@dataclass(frozen=True, slots=True)
class AckOwed:
    """What the acknowledgement of one message must contain."""

    owed: bool
    # What was asked of the To Party's handler and of the next handler.
    receipt: AckRequest = AckRequest.NONE
    hop_receipt: AckRequest = AckRequest.NONE

    @property
    def signed(self) -> bool:
        """Whether any of them must be signed."""
        return AckRequest.SIGNED in (self.receipt, self.hop_receipt)

    @property
    def element(self) -> bool:
        """Whether an Acknowledgment element was asked for at all (ACK-14, ACK-15)."""
        return self.receipt is not AckRequest.NONE or self.hop_receipt is not AckRequest.NONE


NOTHING_OWED = AckOwed(False)


def ack_owed(message: Message, terms: Terms, *, final: bool) -> AckOwed:
    """What this handler owes for a message; `final`: it acts for the To Party.

    Nothing is ever owed for an acknowledgement or another signal (ACK-9), nor where the
    transport was trusted with the reliability (RM-7). Whether the message is reliable is for
    the terms to say: they hold what header and agreement make of it together (CPA-8).
    """
    if message.kind is not MessageKind.NORMAL and message.kind is not MessageKind.ERROR:
        return NOTHING_OWED
    if not terms.runs_protocol:
        return NOTHING_OWED
    hop = message.last_hop
    if hop is not None and hop.method is ReliableMessagingMethod.TRANSPORT:
        return NOTHING_OWED
    receipt = message.asks_ack_of(Actor.TO_PARTY_MSH) if final else AckRequest.NONE
    return AckOwed(True, receipt, message.asks_ack_of(Actor.NEXT_MSH))


def check_receipt(message: Message, terms: Terms) -> None:
    """Refuse a receipt the agreement says we cannot give (CPA-14)."""
    asked = message.header.delivery_receipt_requested
    if asked is None or asked is AckRequest.NONE:
        return
    provided = terms.receipt_provided
    if provided is ReceiptProvided.BOTH or provided.value == asked.value:
        return
    raise NotSupported(
        f"a delivery receipt of kind {asked.value} is asked for, {provided.value} is provided",
        location="//deliveryReceiptRequested",
    )


def ride_patience(terms: Terms) -> Duration:
    """How long the acknowledgement of a message waits for a response to ride on (ACK-16, C13).

    0: it leaves at once. It never waits so long that its sender would resend meanwhile; by
    itself `auto` waits only as long as was agreed, `piggyback` as long as it can.
    """
    if not terms.runs_protocol or terms.ack_bundling is AckBundling.STANDALONE:
        return 0
    longest = terms.timeout // 2
    if terms.ack_bundling is AckBundling.PIGGYBACK and not terms.ack_wait:
        return longest
    return min(terms.ack_wait, longest)


class DuplicateReply(StrEnum):
    """What to send in answer to a duplicate (C14, C16)."""

    STORED_ANSWER = "the answer first given"
    FIRST_RESPONSE = "the response first sent"
    LATEST_RESPONSE = "the most recent response"
    NEW_ACK = "a new acknowledgement"
    NOTHING = "nothing"


def answer_duplicate(
    terms: Terms, *, answered: bool, responded: bool, owed: bool, kept: bool = False
) -> DuplicateReply:
    """Choose the reply. `answered`: an answer is stored with the message, be it an
    acknowledgement or the response that carried it; `responded`: business responses to it
    were sent; `owed`: an acknowledgement is owed at all; `kept`: an answer is stored, though
    it may be a response that failed and is not said again."""
    if terms.duplicate_answer is DuplicateAnswer.MOST_RECENT and responded:
        return DuplicateReply.LATEST_RESPONSE
    if answered:
        # v0-078's "an ack again" is the stored one too: its bytes are the acknowledgement.
        return DuplicateReply.STORED_ANSWER
    if responded:
        return DuplicateReply.FIRST_RESPONSE
    # What is agreed for want of a response (C16) is not meant for one that may not be sent: the
    # acknowledgement that it carried is given without it.
    if owed and (kept or terms.duplicate_no_response is NoResponse.ACK):
        return DuplicateReply.NEW_ACK
    return DuplicateReply.NOTHING

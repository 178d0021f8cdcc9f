"""Accept: what a hub does with a message that it takes, beside what every receiver does.

It goes on to the next hop. Where its connection can carry back what the next hop says, the
connection waits for that (SYNC-11); until then a hub may have nothing to say itself (HOP-4).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, PartyTerms
from oncewire.agreement.resolve import Resolution
from oncewire.errors import Inconsistent
from oncewire.handler.actions import Source
from oncewire.handler.context import HandlerContext
from oncewire.handler.hub.next_hop import send_onward
from oncewire.handler.hub.passing import Upstream, answered_here, pass_again, take_back
from oncewire.handler.sending.answer import NOTHING, Answer, Awaited, post_or_reply
from oncewire.message.envelope import AckRequest, Actor, Message, MessageKind, RoutingHeader
from oncewire.message.ids import Party
from oncewire.protocol.hops import awaits_onward, hop_duty
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.synchronous import SyncPlan, relay_patience
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming
from oncewire.wire.parcel import Received

_GIVEN_UP = (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class HubArrival:
    """One message between the hop it came by and the next."""

    context: HandlerContext
    tx: Transaction
    received: Received
    resolution: Resolution
    source: Source

    @property
    def message(self) -> Message:
        """What it says; a hub verifies nothing of it."""
        return self.received.message

    @property
    def terms(self) -> Terms:
        """The terms of the hop that it came by."""
        return self.resolution.terms

    def keeps_open(self, plan: SyncPlan) -> bool:
        """Whether the connection waits for what the next hop says."""
        return awaits_onward(self.message, hop_duty(self.message, self.terms), plan)

    def kept_open(self, sender: str) -> Answer:
        """Nothing goes back yet."""
        awaited = Awaited(sender, self.message.header.message_id, relay_patience(self.terms))
        return Answer(relayed=awaited)

    def send_on(self, stored: StoredIncoming, ahead: Agreement, *, kept_open: bool) -> None:
        """Store the onward copy and begin its way. What came on a connection of ours leaves on
        the one that waits for it."""
        send_onward(self.context, self.tx, stored, ahead, self.terms if kept_open else None)
        asked = answered_here(self.context, self.tx, self.message, self.source)
        if asked is not None:
            take_back(self.context, asked, self.message.header.message_id)

    def waits_again(self, known: StoredIncoming, plan: SyncPlan) -> bool:
        """Whether a copy's connection waits too: the next hop is still at it, or has spoken,
        what it said was lost on the way back, and it is asked once more."""
        copy = self.tx.outgoing(known.incoming.message_id)
        if not self.keeps_open(plan) or copy is None or copy.outgoing.state in _GIVEN_UP:
            return False
        pass_again(self.context, self.tx, known, self.terms)
        return True

    def ask_again(self, known: StoredIncoming) -> None:
        """A copy that waits for the To Party's own word, which no other handler can repeat."""
        if self.message.asks_ack_of(Actor.TO_PARTY_MSH) is not AckRequest.NONE:
            pass_again(self.context, self.tx, known)

    def until_forwarded(self, stored: StoredIncoming, plan: SyncPlan) -> Answer:
        """Come back later, until the next hop has it; then the acknowledgement (HOP-4)."""
        previous = self._previous(stored, plan)
        return self._say(previous, previous.until_forwarded())

    def given_up(self, stored: StoredIncoming, plan: SyncPlan) -> Answer | None:
        """Responsibility is not taken for what has failed already: its failure is told to the
        copy too (HOP-9). None: it has not failed."""
        previous = self._previous(stored, plan)
        failed = previous.given_up()
        return None if failed is None else self._say(previous, previous.report(failed))

    def _previous(self, stored: StoredIncoming, plan: SyncPlan) -> Upstream:
        agreement, warnings = self.resolution.agreement, self.resolution.warnings
        return Upstream(
            self.context, self.tx, stored, self.received, agreement, self.terms, plan, warnings
        )

    def _say(self, previous: Upstream, answer: StoredAnswer | None) -> Answer:
        if answer is None:
            return previous.come_back() if self.source.can_answer else NOTHING
        kept = answer if answer.kind is MessageKind.ACKNOWLEDGMENT else None
        told = replace(previous.stored, answer=kept)
        return post_or_reply(
            self.context, previous.agreement, told, answer, previous.plan, self.source
        )


# Circles: a message that came through a hub before, and one that has made too many hops.


HOPS_MAX = 16
"""Hops of one message; more handlers than that are not between two parties, but in a circle."""
WAY = "//Header/RoutingHeaderList"


def check_way(message: Message, before: Agreement, ahead: Agreement | None, source: Source) -> None:
    """Refuse to send a message on that would come here again, or that comes from nowhere near.

    The hops that it names tell; where its format names only the last one, or none, what tells is
    that it comes from whom it would be sent to.
    """
    if len(message.routing) > HOPS_MAX:
        raise Inconsistent(
            f"it has made {len(message.routing)} hops, and no more than {HOPS_MAX} are believed",
            location=WAY,
            remedy="look for hubs that send it to each other",
        )
    passed = any(_is_sender(before.own, hop) for hop in message.routing)
    if passed or (ahead is not None and _comes_back(message, before, ahead, source)):
        raise Inconsistent(
            "it was sent on from here before, and has come back: it goes in a circle",
            location=WAY,
            remedy="compare where each hub sends messages for its To Party",
        )


def _is_sender(side: PartyTerms, hop: RoutingHeader) -> bool:
    if hop.sender_uri is not None and hop.sender_uri == side.handler_uri:
        return True
    return hop.sender_id is not None and side.is_named_by(Party((hop.sender_id,)))


def _comes_back(message: Message, before: Agreement, ahead: Agreement, source: Source) -> bool:
    if ahead.partner is before.partner or ahead is before:
        return False
    if message.routing and _is_sender(ahead.partner, message.routing[-1]):
        return True
    if source.certificate is None:
        return False
    shown = hashlib.sha256(source.certificate).hexdigest()
    there, here = ahead.partner.client_certificates, before.partner.client_certificates
    return shown in there and shown not in here

"""Midway: what taking a message in means at a hub, beside what it means for everybody.

It goes on to the next hop. Where its connection can carry back what the next hop says, the
connection waits for that (SYNC-11); until then a hub may have nothing to say itself (HOP-4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.resolve import Resolution
from oncewire.handler.answering.answer import NOTHING, Answer, Awaited, post_or_reply
from oncewire.handler.hub.next_hop import send_onward
from oncewire.handler.hub.passing import answered_here, pass_again
from oncewire.handler.hub.previous import Previous
from oncewire.handler.hub.relay import take_back
from oncewire.handler.node import Node
from oncewire.handler.source import Source
from oncewire.message.acknowledgment import Actor
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.header import AckRequest
from oncewire.protocol.hops import awaits_onward, hop_duty
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.synchronous import SyncPlan, relay_patience
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming
from oncewire.wire.received import Received

_GIVEN_UP = (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Midway:
    """One message between the hop it came by and the next."""

    node: Node
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
        """Those of the hop that it came by."""
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
        send_onward(self.node, self.tx, stored, ahead, self.terms if kept_open else None)
        asked = answered_here(self.node, self.tx, self.message, self.source)
        if asked is not None:
            take_back(self.node, asked, self.message.header.message_id)

    def waits_again(self, known: StoredIncoming, plan: SyncPlan) -> bool:
        """Whether a copy's connection waits too: the next hop is still at it, or has spoken,
        what it said was lost on the way back, and it is asked once more."""
        copy = self.tx.outgoing(known.incoming.message_id)
        if not self.keeps_open(plan) or copy is None or copy.outgoing.state in _GIVEN_UP:
            return False
        pass_again(self.node, self.tx, known, self.terms)
        return True

    def ask_again(self, known: StoredIncoming) -> None:
        """A copy that waits for the To Party's own word, which nobody else can repeat."""
        if self.message.asks_ack_of(Actor.TO_PARTY_MSH) is not AckRequest.NONE:
            pass_again(self.node, self.tx, known)

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

    def _previous(self, stored: StoredIncoming, plan: SyncPlan) -> Previous:
        agreement, warnings = self.resolution.agreement, self.resolution.warnings
        return Previous(
            self.node, self.tx, stored, self.received, agreement, self.terms, plan, warnings
        )

    def _say(self, previous: Previous, answer: StoredAnswer | None) -> Answer:
        if answer is None:
            return previous.come_back() if self.source.can_answer else NOTHING
        kept = answer if answer.kind is MessageKind.ACKNOWLEDGMENT else None
        told = replace(previous.stored, answer=kept)
        return post_or_reply(
            self.node, previous.agreement, told, answer, previous.plan, self.source
        )

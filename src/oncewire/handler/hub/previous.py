"""Previous: what a hub says to the handler that a message came from."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.agreement.agreement import Agreement
from oncewire.errors import InvalidValue
from oncewire.handler.answering.answer import Answer, acknowledge, answer_error, write_answer
from oncewire.handler.node import Node
from oncewire.handler.route import agreement_of_hop
from oncewire.handler.sealing.spooled import read_stored
from oncewire.message.envelope import Message
from oncewire.message.fault import Error, Severity
from oncewire.message.header import AckRequest
from oncewire.message.instant import SECOND
from oncewire.protocol.acknowledging import ack_owed
from oncewire.protocol.hops import HopDuty, answer_previous, hop_duty
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.synchronous import (
    SyncPlan,
    answerable_after_restart,
    late_warning,
    timeout_error,
)
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming
from oncewire.wire.received import Received


@dataclass(frozen=True, slots=True)
class Previous:
    """One message that a hub has in its store, and the hop it came by."""

    node: Node
    tx: Transaction
    stored: StoredIncoming
    received: Received
    agreement: Agreement
    terms: Terms
    plan: SyncPlan
    warnings: tuple[Error, ...] = ()

    @classmethod
    def read(
        cls, node: Node, tx: Transaction, stored: StoredIncoming, plan: SyncPlan
    ) -> Previous | None:
        """Read it again from the store; None where its bytes or its agreement are gone."""
        agreement = agreement_of_hop(node, tx, stored)
        if agreement is None or stored.parcel is None:
            return None
        received = read_stored(node.store.spool, stored.parcel, node.limits)
        terms = node.terms_of(tx, stored.incoming.terms_id)
        return cls(node, tx, stored, received, agreement, terms, plan)

    @property
    def message(self) -> Message:
        """What it says; a hub verifies nothing of it."""
        return self.received.message

    def acknowledge(self, *warnings: Error) -> StoredAnswer:
        """The acknowledgement of this hop, kept for every copy."""
        owed = ack_owed(self.message, self.terms, final=False)
        told = (*self.warnings, *warnings)
        answer = acknowledge(
            self.node, self.message, self.agreement, owed, self.plan, self.received,
            final=False, warnings=told,
        )  # fmt: skip
        incoming = self.stored.incoming
        self.tx.save_answer(incoming.sender, incoming.message_id, answer)
        write_answer(self.node, self.tx, self.stored, answer, told)
        return answer

    def until_forwarded(self) -> StoredAnswer | None:
        """Come back later, until the next hop has it; then the acknowledgement (HOP-4)."""
        copy = self.tx.outgoing(self.stored.incoming.message_id)
        verdict = answer_previous(
            HopDuty.UNTIL_FORWARDED, copy.outgoing if copy else None, self.terms
        )
        if verdict.acknowledge:
            return self.acknowledge()
        return self.report(verdict.error or Error("TransientError", Severity.WARNING))

    def report(self, error: Error) -> StoredAnswer | None:
        """An error that is told once and not kept; None where no message can say it."""
        try:
            return answer_error(self.node, self.message, self.agreement, (error,), self.plan)
        except InvalidValue:
            # ebMS 2.0 has no Transient Error; unless it was agreed, HTTP has to say it.
            return None

    def come_back(self) -> Answer:
        """The same as a Transient Error, in the words of the transport."""
        return Answer(503, retry_after=max(1, self.terms.retry_interval // SECOND))

    def given_up(self) -> Error | None:
        """What became of the next hop, if it is known that nothing will (HOP-9)."""
        copy = self.tx.outgoing(self.stored.incoming.message_id)
        if copy is None or copy.outgoing.state not in (
            OutgoingState.NOT_DELIVERED,
            OutgoingState.UNKNOWN,
        ):
            return None
        certain = copy.outgoing.state is OutgoingState.NOT_DELIVERED
        severity = Severity.ERROR if certain else Severity.WARNING
        return Error("DeliveryFailure", severity, "", copy.outgoing.reason[:300])

    def beside(self, *, relayed: bool) -> StoredAnswer | None:
        """What this hub itself says when the next hop has spoken.

        Its acknowledgement goes along with what is relayed unless only the To Party's was
        asked for: that one is among it, and the initiator has no use for another.
        """
        asked_far = self.terms.ack_requested is not AckRequest.NONE
        asked_here = self.terms.hop_ack_requested is not AckRequest.NONE
        if relayed and asked_far and not asked_here:
            return None
        if self.stored.answer is not None:
            return self.stored.answer
        if hop_duty(self.message, self.terms) is HopDuty.UNTIL_FORWARDED:
            return self.until_forwarded()
        failed = self.given_up()
        # Responsibility is not taken for what has failed already.
        return self.acknowledge() if failed is None else self.report(failed)

    def overdue(self) -> StoredAnswer | None:
        """The next hop did not speak in time (SYNC-17). What may be repeated is stored for good
        and acknowledged; what may not was never promised to anybody."""
        if self.stored.answer is not None:
            return self.stored.answer
        if hop_duty(self.message, self.terms) is HopDuty.UNTIL_FORWARDED:
            return self.until_forwarded()
        failed = self.given_up()
        if failed is None and answerable_after_restart(self.terms):
            return self.acknowledge(late_warning())
        return self.report(failed or timeout_error())

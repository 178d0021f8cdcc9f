"""Request: a stored message that waits for its answer, read again when the answer is there.

Its answer is an acknowledgement, the application's response, or both: in one header, one
after the other in one body, or each on its own, as `ack.bundling` and `sync.bundle` say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncewire.agreement.agreement import Agreement, Direction
from oncewire.agreement.resolve import find_binding
from oncewire.agreement.rules import weigh
from oncewire.errors import EbxmlError
from oncewire.handler.answering.answer import (
    acknowledge,
    acknowledgment_for,
    answer_error,
    post_signal,
    signal_route,
    write_answer,
)
from oncewire.handler.node import Node
from oncewire.handler.route import agreement_of_hop, peer_label
from oncewire.handler.sealing.seal import sealed, whole_parcel
from oncewire.handler.sealing.spooled import read_stored
from oncewire.handler.sending.submit import Submission, agreement_called
from oncewire.message.acknowledgment import Acknowledgment
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.fault import Error
from oncewire.protocol.acknowledging import AckOwed, ack_owed
from oncewire.protocol.synchronous import SyncPlan, awaits_response, ignored_wish
from oncewire.protocol.terms import AckBundling, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming, StoredParcel
from oncewire.wire import codec
from oncewire.wire.received import Received


@dataclass(frozen=True, slots=True)
class Request:
    """One stored message, with everything its answer is made from."""

    node: Node
    tx: Transaction
    stored: StoredIncoming
    received: Received
    agreement: Agreement
    # Those it was accepted under.
    terms: Terms
    owed: AckOwed

    @classmethod
    def read(cls, node: Node, tx: Transaction, stored: StoredIncoming) -> Request | None:
        """None where its bytes or its agreement are gone."""
        agreement = agreement_of_hop(node, tx, stored)
        facts = stored.facts
        joined = facts.split_id == stored.incoming.message_id and facts.split_number is None
        if agreement is None or stored.parcel is None or joined:
            # A document that came in parts was answered with the last of them.
            return None
        received = read_stored(node.store.spool, stored.parcel, node.limits)
        terms = node.terms_of(tx, stored.incoming.terms_id)
        owed = ack_owed(received.message, terms, final=True)
        return cls(node, tx, stored, received, agreement, terms, owed)

    @property
    def message(self) -> Message:
        """What was asked."""
        return self.received.message

    @property
    def plan(self) -> SyncPlan:
        """What its connection was to carry back."""
        return SyncPlan(self.terms.sync_mode)

    @property
    def synchronous(self) -> bool:
        """Whether its response goes back on its own connection."""
        return awaits_response(self.terms)

    @property
    def warnings(self) -> tuple[Error, ...]:
        """What its sender is told beside the answer: differences from the agreement that were
        borne, and a wish that was ignored."""
        try:
            binding = find_binding(self.agreement, Direction.RECEIVE, self.message)
            borne = weigh(binding, self.message).warnings
        except EbxmlError:
            # The agreement has changed since: what was accepted stays accepted.
            borne = ()
        return (*borne, *self.ignored)

    @property
    def ignored(self) -> tuple[Error, ...]:
        """The warning that its wish for a synchronous reply was ignored (SYNC-10)."""
        wish = ignored_wish(self.message, self.terms)
        return () if wish is None else (wish,)

    def is_answered_by(self, response: Submission) -> bool:
        """Whether a submission is a response to it, and goes to the handler it came from."""
        if response.ref_to_message_id != self.stored.incoming.message_id:
            return False
        return peer_label(agreement_called(self.node, response.cpa_id)) == self.stored.peer

    def riding(self, response: Submission) -> tuple[Acknowledgment, ...] | None:
        """The elements that ride on a response (SYNC-7, ACK-16); None where the
        acknowledgement is no part of it: not agreed, not owed, or a signed one that an
        unsigned response cannot carry."""
        if not self.owed.owed or self.terms.ack_bundling is AckBundling.STANDALONE:
            return None
        header = replace(self.message.header, service=response.service, action=response.action)
        binding = find_binding(self.agreement, Direction.SEND, replace(self.message, header=header))
        if self.owed.signed and not binding.security.sign:
            return None
        back = signal_route(self.agreement, MessageKind.ACKNOWLEDGMENT)
        ack = acknowledgment_for(
            self.node, self.message, back, self.owed, self.received, final=True
        )
        return ack.acknowledgments

    def acknowledge(self, *warnings: Error) -> StoredAnswer:
        """The acknowledgement as a message of its own."""
        return acknowledge(
            self.node,
            self.message,
            self.agreement,
            self.owed,
            self.plan,
            self.received,
            final=True,
            warnings=warnings,
        )

    def save_ack(self, *more: Error) -> None:
        """The acknowledgement alone is the answer; no connection waits for it: it leaves on
        one of its own."""
        warnings = (*self.warnings, *more)
        answer = self.acknowledge(*warnings)
        self.save(answer, acknowledges=True, warnings=warnings)
        if answer.owed:
            incoming = self.stored.incoming
            post_signal(
                self.node,
                self.agreement,
                answer,
                sender=incoming.sender,
                message_id=incoming.message_id,
            )

    def save_warnings(self) -> None:
        """Neither an acknowledgement nor a response is the answer, but somebody is warned."""
        warnings = self.warnings
        if not warnings:
            return
        answer = answer_error(self.node, self.message, self.agreement, warnings, self.plan)
        if answer is not None:
            self.save(answer, warnings=warnings)

    def save(
        self,
        answer: StoredAnswer,
        *,
        acknowledges: bool = False,
        warnings: tuple[Error, ...] = (),
    ) -> None:
        """Keep the bytes that answer it first: every copy gets the same (DUP-5)."""
        incoming = self.stored.incoming
        self.tx.save_answer(incoming.sender, incoming.message_id, answer)
        write_answer(self.node, self.tx, self.stored, answer, warnings, acknowledges=acknowledges)

    def concatenate(self, ack: StoredAnswer, response: StoredParcel) -> StoredAnswer:
        """Acknowledgement and response as two messages in one body (SYNC-8, C30)."""
        whole = [whole_parcel(self.node, parcel) for parcel in (ack.parcel, response)]
        together = sealed(self.node, codec.bundle(whole))
        return StoredAnswer(ack.answer_id, MessageKind.NORMAL, together)

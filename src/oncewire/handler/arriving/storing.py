"""Storing: one arriving message as the store and the journal will have it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.naming import sender_name
from oncewire.agreement.resolve import Resolution
from oncewire.handler.arrival import facts_under, number_of_arrival
from oncewire.handler.arriving.received_note import received_note
from oncewire.handler.delivering.view import view_of
from oncewire.handler.documents.claims import split_begun, split_by_name
from oncewire.handler.documents.gathering import in_spool
from oncewire.handler.node import Node
from oncewire.handler.route import peer_label
from oncewire.handler.source import Source
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.form import PartsForm
from oncewire.message.header import Split
from oncewire.protocol.effects import Note
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.states import IncomingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import MessageFacts, StoredAnswer, StoredIncoming, StoredParcel
from oncewire.wire.received import Received


@dataclass(frozen=True, slots=True)
class Storing:
    """A message that could be read and placed, and what of it is kept."""

    node: Node
    tx: Transaction
    received: Received
    # The received bytes, as the store keeps them.
    kept: StoredParcel
    # The values that may be trusted: read from the signed part where there is a signature.
    message: Message
    resolution: Resolution
    source: Source
    # Whether this handler acts for the To Party, or is a hub on the message's way.
    final: bool = True
    # The way on from a hub; a copy needs none.
    ahead: Agreement | None = None
    # It is judged by the agreement of its original: a copy, whatever may be repeated.
    under_original: bool = False
    # Of which document it is a part that is put together here; found once, for every step asks.
    _split: Split | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_split", self._find_split())

    @property
    def agreement(self) -> Agreement:
        """The agreement with the handler the message came from."""
        return self.resolution.agreement

    def _find_split(self) -> Split | None:
        if not self.final or self.message.kind is not MessageKind.NORMAL:
            return None
        header, form = self.message.header, self.resolution.form
        if header.split is not None:
            return header.split
        sender = sender_name(self.agreement, header.from_party)
        if form.parts is PartsForm.MID and not self.resolution.terms.numbered:
            return split_by_name(self.tx, sender, self.message, form)
        # What was begun under an agreement that was replaced is not torn apart by that.
        return split_begun(self.tx, sender, self.message)

    @property
    def _facts(self) -> MessageFacts:
        """What listings show of it."""
        facts, split = facts_under(self.message, self.agreement, self.ahead), self._split
        if split is None or self.message.header.split is not None:
            return facts
        return replace(
            facts, split_id=split.split_id, split_number=split.number, split_total=split.total
        )

    def _incoming(
        self, sender: str, facts: MessageFacts, channel: ReceivingChannel | None, terms: Terms
    ) -> Incoming:
        sequence = number_of_arrival(self.message, self.resolution) if channel else None
        return Incoming(
            sender,
            self.message.header.message_id,
            facts.digest,
            self.node.keep_terms(self.tx, terms),
            self.node.now(),
            channel=channel.key if channel else None,
            epoch=channel.epoch if channel else None,
            number=sequence.number if sequence else None,
        )

    def _stored(
        self, incoming: Incoming, facts: MessageFacts, answer: StoredAnswer | None
    ) -> StoredIncoming:
        refused, agreement = incoming.state is IncomingState.REFUSED, self.agreement
        return StoredIncoming(
            incoming,
            facts,
            peer_label(agreement),
            self.source.transport,
            None if refused else self._kept(),
            answer,
            hop=len(self.message.routing),
            agreement_id=self.node.keep_agreement(self.tx, agreement),
            view=view_of(self.message, self.received) if self.final and not refused else None,
        )

    def _kept(self) -> StoredParcel:
        return self.kept if self._split is None else in_spool(self.node, self.kept)

    def _journal_received(self, stored: StoredIncoming) -> None:
        note = received_note(stored, self.message, self.received, self.resolution, final=self.final)
        self._write(note, stored, digest=stored.incoming.digest, size=stored.facts.size)

    def _write(
        self,
        note: Note,
        stored: StoredIncoming,
        *,
        digest: str | None = None,
        size: int | None = None,
    ) -> None:
        self.node.write(
            self.tx,
            [note],
            terms_id=stored.incoming.terms_id,
            hop=stored.hop or None,
            peer=stored.peer,
            digest=digest,
            size=size,
        )

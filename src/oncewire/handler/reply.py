"""Reply: the business response on the connection that brought its request.

Two commits. The first stores the request, and its connection waits. The application is asked
outside any transaction. The second stores its response with the acknowledgement in it, and only
then the reply is written: bytes that the store has, so every copy of the request gets the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from oncewire.agreement.agreement import Agreement, Direction
from oncewire.agreement.resolve import find_binding
from oncewire.handler.actions import Post, PostReply
from oncewire.handler.answer import (
    NOTHING,
    Answer,
    Awaited,
    acknowledge,
    answer_error,
    envelope_for,
    signal_route,
)
from oncewire.handler.deliver import FOR_EVER
from oncewire.handler.node import Node
from oncewire.handler.perform import open_incident
from oncewire.handler.route import agreement_for
from oncewire.handler.seal import whole_parcel
from oncewire.handler.secure import receipt_references
from oncewire.handler.submit import Submission, submit
from oncewire.message.acknowledgment import Acknowledgment
from oncewire.message.envelope import Message, MessageKind
from oncewire.message.fault import Error
from oncewire.protocol.acknowledging import AckOwed, ack_owed
from oncewire.protocol.effects import Note, Raise
from oncewire.protocol.states import IncomingState
from oncewire.protocol.synchronous import (
    TIMEOUT_MESSAGE,
    SyncPlan,
    answerable_after_restart,
    awaits_response,
    late_warning,
    patience,
    timeout_error,
)
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming
from oncewire.wire import answers, codec
from oncewire.wire.received import Received

_UNDER_WAY = (IncomingState.HELD, IncomingState.READY, IncomingState.HANDED_OVER)


def await_response(stored: StoredIncoming, terms: Terms) -> Answer:
    """Nothing goes back yet: the connection waits for the application."""
    incoming = stored.incoming
    return Answer(awaited=Awaited(incoming.sender, incoming.message_id, patience(terms)))


def is_awaited(node: Node, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether a request has no reply yet, and one is to go back on its connection."""
    if stored.answer is not None or stored.incoming.state not in _UNDER_WAY:
        return False
    return awaits_response(node.terms_of(tx, stored.incoming.terms_id))


def reply_to(node: Node, tx: Transaction, awaited: Awaited) -> Answer | None:
    """The reply as the store has it; None: there is none yet."""
    stored = tx.incoming(awaited.sender, awaited.message_id)
    if stored is None:
        return NOTHING
    responses = tx.responses_to(awaited.message_id, stored.peer)
    if stored.answer is None and responses:
        return Answer(200, tx.outgoing_parcel(responses[-1].outgoing.message_id))
    if is_awaited(node, tx, stored):
        return None
    return NOTHING if stored.answer is None else Answer(200, stored.answer.parcel)


@dataclass(frozen=True, slots=True)
class _Request:
    """A stored request, read again when the time has come to reply."""

    node: Node
    tx: Transaction
    stored: StoredIncoming
    received: Received
    agreement: Agreement
    terms: Terms
    owed: AckOwed

    @classmethod
    def read(cls, node: Node, tx: Transaction, stored: StoredIncoming) -> _Request | None:
        """None where its bytes or its agreement are gone."""
        agreement = agreement_for(node, stored.facts.cpa_id, stored.peer)
        if agreement is None or stored.parcel is None:
            return None
        received = codec.read(whole_parcel(node, stored.parcel), node.limits)
        terms = node.terms_of(tx, stored.incoming.terms_id)
        owed = ack_owed(received.message, terms, final=True)
        return cls(node, tx, stored, received, agreement, terms, owed)

    @property
    def message(self) -> Message:
        return self.received.message

    @property
    def plan(self) -> SyncPlan:
        return SyncPlan(self.terms.sync_mode)

    def acknowledgment(self) -> Acknowledgment | None:
        """The element that rides on the response (SYNC-7); None where it has to go alone: a
        signed one needs a response that is signed."""
        binding = find_binding(self.agreement, Direction.SEND, self.message)
        if self.owed.signed and not binding.security.sign:
            return None
        envelope = envelope_for(self.node, signal_route(self.agreement, MessageKind.ACKNOWLEDGMENT))
        references = receipt_references(self.received) if self.owed.signed else ()
        return answers.acknowledgment_of(self.message, envelope, references=references)

    def save_ack(self, *warnings: Error) -> None:
        """The acknowledgement alone is the reply."""
        answer = acknowledge(
            self.node,
            self.message,
            self.agreement,
            self.owed,
            self.plan,
            self.received,
            final=True,
            warnings=warnings,
        )
        incoming = self.stored.incoming
        self.tx.save_answer(incoming.sender, incoming.message_id, answer)
        self.write(Note("ack_sent", incoming.message_id, answer.answer_id))

    def write(self, note: Note) -> None:
        stored = self.stored
        terms_id = stored.incoming.terms_id
        self.node.write(
            self.tx, [note], terms_id=terms_id, hop=stored.hop or None, peer=stored.peer
        )


def respond(
    node: Node, tx: Transaction, stored: StoredIncoming, responses: Sequence[Submission]
) -> None:
    """Store what the application answered; where a connection waits, what refers to the
    request is the reply.

    `stored` is the request as it was before its confirmation.
    """
    request = _Request.read(node, tx, stored) if is_awaited(node, tx, stored) else None
    if request is None:
        for response in responses:
            submit(node, tx, response)
        return
    incoming = stored.incoming
    reply = next((one for one in responses if one.ref_to_message_id == incoming.message_id), None)
    here = (incoming.sender, incoming.message_id) in node.replying
    post = None
    if reply is not None and (here or answerable_after_restart(request.terms)):
        post = _submit_reply(request, reply)
    elif reply is not None:
        # Its initiator was told that no response came, and asks anew if it wants one.
        problem = "its response came after the connection that waited for it was gone: not sent"
        open_incident(node, tx, Raise(problem, incoming.message_id))
    elif request.owed.owed:
        request.save_ack()
    for response in responses:
        if response is not reply:
            submit(node, tx, response)
    node.actions.append(PostReply(incoming.sender, incoming.message_id, post))


def _submit_reply(request: _Request, reply: Submission) -> Post | None:
    """Store the response with the acknowledgement in it; its first attempt is the reply."""
    node, tx, message_id = request.node, request.tx, request.stored.incoming.message_id
    ack = request.acknowledgment() if request.owed.owed else None
    if not answerable_after_restart(request.terms):
        reply = replace(reply, best_effort=True)
    accepted = submit(node, tx, reply, () if ack is None else (ack,))
    if ack is not None:
        request.write(Note("ack_sent", message_id, accepted.message_id))
    elif request.owed.owed:
        # The acknowledgement is the reply, and the response follows on its own.
        request.save_ack()
        return None
    return _take_back(node, accepted.message_id)


def _take_back(node: Node, message_id: str) -> Post | None:
    """The attempt that was about to leave on a connection of its own; None: it waits for a
    place in its window, and leaves on its own when it has one."""
    for post in node.actions:
        if isinstance(post, Post) and post.message_id == message_id:
            node.actions.remove(post)
            return post
    return None


def overdue(node: Node, tx: Transaction, awaited: Awaited) -> Answer:
    """The application did not answer in time (SYNC-17).

    Where the request may be repeated it is stored for good: it is acknowledged with a warning,
    and the response follows on its own. Where it may not, its initiator has nothing left to
    wait for: what was not handed over yet never will be (SYNC-18).
    """
    known = reply_to(node, tx, awaited)
    stored = tx.incoming(awaited.sender, awaited.message_id)
    request = None if stored is None else _Request.read(node, tx, stored)
    if known is not None or request is None:
        return known or NOTHING
    if answerable_after_restart(request.terms):
        if request.owed.owed:
            request.save_ack(late_warning())
            return reply_to(node, tx, awaited) or NOTHING
    elif request.stored.incoming.state is IncomingState.READY:
        _close(node, tx, request.stored, TIMEOUT_MESSAGE)
    report = answer_error(
        node, request.message, request.agreement, (timeout_error(),), request.plan
    )
    return NOTHING if report is None else Answer(200, report.parcel)


def close_unanswered(node: Node, tx: Transaction, limit: int = 10_000) -> None:
    """After a restart the connections are gone, and what only they could answer is over."""
    for stored in tx.ready(FOR_EVER, limit):
        terms = node.terms_of(tx, stored.incoming.terms_id)
        if is_awaited(node, tx, stored) and not answerable_after_restart(terms):
            _close(node, tx, stored, "the connection that waited for its response is gone")


def _close(node: Node, tx: Transaction, stored: StoredIncoming, problem: str) -> None:
    incoming = stored.incoming.closed()
    tx.save_incoming(incoming)
    note = Note(
        "refused",
        incoming.message_id,
        stored.facts.ref_to,
        incoming.channel,
        detail={"code": "DeliveryFailure", "severity": "Warning", "problem": problem},
    )
    node.write(
        tx,
        [note],
        terms_id=incoming.terms_id,
        peer=stored.peer,
        digest=incoming.digest,
        size=stored.facts.size,
    )

"""Respond: what an application sends, and the answer of a request when it has spoken.

The answer of a request is an acknowledgment, the application's response, or both: in one header,
one after the other in one body, or each on its own, as `ack.bundling` and `sync.bundle` say. It is
stored before a byte of it is written, so every copy of the request gets the same bytes.

Where no connection waits, an acknowledgment may still wait a little for a response to ride on.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Direction
from oncewire.agreement.resolve import find_binding
from oncewire.agreement.rules import takes_best_effort, weigh
from oncewire.errors import EbxmlError
from oncewire.handler.actions import Accepted, Post, PostReply, Submission
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import read_stored, whole_parcel
from oncewire.handler.perform import open_incident
from oncewire.handler.route import agreement_of_hop, peer_label
from oncewire.handler.sending.answer import (
    Answer,
    Awaited,
    acknowledge,
    acknowledgment_for,
    answer_error,
    is_bundle,
    post_signal,
    signal_route,
    write_answer,
)
from oncewire.handler.sending.seal import sealed
from oncewire.handler.sending.submit import agreement_called, submit
from oncewire.message.envelope import Acknowledgment, Error, Message, MessageKind
from oncewire.message.form import SyncReplyMode
from oncewire.protocol.notes import Raise
from oncewire.protocol.receiver import AckOwed, ack_owed, ride_patience
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.synchronous import (
    SyncPlan,
    answerable_after_restart,
    awaits_response,
    concatenates,
    holds_connection,
    ignored_wish,
    patience,
)
from oncewire.protocol.terms import AckBundling, DuplicateAnswer, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredAnswer, StoredIncoming, StoredOutgoing, StoredParcel
from oncewire.wire import codec
from oncewire.wire.parcel import Received

_UNDER_WAY = (IncomingState.HELD, IncomingState.READY, IncomingState.HANDED_OVER)
_AT_THE_APPLICATION = (IncomingState.READY, IncomingState.HANDED_OVER)


@dataclass(frozen=True, slots=True)
class Request:
    """One stored message, with everything its answer is made from."""

    context: HandlerContext
    tx: Transaction
    stored: StoredIncoming
    received: Received
    agreement: Agreement
    # Those it was accepted under.
    terms: Terms
    owed: AckOwed

    @classmethod
    def read(
        cls, context: HandlerContext, tx: Transaction, stored: StoredIncoming
    ) -> Request | None:
        """None where its bytes or its agreement are gone."""
        agreement = agreement_of_hop(context, tx, stored)
        facts = stored.facts
        joined = facts.split_id == stored.incoming.message_id and facts.split_number is None
        if agreement is None or stored.parcel is None or joined:
            # A document that came in parts was answered with the last of them.
            return None
        received = read_stored(context.store.spool, stored.parcel, context.limits)
        terms = context.terms_of(tx, stored.incoming.terms_id)
        owed = ack_owed(received.message, terms, final=True)
        return cls(context, tx, stored, received, agreement, terms, owed)

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
        return peer_label(agreement_called(self.context, response.cpa_id)) == self.stored.peer

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
            self.context, self.message, back, self.owed, self.received, final=True
        )
        return ack.acknowledgments

    def acknowledge(self, *warnings: Error) -> StoredAnswer:
        """The acknowledgement as a message of its own."""
        return acknowledge(
            self.context,
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
                self.context,
                self.agreement,
                answer,
                sender=incoming.sender,
                message_id=incoming.message_id,
            )

    def save_warnings(self) -> None:
        """Neither an acknowledgement nor a response is the answer, but the sender is warned."""
        warnings = self.warnings
        if not warnings:
            return
        answer = answer_error(self.context, self.message, self.agreement, warnings, self.plan)
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
        write_answer(
            self.context, self.tx, self.stored, answer, warnings, acknowledges=acknowledges
        )

    def concatenate(self, ack: StoredAnswer, response: StoredParcel) -> StoredAnswer:
        """Acknowledgement and response as two messages in one body (SYNC-8, C30)."""
        whole = [whole_parcel(self.context, parcel) for parcel in (ack.parcel, response)]
        together = sealed(self.context, codec.bundle(whole))
        return StoredAnswer(ack.answer_id, MessageKind.NORMAL, together)


class Patience(Struct, frozen=True):
    """What waits for the application when a message arrives: nothing, unless it says so."""

    # Those the message is kept under: what its connection carries back is known from them.
    terms: Terms
    # Its connection waits for the response.
    waits: bool = False
    # Its acknowledgement waits for a response to ride on.
    rides: bool = False

    @classmethod
    def of(cls, terms: Terms, plan: SyncPlan, owed: AckOwed, *, called: bool) -> Patience:
        """For a message of which this handler acts for the To Party; `called`: its application
        is called, and need not come."""
        waits = holds_connection(plan, terms, ack_owed=owed.owed, called=called)
        mode = plan.mode
        if plan.response and not waits:
            mode = SyncReplyMode.MSH_SIGNALS_ONLY
        if terms.sync_mode is not mode:
            terms = replace(terms, sync_mode=mode)
        # A connection that carries signals back carries the acknowledgement now.
        rides = owed.owed and not plan.signals and ride_patience(terms) > 0
        return cls(terms, waits, rides)


def await_response(stored: StoredIncoming, terms: Terms) -> Answer:
    """Nothing goes back yet: the connection waits for the application."""
    incoming = stored.incoming
    return Answer(awaited=Awaited(incoming.sender, incoming.message_id, patience(terms)))


def await_rider(context: HandlerContext, stored: StoredIncoming, terms: Terms) -> None:
    """The acknowledgement of a message waits for a response that it can ride on."""
    incoming = stored.incoming
    due = context.now() + ride_patience(terms)
    heapq.heappush(context.state.acks_waiting, (due, incoming.sender, incoming.message_id))


def is_awaited(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether a request has no reply yet, and one is to go back on its connection. A document that
    comes in parts has no connection of its own: each part is answered by itself."""
    if stored.answered or stored.facts.split_id or stored.incoming.state not in _UNDER_WAY:
        return False
    return awaits_response(context.terms_of(tx, stored.incoming.terms_id))


def ack_waits(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether the acknowledgement of a message still waits for a response to ride on."""
    if stored.answered or stored.incoming.state not in _AT_THE_APPLICATION:
        return False
    terms = context.terms_of(tx, stored.incoming.terms_id)
    return not terms.synchronous and ride_patience(terms) > 0


def was_given(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> bool:
    """Whether an answer was given once, so that a copy gets it again. A response that certainly
    never arrived goes its own way, and one that was refused goes none: a copy that brought it
    along would make a lie of what its application is told (ERR-9, S5)."""
    if stored.answer is None:
        return False
    if is_bundle(stored.answer):
        responses = _carried(context, tx, stored.answer)
        return all(kept.outgoing.state is not OutgoingState.NOT_DELIVERED for kept in responses)
    response = tx.outgoing(stored.answer.answer_id)
    return response is None or response.outgoing.may_be_repeated


def count_copy(context: HandlerContext, tx: Transaction, answer: StoredAnswer) -> None:
    """A stored answer is given once more. Where it is a response, or holds one, another copy of
    that is under way beside its own attempts, and may meet what they did not (S5)."""
    for kept in _carried(context, tx, answer):
        tx.save_outgoing(kept.outgoing.repeated())


def _carried(
    context: HandlerContext, tx: Transaction, answer: StoredAnswer
) -> list[StoredOutgoing]:
    """The responses that an answer is or holds; the same request may have had others since,
    whose fate is none of its own."""
    ids = [answer.answer_id]
    if is_bundle(answer):
        both = codec.read_all(whole_parcel(context, answer.parcel), context.limits)
        ids = [received.message.header.message_id for received in both]
    return [kept for kept in map(tx.outgoing, ids) if kept is not None]


def response_to_repeat(
    tx: Transaction, stored: StoredIncoming, terms: Terms
) -> StoredOutgoing | None:
    """The response that a copy of a message gets: the first one, or the latest that may be brought
    again. Where the first may not, no later one takes its place: copies would get two answers."""
    responses = tx.responses_to(stored.incoming.message_id, stored.peer)
    if terms.duplicate_answer is not DuplicateAnswer.MOST_RECENT:
        del responses[1:]
    repeatable = [kept for kept in responses if kept.outgoing.may_be_repeated]
    return repeatable[-1] if repeatable else None


def _pending(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> Request | None:
    """A message that still waits for its answer."""
    if is_awaited(context, tx, stored) or ack_waits(context, tx, stored):
        return Request.read(context, tx, stored)
    return None


def send(context: HandlerContext, tx: Transaction, submission: Submission) -> Accepted:
    """Take a document from an application, which may be the response to a request.

    An application that takes its messages itself responds by what it sends. One that is called
    responds by what it returns, so what else it sends meanwhile is no response.
    """
    reference = submission.ref_to_message_id
    if reference is None:
        return submit(context, tx, submission)
    for stored in tx.incoming_by_id(reference):
        request = None if context.application_called else _pending(context, tx, stored)
        if request is not None and request.is_answered_by(submission) and _may_answer(request):
            accepted, post = _answer(request, submission)
            _let_go(request, post)
            return accepted
    return _send_unawaited(context, tx, submission)


def _send_unawaited(context: HandlerContext, tx: Transaction, submission: Submission) -> Accepted:
    """Send a message that is not an awaited reply; attach warnings if it answers a request."""
    reference = submission.ref_to_message_id
    for stored in tx.incoming_by_id(reference) if reference is not None else ():
        terms = context.terms_of(tx, stored.incoming.terms_id)
        # Without a synchronous reply in force, and only there, a wish may have been ignored.
        wish = not terms.synchronous and stored.facts.kind is MessageKind.NORMAL
        request = Request.read(context, tx, stored) if wish else None
        if request is not None and request.is_answered_by(submission):
            return submit(context, tx, submission, warnings=request.ignored)
    return submit(context, tx, submission)


def respond(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredIncoming,
    responses: Sequence[Submission],
) -> None:
    """Store what the application returned; where the request waits for its answer, the response
    that refers to it is that answer.

    `stored` is the request as it was before its confirmation.
    """
    request = _pending(context, tx, stored)
    if request is None:
        for response in responses:
            _send_unawaited(context, tx, response)
        return
    reply = next(
        (submission for submission in responses if request.is_answered_by(submission)), None
    )
    post = None
    if reply is not None and _may_answer(request):
        _, post = _answer(request, reply)
    elif reply is not None:
        # Its initiator was told that no response came, and asks anew if it wants one.
        problem = "its response came after the connection that waited for it was gone: not sent"
        open_incident(context, tx, Raise(problem, stored.incoming.message_id))
    elif request.owed.owed:
        request.save_ack()
    else:
        request.save_warnings()
    for response in responses:
        if response is not reply:
            submit(context, tx, response)
    _let_go(request, post)


def _is_here(request: Request) -> bool:
    """Whether a connection waits for the reply now."""
    key = request.stored.incoming.sender, request.stored.incoming.message_id
    return key in request.context.state.replying or _is_elsewhere(request)


def _is_elsewhere(request: Request) -> bool:
    """Whether it waits at another handler."""
    incoming = request.stored.incoming
    return (incoming.sender, incoming.message_id) in request.context.elsewhere("reply")


def _may_answer(request: Request) -> bool:
    """Whether a response is still awaited."""
    if not request.synchronous or _is_here(request):
        return True
    return answerable_after_restart(request.terms)


def _let_go(request: Request, post: Post | None) -> None:
    if request.synchronous:
        incoming = request.stored.incoming
        request.context.state.actions.append(
            PostReply(incoming.sender, incoming.message_id, post, _is_elsewhere(request))
        )


def _answer(request: Request, reply: Submission) -> tuple[Accepted, Post | None]:
    """Store the response, with the acknowledgement in it or before it, as the answer; on a
    connection that waits its first attempt is the reply.

    Where the two cannot travel together, or the response must wait (for a place in its window,
    or because its receiver asked for a pause), the acknowledgement alone is the answer, and the
    response leaves on its own.
    """
    context, tx, terms = request.context, request.tx, request.terms
    binding = request.agreement.sending
    if request.synchronous and not answerable_after_restart(terms) and takes_best_effort(binding):
        reply = replace(reply, best_effort=True)
    riding, warnings = request.riding(reply), request.warnings
    accepted = submit(context, tx, reply, riding or (), warnings)
    # Its first attempt, if that leaves after this commit.
    posts = [post for post in context.state.actions if isinstance(post, Post)]
    post = next((post for post in posts if post.message_id == accepted.message_id), None)
    leaves = post is not None and not accepted.repeated
    parcel = tx.outgoing_parcel(accepted.message_id) if leaves else None
    rides, owed = riding is not None, request.owed.owed
    together = owed and request.synchronous and concatenates(terms)
    if parcel is None or (owed and not rides and not together):
        if owed:
            request.save_ack()
        return accepted, None
    if together:
        ack = request.acknowledge()
        both = request.concatenate(ack, parcel)
        request.save(both, acknowledges=True, warnings=warnings)
        if not rides and not _is_here(request):
            post_signal(context, request.agreement, ack)
    else:
        answer = StoredAnswer(accepted.message_id, MessageKind.NORMAL, parcel)
        request.save(answer, acknowledges=rides, warnings=warnings)
    if post is None or not request.synchronous:
        return accepted, None
    # It leaves on the connection that waits, or on its own if none waits any more.
    context.state.actions.remove(post)
    return accepted, post


def acknowledge_next(context: HandlerContext, tx: Transaction) -> None:
    """An acknowledgement that found no response to ride on in time leaves by itself."""
    due = heapq.heappop(context.state.acks_waiting)
    context.state.acks_leaving.append(due)
    _, sender, message_id = due
    stored = tx.incoming(sender, message_id)
    if stored is None or not ack_waits(context, tx, stored):
        return
    request = Request.read(context, tx, stored)
    if request is not None:
        request.save_ack()

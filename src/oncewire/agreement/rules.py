"""Header against agreement: what is in force when both speak (CPA-8..14, C17, C38).

All comparisons of a message's header with its agreement are made here, and every
difference is judged by one function, `Scales.weigh`, under the agreed policy a-d.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from oncewire.agreement.agreement import (
    ORDERED_WINDOW,
    ActionBinding,
    Agreement,
    Direction,
    Requested,
)
from oncewire.errors import AgreementProblem, EbxmlError, Inconsistent, NotSupported
from oncewire.message.envelope import (
    Actor,
    DeliverySemantics,
    Error,
    Message,
    MessageKind,
    RoutingHeader,
    SequenceNumber,
)
from oncewire.message.form import AckRequest, ReliableMessagingMethod, SyncReplyMode
from oncewire.protocol.receiver import check_receipt
from oncewire.protocol.synchronous import SyncPlan, plan_reply
from oncewire.protocol.terms import FlowMode, HeaderConflict, Terms

T = TypeVar("T")

ACK = "//Header/AckRequested"
ACK_SIGNED = "//Header/AckRequested/@signed"
ACK_ACTOR = "//Header/AckRequested/@actor"
DUPLICATES = "//Header/MessageHeader/DuplicateElimination"
SYNC = "//Header/SyncReply"
ORDER = "//Header/MessageOrder"
SEMANTICS = "//Header/QualityOfServiceInfo/@deliverySemantics"
METHOD = "//RoutingHeader/@reliableMessagingMethod"
FROM_ROLE = "//Header/MessageHeader/From/Role"
TO_ROLE = "//Header/MessageHeader/To/Role"


class Scales:
    """Weighs what a header states against what was agreed, and collects the warnings."""

    def __init__(self, policy: HeaderConflict) -> None:
        self.policy = policy
        self.warnings: list[Error] = []

    def weigh(
        self,
        agreed: T,
        stated: T | None,
        what: str,
        location: str,
        error: type[EbxmlError] = Inconsistent,
    ) -> T:
        """The value in force. `None` means the header is silent: the agreement governs."""
        if stated is None or stated == agreed:
            return agreed
        problem = (
            f"{what}: the header says {_value_text(stated)}, the agreement {_value_text(agreed)}"
        )
        if self.policy is HeaderConflict.REJECT:
            raise error(problem, location=location, remedy="send what was agreed")
        if self.policy is HeaderConflict.HEADER:
            return stated
        self.warnings.append(Error.of(error(problem, location=location, severity="Warning")))
        return stated if self.policy is HeaderConflict.HEADER_WARN else agreed


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(getattr(value, "value", value))


class Weighed(Struct, frozen=True):
    """What is in force for one message, header weighed against agreement."""

    terms: Terms
    # Differences that its sender is told of.
    warnings: tuple[Error, ...] = ()
    # How a connection that can answer replies to it; None: that is not for the agreement to say.
    plan: SyncPlan | None = None


def weigh(binding: ActionBinding, message: Message, *, at_hop: bool = False) -> Weighed:
    """The terms in force for one message, and the warnings its sender is owed.

    At a hop the agreement of the two end parties is not ours to enforce: there the header
    is taken at its word, and only the hop's own number is looked at.
    """
    if message.kind is not MessageKind.NORMAL:
        return Weighed(_signal(binding.terms, message))
    terms = binding.terms
    policy = HeaderConflict.HEADER if at_hop else terms.header_conflict
    scales = Scales(policy)
    # The roles that the agreement gives the two parties for this action. A header may be silent
    # about them (ebMS 2.0 §3.1.1.2).
    header = message.header
    for agreed, party, location in (
        (binding.from_role, header.from_party, FROM_ROLE),
        (binding.to_role, header.to_party, TO_ROLE),
    ):
        if agreed is not None:
            scales.weigh(agreed, party.role, f"the role of {party}", location)
    hop = message.last_hop
    method = _method(binding, hop)
    ack, hop_ack = _acknowledgements(binding, message, scales)
    if method is ReliableMessagingMethod.TRANSPORT and (hop is None or hop.method is None):
        # What its transport does an ebMS 2.0 header has no word for (RM-7).
        reliable = terms.reliable
    else:
        reliable = _reliable(binding, message, scales, ack, hop_ack)
    duplicates = _duplicates(binding, message, scales)
    if not at_hop:
        check_receipt(message, terms)
    sync = _sync(binding, message, scales, at_hop=at_hop)
    numbered = ordered = False
    # Where the transport answers for delivery, no acknowledgement is asked for (RM-7).
    acknowledged = reliable and method is ReliableMessagingMethod.EBXML
    if acknowledged:
        carried = message.sequence
        if at_hop:
            carried = None if hop is None else hop.sequence
        numbered, ordered = _number(terms, message, carried, scales, at_hop=at_hop)
    in_force = _in_force(
        terms,
        reliable=reliable,
        method=method,
        duplicate_elimination=duplicates,
        ack_requested=ack if acknowledged else AckRequest.NONE,
        hop_ack_requested=hop_ack if acknowledged else AckRequest.NONE,
        numbered=numbered,
        ordered=ordered,
        sync_mode=sync,
    )
    plan = None
    if not at_hop:
        # The protocol's own refusals of a synchronous wish, ResponseOnly with
        # acknowledgements among them (SYNC-4).
        plan = plan_under(binding, message, in_force, can_answer=True, ack_owed=acknowledged)
    return Weighed(in_force, tuple(scales.warnings), plan)


def _in_force(terms: Terms, **values: object) -> Terms:
    """The agreed terms with the header's values in them."""
    new: dict[str, Any] = {
        name: value for name, value in values.items() if getattr(terms, name) != value
    }
    if not new:
        return terms
    if new.get("ordered") and terms.flow is FlowMode.UNRESTRICTED:
        # An order that only the header asks for still needs a bounded buffer, of at most half of
        # the numbers that there are.
        window = min(max(terms.window, ORDERED_WINDOW), max(1, terms.numbers.size // 2))
        new |= {"flow": FlowMode.WINDOW, "window": window}
    try:
        return replace(terms, **new)
    except AgreementProblem as error:
        raise NotSupported(error.problem, location=ORDER, remedy=error.remedy) from None


def signal_terms(terms: Terms) -> Terms:
    """The terms of an acknowledgement, status or ping: sent once, never numbered (ACK-8)."""
    return _in_force(
        terms,
        reliable=False,
        ack_requested=AckRequest.NONE,
        hop_ack_requested=AckRequest.NONE,
        numbered=False,
        ordered=False,
        sync_mode=SyncReplyMode.NONE,
    )


def notice_terms(terms: Terms) -> Terms:
    """The terms of a failure notice whose dialect has no acknowledgement for it (ebMS 2.0): it is
    repeated like the message that failed, until the next handler's transport has taken it (C33)."""
    return _in_force(signal_terms(terms), reliable=True, flow=FlowMode.UNRESTRICTED)


def _signal(terms: Terms, message: Message) -> Terms:
    """Signals are unreliable (ACK-8), but a failure notice keeps its semantics (ERR-8)."""
    if not message.reliable:
        return signal_terms(terms)
    numbered = terms.numbered and message.sequence is not None
    return _in_force(
        terms, sync_mode=SyncReplyMode.NONE, numbered=numbered, ordered=terms.ordered and numbered
    )


# --- acknowledgements and reliability ----------------------------------------------------------


def _method(binding: ActionBinding, hop: RoutingHeader | None) -> ReliableMessagingMethod:
    """reliableMessagingMethod is set in the header only (CPA-2); the list of those supported
    in the agreement only (CPA-3)."""
    if hop is None or hop.method is None:
        return binding.terms.method
    if not binding.rules.supports(hop.method):
        raise NotSupported(
            f"reliableMessagingMethod {hop.method.value} is not among those agreed",
            location=METHOD,
            remedy="use a method of reliableMessagingMethodsSupported",
        )
    return hop.method


def _acknowledgements(
    binding: ActionBinding, message: Message, scales: Scales
) -> tuple[AckRequest, AckRequest]:
    """What is asked of the To Party's handler, and of the next one."""
    rules, terms = binding.rules, binding.terms
    stated = _stated(message, rules.actor)
    at_end = rules.actor is Actor.TO_PARTY_MSH
    agreed = terms.ack_requested if at_end else terms.hop_ack_requested
    wanted = _asked(rules.ack, rules.ack_signature, agreed, stated, scales)
    if not at_end:
        return message.asks_ack_of(Actor.TO_PARTY_MSH), wanted
    hop = message.asks_ack_of(Actor.NEXT_MSH)
    if rules.hop_ack is Requested.NEVER and hop is not AckRequest.NONE:
        hop = scales.weigh(
            AckRequest.NONE, hop, "acknowledgement of the next handler", ACK_ACTOR, NotSupported
        )
    return wanted, hop


def _stated(message: Message, actor: Actor) -> AckRequest | None:
    """What the header asks of that handler; None where it says nothing about it.

    An absent ackRequested of a RoutingHeader means None (ACK-13), an absent
    deliveryReceiptRequested means nothing.
    """
    asked = message.asks_ack_of(actor)
    if asked is not AckRequest.NONE:
        return asked
    if actor is Actor.NEXT_MSH:
        return AckRequest.NONE if message.routing else None
    return message.header.delivery_receipt_requested


def _asked(
    ack: Requested,
    signature: Requested,
    agreed: AckRequest,
    stated: AckRequest | None,
    scales: Scales,
) -> AckRequest:
    if ack is Requested.WHEN_STATED:
        return agreed if stated is None else stated
    asked = stated or AckRequest.NONE
    present = asked is not AckRequest.NONE
    if ack in (Requested.ALWAYS, Requested.NEVER):
        present = scales.weigh(ack is Requested.ALWAYS, present, "AckRequested", ACK)
    if not present:
        return AckRequest.NONE
    # An ack the header did not ask for, but the agreement insists on, is of the agreed kind.
    kind = agreed if asked is AckRequest.NONE else asked
    signed = kind is AckRequest.SIGNED
    if signature in (Requested.ALWAYS, Requested.NEVER):
        wanted = signature is Requested.ALWAYS
        signed = scales.weigh(wanted, signed, "signed acknowledgement", ACK_SIGNED)
    return AckRequest.SIGNED if signed else AckRequest.UNSIGNED


def _reliable(
    binding: ActionBinding, message: Message, scales: Scales, ack: AckRequest, hop_ack: AckRequest
) -> bool:
    """By deliverySemantics where silence is possible, else by who must acknowledge.

    ebMS 2.0 has no deliverySemantics: there a message is reliable when it asks for an
    acknowledgement, and the rules for that have been applied already.
    """
    if binding.rules.ack is not Requested.WHEN_STATED:
        return ack is not AckRequest.NONE or hop_ack is not AckRequest.NONE
    semantics = message.header.semantics
    stated = None if semantics is None else semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE
    return scales.weigh(binding.terms.reliable, stated, "reliable delivery", SEMANTICS)


def takes_best_effort(binding: ActionBinding) -> bool:
    """Whether a message that asks for nothing may be sent beside the reliable ones, or would
    contradict the agreement."""
    rules, terms = binding.rules, binding.terms
    if terms.header_conflict not in (HeaderConflict.AGREEMENT_WARN, HeaderConflict.REJECT):
        return True
    stated = rules.ack is Requested.WHEN_STATED and terms.reliable
    return not (
        terms.numbered
        or stated
        or rules.ack is Requested.ALWAYS
        or rules.duplicate_elimination is Requested.ALWAYS
    )


def _duplicates(binding: ActionBinding, message: Message, scales: Scales) -> bool:
    rule, header = binding.rules.duplicate_elimination, message.header
    # The drafts have no DuplicateElimination: OnceAndOnlyOnce is their word for it.
    stated = (
        header.duplicate_elimination or header.semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE
    )
    if rule is Requested.WHEN_STATED:
        # Best effort does not refuse it: the drafts stop repeats of such messages too (DUP-11).
        return stated or binding.terms.duplicate_elimination
    if rule is Requested.PER_MESSAGE:
        return stated
    return scales.weigh(rule is Requested.ALWAYS, stated, "DuplicateElimination", DUPLICATES)


# --- synchronous replies and order -----------------------------------------------------------


def _sync(
    binding: ActionBinding, message: Message, scales: Scales, *, at_hop: bool
) -> SyncReplyMode:
    """What comes back on this connection. A reply never asks for that itself (SYNC-14)."""
    header, agreed = message.header, binding.terms.sync_mode
    stated = header.sync_reply
    if stated is None and header.sync_reply_as_agreed:
        # At a hop the end parties' mode is not known; every reply is then passed back.
        stated = SyncReplyMode.SIGNALS_AND_RESPONSE if at_hop else agreed
    asks = header.sync_reply_as_agreed or stated not in (None, SyncReplyMode.NONE)
    if asks and agreed is SyncReplyMode.NONE and not at_hop:
        # SYNC-13: no policy helps here, because holding the connection was not agreed.
        raise Inconsistent(
            "a synchronous reply is asked for, but was not agreed",
            location=SYNC,
            remedy="send without SyncReply, or agree on a syncReplyMode",
        )
    if at_hop:
        # SYNC-11: an intermediary honours the wish whatever the parties' agreement says.
        return stated or SyncReplyMode.NONE
    if stated is not None:
        return scales.weigh(agreed, stated, "syncReplyMode", SYNC)
    if agreed is SyncReplyMode.NONE:
        return SyncReplyMode.NONE
    opening = header.ref_to_message_id is None
    if binding.rules.sync is Requested.WHEN_STATED and (opening or binding.rules.sync_replies):
        return agreed
    if binding.rules.sync is Requested.ALWAYS and opening:
        return scales.weigh(agreed, SyncReplyMode.NONE, "SyncReply", SYNC)
    return SyncReplyMode.NONE


def plan_under(
    binding: ActionBinding, message: Message, terms: Terms, *, can_answer: bool, ack_owed: bool
) -> SyncPlan:
    """How the To Party's handler replies to this message, by header and agreement."""
    return plan_reply(
        message,
        terms,
        can_answer=can_answer,
        final=True,
        ack_owed=ack_owed,
        unasked=can_answer,
        # Only the sync paper reserves the wish to the message that opens a conversation.
        replies_may_ask=binding.rules.sync_replies,
    )


def replies_unasked(binding: ActionBinding) -> bool:
    """Whether answers come back on the connection although no header asks for that."""
    return binding.terms.synchronous and binding.rules.sync is Requested.WHEN_STATED


def waits_for_signals(agreement: Agreement, kind: MessageKind) -> bool:
    """Whether the partner waits on its connection for the answer to such a question of its
    handler. Where the channel of its signals is synchronous, handlers do so without a SyncReply."""
    channel = agreement.signal_binding(Direction.RECEIVE, kind)
    return channel.terms.synchronous


def sends_synchronously(binding: ActionBinding, *, opens: bool) -> bool:
    """Whether what we send gets its answers on its connection: a message that opens a
    conversation asks for that; one that refers to another gets it unasked or not at all."""
    if opens:
        return binding.terms.synchronous
    return replies_unasked(binding) and binding.rules.sync_replies


def _number(
    terms: Terms, message: Message, carried: SequenceNumber | None, scales: Scales, *, at_hop: bool
) -> tuple[bool, bool]:
    """Whether the message has a place in a numbered stream, by the number it has, and whether order
    is kept.

    A number that was not agreed on is used where the header may decide: MessageOrder asks
    for order by itself. NotGuaranteed in a CPA promises nothing, it does not forbid.
    """
    if terms.numbered and carried is None:
        if scales.policy is HeaderConflict.AGREEMENT_WARN:
            raise Inconsistent(
                "the message carries no sequence number, and the agreement wants one",
                location=ORDER,
                remedy="number the messages of this agreement",
            )
        scales.weigh(agreed=True, stated=False, what="sequence number", location=ORDER)
        return False, False
    if not terms.numbered and carried is not None:
        if scales.policy is HeaderConflict.AGREEMENT_WARN:
            return scales.weigh(False, True, "sequence number", ORDER), False
        return True, message.order is not None and not at_hop
    return terms.numbered, terms.ordered

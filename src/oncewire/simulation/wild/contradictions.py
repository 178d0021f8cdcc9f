"""Contradictions: agreements that no message can be sent under, though `agreement check` is silent.

A world with one of them would show refusals that both parties have agreed on, and nothing else.
Each is a sentence that `agreement check` may say one day; then it goes from here.
"""

from __future__ import annotations

from oncewire.agreement.agreement import ActionBinding, Agreement, Requested
from oncewire.message.acknowledgment import Actor
from oncewire.message.envelope import Dialect
from oncewire.message.form import Extension
from oncewire.message.header import AckRequest, SyncReplyMode
from oncewire.message.instant import MINUTE
from oncewire.protocol.terms import (
    AckBundling,
    FlowMode,
    HeaderConflict,
    HopMode,
    ReceiptProvided,
    ResetRule,
    Scope,
    SyncRetries,
    Terms,
)

PATIENT = 3
"""Retries that bring a message through two hubs that ask to come back later."""


def contradiction(agreement: Agreement) -> str:
    """Why nothing can be sent under this agreement; empty where it can."""
    binding, dialect = agreement.sending, agreement.form.dialect
    terms = binding.terms
    in_order = terms.numbered and terms.scope is Scope.CONVERSATION
    if terms.synchronous and dialect is Dialect.RM_078:
        return "rm-0.78 has no synchronous replies"
    if terms.numbered and dialect is Dialect.RM_078 and terms.reset is not ResetRule.SILENT:
        return "rm-0.78 has no Status to announce a restart with"
    if in_order and terms.synchronous:
        return "MessageOrder and SyncReply exclude each other, ordered or not"
    if in_order and dialect is not Dialect.EBMS2:
        return "the drafts have no MessageOrder"
    if in_order and not (
        terms.duplicate_elimination and terms.ack_requested is not AckRequest.NONE
    ):
        return "MessageOrder needs once and only once, and the To Party's acknowledgement"
    if in_order and (terms.numbers.first != 0 or terms.reset is not ResetRule.FIRST_MESSAGE):
        return "MessageOrder begins at 0, and only the first number carries Reset"
    return _receipts(binding) or _rules(binding, dialect) or _hop(agreement)


def _receipts(binding: ActionBinding) -> str:
    terms = binding.terms
    if terms.ack_requested is not AckRequest.NONE:
        wanted = ReceiptProvided(terms.ack_requested.value)
        if terms.receipt_provided not in (wanted, ReceiptProvided.BOTH):
            return "the receipt that is asked for is not provided"
    rides = (
        terms.ack_bundling is not AckBundling.STANDALONE
        and terms.sync_retries is SyncRetries.SAME_MESSAGE
    )
    if terms.sync_mode is SyncReplyMode.RESPONSE_ONLY and terms.runs_protocol and not rides:
        return "a response alone leaves no place for the acknowledgement"
    return ""


def _rules(binding: ActionBinding, dialect: Dialect) -> str:
    rules, terms = binding.rules, binding.terms
    refuses = terms.header_conflict is HeaderConflict.REJECT
    hop_asked = terms.hop_ack_requested is not AckRequest.NONE
    if refuses and rules.hop_ack is Requested.NEVER and hop_asked:
        return "the next handler's acknowledgement is asked for and forbidden"
    if refuses and rules.ack is not Requested.WHEN_STATED and _wrong_kind(binding):
        return "acknowledgements are signed always or never, and the other kind is asked for"
    draft = dialect is not Dialect.EBMS2
    if draft and terms.reliable and not terms.duplicate_elimination:
        return "the drafts are reliable only once and only once"
    insisted = rules.duplicate_elimination is Requested.ALWAYS
    if draft and refuses and insisted and not terms.reliable:
        return "the drafts can ask that copies are dropped of reliable messages only"
    signed = AckRequest.SIGNED in (terms.ack_requested, terms.hop_ack_requested)
    if dialect is Dialect.RM_078 and (rules.ack is not Requested.WHEN_STATED or signed):
        return "rm-0.78 cannot state what the To Party's handler is asked for"
    if refuses and rules.ack_signature is Requested.NEVER and signed:
        return "a signed acknowledgement is asked for and forbidden"
    if refuses and rules.ack is Requested.ALWAYS and not terms.runs_protocol:
        return "an acknowledgement is insisted on, and the transport gives none"
    return ""


def _wrong_kind(binding: ActionBinding) -> bool:
    """Whether what we ask for is of another kind than ack.signature allows. For the next
    handler ack.hop_request says it, and nobody compares the two."""
    rules, terms = binding.rules, binding.terms
    at_end = rules.actor is Actor.TO_PARTY_MSH
    asked = terms.ack_requested if at_end else terms.hop_ack_requested
    ruled_out = {Requested.ALWAYS: AckRequest.UNSIGNED, Requested.NEVER: AckRequest.SIGNED}
    return ruled_out.get(rules.ack_signature) is asked


def _hop(agreement: Agreement) -> str:
    terms, form = agreement.sending.terms, agreement.form
    if (
        agreement.forwards
        and terms.hop_mode is HopMode.TRANSIENT_UNTIL_FORWARDED
        and form.dialect is Dialect.EBMS2
        and Extension.TRANSIENT_ERROR not in form.extensions
    ):
        return "a hub that asks to come back later needs the extension transient_error"
    # Of two hubs each is a sender to the other, with retries of its own.
    through = agreement.via is not None or (agreement.forwards and agreement.partner.behind)
    if (
        through
        and is_slow(agreement)
        and (terms.retries < PATIENT or (terms.time_to_live or MINUTE) < MINUTE)
    ):
        return "a hub that asks to come back later needs a sender that does so, for a while"
    between = agreement.forwards and bool(agreement.partner.behind)
    if between and is_slow(agreement) and not _outlasts_two(terms):
        return "two hubs that ask to come back later, and senders that stop asking too soon"
    if agreement.via is not None and is_slow(agreement) and terms.never_repeated:
        return "a hub that asks to come back later, and a request that is never repeated"
    insists = terms.header_conflict in (HeaderConflict.AGREEMENT_WARN, HeaderConflict.REJECT)
    per_hop = terms.numbered and terms.scope is not Scope.CONVERSATION
    if agreement.via is not None and per_hop and _only_passes(agreement) and insists:
        return "a hub that only passes on gives no numbers, and the receiver insists on them"
    return ""


def _outlasts_two(terms: Terms) -> bool:
    """Whether a sender still asks when its message had to wait for another one between two hubs.

    Where they are sent one at a time, or the other one begins the stream, the hub asks for each
    of the two twice, a Timeout apart; a sender asks for the last time a Timeout and all but one
    of its RetryIntervals after it began.
    """
    alone = not terms.numbered and terms.flow is FlowMode.UNRESTRICTED
    return alone or (terms.retries - 1) * terms.retry_interval > terms.timeout


def _only_passes(agreement: Agreement) -> bool:
    """Whether hubs on the way take nothing upon themselves."""
    terms, dialect = agreement.sending.terms, agreement.form.dialect
    # rm-0.78 has no words for asking the next handler.
    asked = terms.hop_ack_requested is not AckRequest.NONE and dialect is not Dialect.RM_078
    return terms.hop_mode is HopMode.TRANSPARENT or (
        terms.hop_mode is HopMode.BY_REQUEST and not asked
    )


def believes_hubs(agreement: Agreement) -> bool:
    """Whether a sender waits for a hub's own acknowledgement, and for no other.

    Whoever asks for signatures believes nothing without one, so such a hub needs a key: without
    it nothing that is sent through it could ever count as delivered.
    """
    terms, form = agreement.sending.terms, agreement.form
    if agreement.via is None or _only_passes(agreement):
        return False
    told_apart = form.dialect is Dialect.EBMS2 or form.ack_typed
    return terms.ack_requested is AckRequest.NONE or not told_apart


def is_slow(agreement: Agreement) -> bool:
    """Whether hubs on the way send everybody away first and acknowledge later."""
    return agreement.sending.terms.hop_mode is HopMode.TRANSIENT_UNTIL_FORWARDED

"""The dangers of an agreement, each a small judge that says nothing when all is well."""

from __future__ import annotations

from collections.abc import Iterator

from oncewire.agreement.agreement import (
    TRANSPORTS,
    ActionBinding,
    Agreement,
    Direction,
    EndpointType,
    Origin,
    Requested,
)
from oncewire.agreement.check.exposure import (
    EXPIRING_SOON,
    certificates,
    known_certificates,
    recognition,
    signatures,
    unprotected_ways,
)
from oncewire.agreement.check.finding import Danger, Severity
from oncewire.agreement.check.hops import via_dangers
from oncewire.agreement.check.large import large_documents
from oncewire.message.acknowledgment import Actor
from oncewire.message.form import Extension
from oncewire.message.header import AckRequest, SyncReplyMode
from oncewire.message.ids import is_uri
from oncewire.message.instant import Instant, format_duration, format_instant
from oncewire.protocol.terms import AckBundling, HeaderConflict, HopMode, Scope, SyncBundle

# --- the whole agreement -----------------------------------------------------------------------


def agreement_dangers(agreement: Agreement, now: Instant | None) -> Iterator[Danger]:
    """What the agreement as a whole risks. Without `now` no dates are judged."""
    yield from _features(agreement)
    yield from _period(agreement, now)
    yield from _parties(agreement)
    yield from _unread(agreement)
    yield from known_certificates(agreement, now)
    yield from recognition(agreement)
    yield from via_dangers(agreement)


def _features(agreement: Agreement) -> Iterator[Danger]:
    for key, sentence in agreement.not_offered:
        yield Danger(Severity.DANGER, key, sentence, "agree on something that both sides have")


def _period(agreement: Agreement, now: Instant | None) -> Iterator[Danger]:
    if agreement.status == "proposed":
        yield Danger(
            Severity.HINT, "status", "the agreement is only proposed", "have it agreed or signed"
        )
    if now is None:
        return
    if agreement.end is not None and now >= agreement.end:
        yield Danger(
            Severity.ERROR,
            "end",
            f"the agreement ended at {format_instant(agreement.end)}; its messages are refused",
            "agree on a new period",
        )
    elif agreement.end is not None and now >= agreement.end - EXPIRING_SOON:
        yield Danger(
            Severity.HINT,
            "end",
            f"the agreement ends at {format_instant(agreement.end)}",
            "agree on a new period in time",
        )
    if agreement.start is not None and now < agreement.start:
        yield Danger(
            Severity.HINT,
            "start",
            f"the agreement starts at {format_instant(agreement.start)}; until then its "
            "messages are refused",
            "wait, or agree on an earlier start",
        )


def _parties(agreement: Agreement) -> Iterator[Danger]:
    for name, side in (("own", agreement.own), ("partner", agreement.partner)):
        for party_id in side.party.ids:
            if party_id.type is None and not is_uri(party_id.value):
                yield Danger(
                    Severity.DANGER,
                    f"{name}.type",
                    f"the PartyId {party_id.value} has no type and is no URI; other handlers "
                    "answer it with Inconsistent",
                    f"give [{name}] a type, or use a URI as party_id",
                )
    if agreement.own.party.shares_id_with(agreement.partner.party):
        yield Danger(
            Severity.DANGER,
            "partner.party_id",
            "both sides have the same PartyId; a message to the partner is one to ourselves",
            "give the partner its own id",
        )


def _unread(agreement: Agreement) -> Iterator[Danger]:
    """What may be said of the partner only: nobody asks it of ourselves."""
    if agreement.own.client_certificates:
        yield Danger(
            Severity.HINT,
            "own.client_certificates",
            "which certificate we show is not read from here: it is the one of [keys] in "
            "oncewire.toml",
            "give the partner its fingerprint",
        )
    for name in ("behind", "behind_services", "behind_all"):
        if not getattr(agreement.own, name):
            continue
        yield Danger(
            Severity.HINT,
            f"own.{name}",
            "who is behind ourselves is not read from here: that is for the partner to say",
            "add forwards = true to pass messages on, and name the parties in [partner] behind",
        )


# --- one binding -------------------------------------------------------------------------------


def binding_dangers(
    agreement: Agreement, binding: ActionBinding, now: Instant | None
) -> Iterator[Danger]:
    """What one direction or action of the agreement risks."""
    yield from _times(binding)
    yield from _refused_wishes(binding)
    yield from _numbers(agreement, binding)
    yield from _sync(binding)
    yield from _delegated(binding)
    yield from _addresses(agreement, binding)
    yield from signatures(binding)
    yield from unprotected_ways(agreement, binding)
    yield from certificates(binding, now)
    yield from large_documents(agreement, binding)


def _times(binding: ActionBinding) -> Iterator[Danger]:
    """Retries and lifetimes against how long ids are remembered (DRV-4)."""
    terms = binding.terms
    if not terms.runs_protocol:
        return
    if terms.longest_retry > terms.persist_duration:
        yield Danger(
            Severity.DANGER,
            "delivery.persist_duration",
            f"messages are retried for {format_duration(terms.longest_retry)}, but ids are "
            f"remembered for {format_duration(terms.persist_duration)}; the last retries are "
            "never made, or would be delivered twice by a partner that forgets sooner",
            "keep messages longer, or retry less often or in shorter steps",
        )
    life = terms.time_to_live
    if life is not None and life > terms.persist_duration:
        yield Danger(
            Severity.DANGER,
            "delivery.time_to_live",
            f"messages live {format_duration(life)}, longer than the "
            f"{format_duration(terms.persist_duration)} their ids are remembered",
            "let them live no longer than persist_duration",
        )
    elif life is not None and life <= terms.longest_retry:
        yield Danger(
            Severity.HINT,
            "delivery.time_to_live",
            f"messages live {format_duration(life)} and expire before the last of their retries",
            f"let them live longer than {format_duration(terms.longest_retry)}",
        )
    said = {value.key: value.origin for value in binding.values}
    if said.get("delivery.retries") is Origin.DEFAULT:
        yield Danger(
            Severity.HINT,
            "delivery.retries",
            f"nobody said how long is tried: a message is given up after "
            f"{format_duration(terms.longest_retry)}",
            "say delivery.retries and delivery.retry_interval; a partner may be away for a night",
        )
    elif terms.retries == 0:
        yield Danger(
            Severity.HINT,
            "delivery.retries",
            "messages are never resent, so one lost packet loses a message",
            "allow at least a few retries",
        )


def _refused_wishes(binding: ActionBinding) -> Iterator[Danger]:
    """What our messages ask of the next handler, though the agreement refuses it (CPA-12)."""
    rules, terms = binding.rules, binding.terms
    asked, signature = terms.hop_ack_requested, rules.ack_signature
    judged = rules.ack is not Requested.WHEN_STATED and rules.actor is Actor.NEXT_MSH
    if asked is AckRequest.NONE or terms.header_conflict is not HeaderConflict.REJECT:
        return
    agreed = {Requested.ALWAYS: AckRequest.SIGNED, Requested.NEVER: AckRequest.UNSIGNED}
    if judged and agreed.get(signature, asked) is not asked:
        yield Danger(
            Severity.ERROR,
            "ack.hop_request",
            f"messages ask the next handler for an acknowledgement that is {asked.value}, and "
            f"ack.signature is {signature.value}: each of them would be refused",
            f"set ack.hop_request to {agreed[signature].value}, or ack.signature to perMessage",
        )


def _numbers(agreement: Agreement, binding: ActionBinding) -> Iterator[Danger]:
    """Numbers that cannot do what they are for, or cannot travel (C6, C29)."""
    terms = binding.terms
    if not terms.numbered:
        return
    if agreement.via is not None and terms.scope is not Scope.CONVERSATION:
        yield Danger(
            Severity.DANGER,
            "sequence.scope",
            f"all partners behind {agreement.via.label} share one numbered stream; one that "
            "stands still stops the others",
            "use scope conversation, or one agreement with the hub itself",
        )
    yield from _unseen_order(agreement, binding)
    by_hop = terms.scope is not Scope.CONVERSATION
    if by_hop and not agreement.form.carries(Extension.HOP_SEQUENCE):
        yield Danger(
            Severity.ERROR,
            "wire.extensions",
            f"numbers per {terms.scope.value} cannot travel in {agreement.form.dialect.value}",
            "agree on the extension hop_sequence, or use scope conversation",
        )
    if not by_hop and binding.rules.duplicate_elimination is Requested.NEVER:
        yield Danger(
            Severity.ERROR,
            "duplicate.elimination",
            "order needs DuplicateElimination, and the agreement forbids it",
            "set duplicate.elimination to always",
        )


def _unseen_order(agreement: Agreement, binding: ActionBinding) -> Iterator[Danger]:
    """A number of the whole way that is settled by a hub on it (HOP-8, gap 14)."""
    terms = binding.terms
    if agreement.via is None or binding.direction is not Direction.SEND:
        return
    far = terms.ack_requested is not AckRequest.NONE
    until_forwarded = terms.hop_mode is HopMode.TRANSIENT_UNTIL_FORWARDED
    if terms.scope is Scope.CONVERSATION and not far and not until_forwarded:
        yield Danger(
            Severity.ERROR,
            "ack.actor",
            f"conversations are numbered up to the partner, but only {agreement.via.label} "
            "acknowledges: a number that it cannot deliver counts as done here, and the partner "
            "waits for it in vain",
            "ask for the To Party's acknowledgement, or number per hop (scope pair)",
        )


def _sync(binding: ActionBinding) -> Iterator[Danger]:
    """Replies on the same connection that cannot come back so (SYNC-4, SYNC-6, SYNC-10)."""
    terms = binding.terms
    if not terms.synchronous:
        return
    if terms.ordered and terms.scope is Scope.CONVERSATION:
        yield Danger(
            Severity.ERROR,
            "sync.mode",
            "SyncReply and MessageOrder exclude each other; partners answer Inconsistent",
            "give up the synchronous reply or the order",
        )
    asks = any(
        request is not AckRequest.NONE for request in (terms.ack_requested, terms.hop_ack_requested)
    )
    alone = terms.ack_bundling is AckBundling.STANDALONE
    draft = binding.rules.sync is Requested.WHEN_STATED
    if terms.sync_mode is SyncReplyMode.RESPONSE_ONLY and asks and (alone or draft):
        yield Danger(
            Severity.ERROR,
            "sync.mode",
            "ResponseOnly leaves no place for the acknowledgement that is asked for",
            "use signalsAndResponse, or ask for no acknowledgement",
        )
    apart = alone and terms.sync_bundle is SyncBundle.MERGED
    if terms.sync_mode is SyncReplyMode.SIGNALS_AND_RESPONSE and asks and apart:
        yield Danger(
            Severity.DANGER,
            "sync.bundle",
            "acknowledgement and response may share neither a header nor a body: the "
            "acknowledgement alone comes back on the connection, the response later",
            "set sync.bundle to concatenated, or ack.bundling to auto",
        )
    if "http" not in terms.transports:
        yield Danger(
            Severity.DANGER,
            "sync.mode",
            f"{', '.join(terms.transports)} cannot reply on the same connection; replies come "
            "later, with a warning",
            "use http, or set sync.mode to none",
        )


_TRUSTED = frozenset({"broker"})
"""Transports whose word is a proof that the receiver has stored the message."""


def _delegated(binding: ActionBinding) -> Iterator[Danger]:
    """Reliability that is left to a transport which cannot give it (RM-7)."""
    terms = binding.terms
    others = [name for name in terms.transports if name not in _TRUSTED]
    if terms.reliable and not terms.runs_protocol and others:
        yield Danger(
            Severity.ERROR,
            "delivery.method",
            f"{', '.join(others)} is trusted to deliver, and only tells that it has taken a "
            "message: that is no proof that the receiver has it",
            "use the transport broker, or set delivery.method to ebXML",
        )


def _addresses(agreement: Agreement, binding: ActionBinding) -> Iterator[Danger]:
    via = agreement.via
    endpoints = binding.endpoints
    if binding.direction is Direction.SEND and via is not None and via.endpoints:
        endpoints = via.endpoints
    for transport in binding.terms.transports:
        if transport not in TRANSPORTS:
            yield Danger(
                Severity.ERROR,
                "delivery.transports",
                f"there is no transport {transport}",
                "use one of " + ", ".join(TRANSPORTS),
            )
        elif binding.direction is Direction.SEND and not any(
            endpoint.transport == transport for endpoint in endpoints
        ):
            yield Danger(
                Severity.ERROR,
                f"partner.{transport}",
                f"the partner has no address for {transport}",
                f"add {transport} to [partner], or take it out of delivery.transports",
            )
    for endpoint in endpoints:
        if endpoint.transport == "http" and endpoint.address.lower().startswith("http:"):
            yield Danger(
                Severity.DANGER,
                "partner.http" if binding.direction is Direction.SEND else "own.http",
                f"{endpoint.address} is plain HTTP: anyone on the way can read and change messages",
                "use https",
            )
    typed = {endpoint.type for endpoint in endpoints}
    if endpoints and EndpointType.ALL_PURPOSE not in typed and EndpointType.ERROR not in typed:
        yield Danger(
            Severity.HINT,
            "partner.http",
            "there is no address for errors and none for all purposes",
            "add one of type error or allPurpose",
        )

"""The dangers of an agreement, each a small judge that says nothing when all is well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    broken_addresses,
    certificates,
    known_certificates,
    recognition,
    signatures,
    unprotected_ways,
)
from oncewire.agreement.check.finding import Danger, Severity
from oncewire.message.envelope import Actor
from oncewire.message.form import AckRequest, Extension, PartsForm, SyncReplyMode
from oncewire.message.ids import is_uri
from oncewire.message.instant import Duration, Instant, format_duration, format_instant
from oncewire.protocol.terms import (
    AckBundling,
    FlowMode,
    HeaderConflict,
    HopMode,
    Scope,
    SyncBundle,
    Terms,
)

# Dangers that only show when two hops are looked at together (gap 11).


def via_dangers(agreement: Agreement) -> Iterator[Danger]:
    """Our hop to a hub against the hub's onward hop, as far as we were told of it (SYNC-20)."""
    via = agreement.via
    if via is None:
        return
    for binding in (agreement.sending, *agreement.actions):
        terms = binding.terms
        if via.longest_retry is not None and _waits_for_the_end(terms):
            yield from _outer_and_inner(terms.timeout, via.longest_retry, via.label)
        if via.sync_timeout is not None and terms.synchronous:
            yield from _connections(terms.sync_timeout, via.sync_timeout, via.label)
        if terms.synchronous and terms.reliable:
            yield Danger(
                Severity.HINT,
                "sync.mode",
                "synchronous replies through a hub suit what is not critical; a broken "
                "connection anywhere ends them",
                "ask for acknowledgements here only where non-repudiation needs them",
            )


def hub_dangers(agreements: Iterable[Agreement]) -> Iterator[tuple[str, Danger]]:
    """We are the hub: each partner that sends to us against each that we send on to."""
    hubs = [agreement for agreement in agreements if agreement.forwards]
    for before in hubs:
        for onward in hubs:
            if before is onward:
                continue
            outer, inner = before.receiving.terms, onward.sending.terms
            name = onward.partner.party.ids[0].value
            found: list[Danger] = []
            if _waits_for_the_end(outer):
                found += _outer_and_inner(outer.timeout, inner.longest_retry, name)
            if SyncReplyMode.NONE not in (outer.sync_mode, inner.sync_mode):
                found += _connections(outer.sync_timeout, inner.sync_timeout, name)
            for danger in found:
                yield before.cpa_id, danger


def _waits_for_the_end(terms: Terms) -> bool:
    """Whether the sender's timer runs until the far end answers, not only the hub."""
    if not terms.runs_protocol:
        return False
    if terms.ack_requested is not AckRequest.NONE:
        return True
    return terms.hop_mode in (HopMode.TRANSPARENT, HopMode.TRANSIENT_UNTIL_FORWARDED)


def _outer_and_inner(outer: Duration, inner: Duration, name: str) -> Iterator[Danger]:
    if outer <= inner:
        yield Danger(
            Severity.DANGER,
            "delivery.timeout",
            f"the sender resends after {format_duration(outer)}, while {name} may still be "
            f"retrying for {format_duration(inner)}; every resend adds to the load",
            f"wait longer than {format_duration(inner)} before the first resend",
        )


def _connections(outer: Duration, inner: Duration, name: str) -> Iterator[Danger]:
    if inner >= outer:
        yield Danger(
            Severity.DANGER,
            "sync.timeout",
            f"the connection is held for {format_duration(outer)}, but the one beyond {name} "
            f"for {format_duration(inner)}; replies come after the sender has left",
            f"hold it longer than {format_duration(inner)}",
        )


# Large: what an agreement says of documents that are too large for one message.


def large_documents(agreement: Agreement, binding: ActionBinding) -> Iterator[Danger]:
    """What cannot travel as it is agreed."""
    terms = binding.terms
    yield from _fragments(agreement, binding)
    yield from _bounds(binding)
    for key, wanted, extension in (
        ("payload.max_size", terms.max_size is not None, Extension.SPLIT),
        ("payload.compress", terms.compress_encoding is not None, Extension.COMPRESSION),
    ):
        if wanted and not _can_carry(agreement, extension):
            what = "larger documents are refused" if key.endswith("size") else "nothing says so"
            yield Danger(
                Severity.HINT,
                key,
                f"{key} is agreed, but {extension.value} cannot travel: {what}",
                f'agree on the extension, on both sides: "{extension.value}" in wire.extensions',
            )


def _can_carry(agreement: Agreement, extension: Extension) -> bool:
    form = agreement.form
    # Fragments need neither: another message names them, and says how they are made.
    return form.parts is PartsForm.MID or form.carries(extension)


def _bounds(binding: ActionBinding) -> Iterator[Danger]:
    """Bounds under which a document that another bound allows is refused all the same."""
    terms = binding.terms
    whole, size = terms.max_document, terms.max_size
    if whole is not None and size is not None and whole <= size:
        yield Danger(
            Severity.DANGER,
            "payload.max_document",
            "it is no more than payload.max_size: no document in parts is ever taken",
            "agree on more, or leave it out",
        )
    if whole is not None and terms.quota is not None and terms.quota < whole:
        yield Danger(
            Severity.DANGER,
            "payload.quota",
            f"a document of payload.max_document, {whole:,} bytes, never fits into it",
            "agree on a quota of several documents",
        )
    most = None if terms.max_parts is None or size is None else terms.max_parts * size
    if most is not None and whole is not None and most < whole:
        yield Danger(
            Severity.HINT,
            "payload.max_parts",
            f"that many parts have {most:,} bytes, payload.max_document allows {whole:,}",
            "agree on more parts, or on a larger payload.max_size",
        )


def _fragments(agreement: Agreement, binding: ActionBinding) -> Iterator[Danger]:
    """What keeps documents from travelling as NHS Spine's fragments where that is agreed."""
    terms = binding.terms
    if agreement.form.parts is not PartsForm.MID or terms.max_size is None:
        return
    if terms.numbered or terms.flow is not FlowMode.UNRESTRICTED:
        yield Danger(
            Severity.ERROR,
            "payload.parts",
            "fragments have no place in a numbered stream: a document of more than MaxSize is "
            "refused",
            "agree on sequence.numbered = false and flow.mode = unrestricted, or on parts = split",
        )
    if terms.compress_encoding not in (None, "gzip"):
        yield Danger(
            Severity.ERROR,
            "payload.compress",
            "fragments are compressed by gzip or not at all: a document of more than MaxSize is "
            "refused",
            "agree on gzip, or on none",
        )


# --- the whole agreement -----------------------------------------------------------------------


def agreement_dangers(agreement: Agreement, now: Instant | None) -> Iterator[Danger]:
    """What the agreement as a whole risks. Without `now` no dates are judged."""
    for key, sentence in agreement.not_offered:
        yield Danger(Severity.DANGER, key, sentence, "agree on something that both sides have")
    yield from _period(agreement, now)
    yield from _parties(agreement)
    yield from _unread(agreement)
    yield from known_certificates(agreement, now)
    yield from recognition(agreement)
    yield from via_dangers(agreement)
    yield from broken_addresses(agreement)


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
    """Keys that may be said of the partner only."""
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
    # Reliability that is left to a transport which cannot give it (RM-7).
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
            f"the agreement does not say how long is tried: a message is given up after "
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

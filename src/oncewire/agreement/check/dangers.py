"""Finds what is wrong or dangerous in an agreement before it costs a message.

An error cannot work, a danger works until the day it loses, doubles or exposes a message,
a hint is worth a thought. Each finding says what is the matter in one sentence and what
to do about it in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from oncewire.agreement.agreement import (
    TRANSPORTS,
    ActionBinding,
    Agreement,
    Agreements,
    Direction,
    EndpointType,
    Origin,
    Requested,
)
from oncewire.agreement.certificates import fingerprint
from oncewire.agreement.check import Danger, Finding, Severity, danger, error, hint
from oncewire.agreement.check.exposure import (
    EXPIRING_SOON,
    Abilities,
    beyond_abilities,
    broken_addresses,
    certificates,
    known_certificates,
    recognition,
    signatures,
    unprotected_ways,
)
from oncewire.errors import AgreementProblem
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
            yield hint(
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
            for each in found:
                yield before.cpa_id, each


def _waits_for_the_end(terms: Terms) -> bool:
    """Whether the sender's timer runs until the far end answers, not only the hub."""
    if not terms.runs_protocol:
        return False
    if terms.ack_requested is not AckRequest.NONE:
        return True
    return terms.hop_mode in (HopMode.TRANSPARENT, HopMode.TRANSIENT_UNTIL_FORWARDED)


def _outer_and_inner(outer: Duration, inner: Duration, name: str) -> Iterator[Danger]:
    if outer <= inner:
        yield danger(
            "delivery.timeout",
            f"the sender resends after {format_duration(outer)}, while {name} may still be "
            f"retrying for {format_duration(inner)}; every resend adds to the load",
            f"wait longer than {format_duration(inner)} before the first resend",
        )


def _connections(outer: Duration, inner: Duration, name: str) -> Iterator[Danger]:
    if inner >= outer:
        yield danger(
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
        form = agreement.form
        # Fragments need neither: another message names them, and says how they are made.
        if wanted and not (form.parts is PartsForm.MID or form.carries(extension)):
            what = "larger documents are refused" if key.endswith("size") else "nothing says so"
            yield hint(
                key,
                f"{key} is agreed, but {extension.value} cannot travel: {what}",
                f'agree on the extension, on both sides: "{extension.value}" in wire.extensions',
            )


def _bounds(binding: ActionBinding) -> Iterator[Danger]:
    """Bounds under which a document that another bound allows is refused all the same."""
    terms = binding.terms
    whole, size = terms.max_document, terms.max_size
    if whole is not None and size is not None and whole <= size:
        yield danger(
            "payload.max_document",
            "it is no more than payload.max_size: no document in parts is ever taken",
            "agree on more, or leave it out",
        )
    if whole is not None and terms.quota is not None and terms.quota < whole:
        yield danger(
            "payload.quota",
            f"a document of payload.max_document, {whole:,} bytes, never fits into it",
            "agree on a quota of several documents",
        )
    most = None if terms.max_parts is None or size is None else terms.max_parts * size
    if most is not None and whole is not None and most < whole:
        yield hint(
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
        yield error(
            "payload.parts",
            "fragments have no place in a numbered stream: a document of more than MaxSize is "
            "refused",
            "agree on sequence.numbered = false and flow.mode = unrestricted, or on parts = split",
        )
    if terms.compress_encoding not in (None, "gzip"):
        yield error(
            "payload.compress",
            "fragments are compressed by gzip or not at all: a document of more than MaxSize is "
            "refused",
            "agree on gzip, or on none",
        )


# --- the whole agreement -----------------------------------------------------------------------


def agreement_dangers(agreement: Agreement, now: Instant | None) -> Iterator[Danger]:
    """What the agreement as a whole risks. Without `now` no dates are judged."""
    for key, sentence in agreement.not_offered:
        yield danger(key, sentence, "agree on something that both sides have")
    yield from _period(agreement, now)
    yield from _parties(agreement)
    yield from _unread(agreement)
    yield from known_certificates(agreement, now)
    yield from recognition(agreement)
    yield from via_dangers(agreement)
    yield from broken_addresses(agreement)


def _period(agreement: Agreement, now: Instant | None) -> Iterator[Danger]:
    if agreement.status == "proposed":
        yield hint("status", "the agreement is only proposed", "have it agreed or signed")
    if now is None:
        return
    if agreement.end is not None and now >= agreement.end:
        yield error(
            "end",
            f"the agreement ended at {format_instant(agreement.end)}; its messages are refused",
            "agree on a new period",
        )
    elif agreement.end is not None and now >= agreement.end - EXPIRING_SOON:
        yield hint(
            "end",
            f"the agreement ends at {format_instant(agreement.end)}",
            "agree on a new period in time",
        )
    if agreement.start is not None and now < agreement.start:
        yield hint(
            "start",
            f"the agreement starts at {format_instant(agreement.start)}; until then its "
            "messages are refused",
            "wait, or agree on an earlier start",
        )


def _parties(agreement: Agreement) -> Iterator[Danger]:
    for name, side in (("own", agreement.own), ("partner", agreement.partner)):
        for party_id in side.party.ids:
            if party_id.type is None and not is_uri(party_id.value):
                yield danger(
                    f"{name}.type",
                    f"the PartyId {party_id.value} has no type and is no URI; other handlers "
                    "answer it with Inconsistent",
                    f"give [{name}] a type, or use a URI as party_id",
                )
    if agreement.own.party.shares_id_with(agreement.partner.party):
        yield danger(
            "partner.party_id",
            "both sides have the same PartyId; a message to the partner is one to ourselves",
            "give the partner its own id",
        )


def _unread(agreement: Agreement) -> Iterator[Danger]:
    """Keys that may be said of the partner only."""
    if agreement.own.client_certificates:
        yield hint(
            "own.client_certificates",
            "which certificate we show is not read from here: it is the one of [keys] in "
            "oncewire.toml",
            "give the partner its fingerprint",
        )
    for name in ("behind", "behind_services", "behind_all"):
        if not getattr(agreement.own, name):
            continue
        yield hint(
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
        yield error(
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
        yield danger(
            "delivery.persist_duration",
            f"messages are retried for {format_duration(terms.longest_retry)}, but ids are "
            f"remembered for {format_duration(terms.persist_duration)}; the last retries are "
            "never made, or would be delivered twice by a partner that forgets sooner",
            "keep messages longer, or retry less often or in shorter steps",
        )
    life = terms.time_to_live
    if life is not None and life > terms.persist_duration:
        yield danger(
            "delivery.time_to_live",
            f"messages live {format_duration(life)}, longer than the "
            f"{format_duration(terms.persist_duration)} their ids are remembered",
            "let them live no longer than persist_duration",
        )
    elif life is not None and life <= terms.longest_retry:
        yield hint(
            "delivery.time_to_live",
            f"messages live {format_duration(life)} and expire before the last of their retries",
            f"let them live longer than {format_duration(terms.longest_retry)}",
        )
    said = {value.key: value.origin for value in binding.values}
    if said.get("delivery.retries") is Origin.DEFAULT:
        yield hint(
            "delivery.retries",
            f"the agreement does not say how long is tried: a message is given up after "
            f"{format_duration(terms.longest_retry)}",
            "say delivery.retries and delivery.retry_interval; a partner may be away for a night",
        )
    elif terms.retries == 0:
        yield hint(
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
        yield error(
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
        yield danger(
            "sequence.scope",
            f"all partners behind {agreement.via.label} share one numbered stream; one that "
            "stands still stops the others",
            "use scope conversation, or one agreement with the hub itself",
        )
    yield from _unseen_order(agreement, binding)
    by_hop = terms.scope is not Scope.CONVERSATION
    if by_hop and not agreement.form.carries(Extension.HOP_SEQUENCE):
        yield error(
            "wire.extensions",
            f"numbers per {terms.scope.value} cannot travel in {agreement.form.dialect.value}",
            "agree on the extension hop_sequence, or use scope conversation",
        )
    if not by_hop and binding.rules.duplicate_elimination is Requested.NEVER:
        yield error(
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
        yield error(
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
        yield error(
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
        yield error(
            "sync.mode",
            "ResponseOnly leaves no place for the acknowledgement that is asked for",
            "use signalsAndResponse, or ask for no acknowledgement",
        )
    apart = alone and terms.sync_bundle is SyncBundle.MERGED
    if terms.sync_mode is SyncReplyMode.SIGNALS_AND_RESPONSE and asks and apart:
        yield danger(
            "sync.bundle",
            "acknowledgement and response may share neither a header nor a body: the "
            "acknowledgement alone comes back on the connection, the response later",
            "set sync.bundle to concatenated, or ack.bundling to auto",
        )
    if "http" not in terms.transports:
        yield danger(
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
            yield error(
                "delivery.transports",
                f"there is no transport {transport}",
                "use one of " + ", ".join(TRANSPORTS),
            )
        elif binding.direction is Direction.SEND and not any(
            endpoint.transport == transport for endpoint in endpoints
        ):
            yield error(
                f"partner.{transport}",
                f"the partner has no address for {transport}",
                f"add {transport} to [partner], or take it out of delivery.transports",
            )
    for endpoint in endpoints:
        if endpoint.transport == "http" and endpoint.address.lower().startswith("http:"):
            yield danger(
                "partner.http" if binding.direction is Direction.SEND else "own.http",
                f"{endpoint.address} is plain HTTP: anyone on the way can read and change messages",
                "use https",
            )
    typed = {endpoint.type for endpoint in endpoints}
    if endpoints and EndpointType.ALL_PURPOSE not in typed and EndpointType.ERROR not in typed:
        yield hint(
            "partner.http",
            "there is no address for errors and none for all purposes",
            "add one of type error or allPurpose",
        )


# Dangers that only show when agreements are laid side by side: two that claim one name.


def claim_dangers(agreements: Iterable[Agreement]) -> Iterator[tuple[str, Danger]]:
    """One PartyId that is believed of different keys, one CPAId that is of different partners."""
    parties: dict[str, Agreement] = {}
    names: dict[str, Agreement] = {}
    for new in agreements:
        for value in dict.fromkeys(party_id.value for party_id in new.partner.party.ids):
            old = parties.setdefault(value, new)
            if _proofs(old) != _proofs(new):
                yield new.cpa_id, _two_keys(value, old)
        for name in dict.fromkeys((new.cpa_id, *new.also_known_as)):
            old = names.setdefault(name, new)
            if not old.partner.party.shares_id_with(new.partner.party):
                yield new.cpa_id, _two_partners(name, old)


def _two_keys(party_id: str, old: Agreement) -> Danger:
    return danger(
        "partner.party_id",
        f"{party_id} is the partner of agreement {old.cpa_id} too, which believes other "
        "certificates: the holder of any of them speaks in its name",
        "ask the partner which certificates are its own; if it is another party, remove this "
        "agreement",
    )


def _two_partners(name: str, old: Agreement) -> Danger:
    return hint(
        "cpa_id",
        f"the agreement with {old.partner.party} is called {name} too",
        "give each partner's agreement a CPAId of its own, unless a community wants one for all",
    )


def _proofs(agreement: Agreement) -> frozenset[str]:
    """The fingerprints of every certificate that the partner is known by."""
    partner = agreement.partner
    ders = {*partner.certificates, *partner.signing_certificates}
    for binding in agreement.bindings():
        ders.update(binding.security.partner_certificates)
    return frozenset((*map(fingerprint, ders), *partner.client_certificates))


# --- findings ----------------------------------------------------------------------------------


def check(
    agreement: Agreement, *, now: Instant | None = None, abilities: Abilities | None = None
) -> tuple[Finding, ...]:
    """The findings about one agreement, worst first.

    Without `now` no dates are judged; without `abilities`, what a handler is able to do.
    """
    found = [(danger, "") for danger in agreement_dangers(agreement, now)]
    for binding in agreement.bindings():
        found += [(danger, binding.label) for danger in binding_dangers(agreement, binding, now)]
        if abilities is not None:
            found += [(danger, binding.label) for danger in beyond_abilities(binding, abilities)]
    return _sorted(agreement.cpa_id, found)


def check_all(
    agreements: Iterable[Agreement],
    *,
    now: Instant | None = None,
    abilities: Abilities | None = None,
) -> tuple[Finding, ...]:
    """The findings about every agreement, and about how they fit together."""
    everything = tuple(agreements)
    found = [
        finding
        for agreement in everything
        for finding in check(agreement, now=now, abilities=abilities)
    ]
    try:
        Agreements(everything)
    except AgreementProblem as problem:
        found.append(Finding(Severity.ERROR, problem.key, problem.problem, problem.remedy))
    for cpa_id, each in (*claim_dangers(everything), *hub_dangers(everything)):
        found += _sorted(cpa_id, [(each, "")])
    return _worst_first(found)


def _sorted(cpa_id: str, found: Iterable[tuple[Danger, str]]) -> tuple[Finding, ...]:
    """One finding for each different danger, with everything it concerns."""
    merged: dict[Danger, Finding] = {}
    for each, scope in found:
        old = merged.get(each)
        if old is None:
            old = Finding(*each, cpa_id)
        scopes = old.scopes if not scope or scope in old.scopes else (*old.scopes, scope)
        merged[each] = replace(old, scopes=scopes)
    return _worst_first(merged.values())


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))

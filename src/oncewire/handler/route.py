"""Route: which handler a message goes to next, under which values, at which addresses.

The next handler is the partner's own, or the hub the agreement names. Its label is what the journal
calls `peer`, and what finds the agreement of the hop again when a stored message is sent later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oncewire.agreement.agreement import (
    ActionBinding,
    Agreement,
    Direction,
    Endpoint,
    EndpointType,
    address_of,
)
from oncewire.agreement.resolve import binding_named, channel_of, endpoint_type
from oncewire.errors import InvalidValue
from oncewire.message.envelope import Message, RoutingHeader, SequenceNumber
from oncewire.message.form import AckRequest, Form, Security
from oncewire.message.ids import PartyId
from oncewire.message.instant import Instant
from oncewire.protocol.terms import FlowMode, Scope, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredIncoming, StoredOutgoing
from oncewire.wire.answers import Envelope
from oncewire.wire.limits import Limits, beyond

if TYPE_CHECKING:
    from oncewire.handler.context import HandlerContext


@dataclass(frozen=True, slots=True)
class Route:
    """One hop, seen from the sending side."""

    agreement: Agreement
    binding: ActionBinding
    terms: Terms
    form: Form
    security: Security
    # The next handler: label, and how the drafts' RoutingHeader calls both ends.
    peer: str
    sender_id: PartyId
    receiver_id: PartyId
    sender_uri: str | None
    receiver_uri: str | None
    endpoints: tuple[Endpoint, ...]

    def address(self, transport: str, kind: EndpointType = EndpointType.ALL_PURPOSE) -> str | None:
        """Where the next handler listens on that transport."""
        return address_of(self.endpoints, transport, kind)

    def addresses(self, transports: Iterable[str], kind: EndpointType) -> dict[str, str]:
        """Where the next handler listens, by each of these transports that it has."""
        found = {name: address_of(self.endpoints, name, kind) for name in transports}
        return {name: address for name, address in found.items() if address is not None}

    def hop(self, stamp: Instant, ack: AckRequest | None = None) -> RoutingHeader:
        """The RoutingHeader of this hop, without a number. `ack`: what is asked of the next
        handler; None: as the terms say."""
        return RoutingHeader(
            sender_uri=self.sender_uri,
            receiver_uri=self.receiver_uri,
            sender_id=self.sender_id,
            receiver_id=self.receiver_id,
            timestamp=stamp,
            ack_requested=self.terms.hop_ack_requested if ack is None else ack,
            method=self.terms.method,
        )

    def channel_of(self, conversation_id: str) -> str | None:
        """The stream of a message in that conversation, by the agreed scope (C6); None: no stream.

        A stream that is limited but not numbered on the wire still has a channel here.
        """
        terms = self.terms
        if not terms.runs_protocol:
            return None
        if terms.numbered:
            return channel_of(self.agreement, terms, Direction.SEND, conversation_id, None)
        if terms.flow is FlowMode.UNRESTRICTED:
            return None
        return f"{self.sender_id.value}>{self.receiver_id.value} (unnumbered)"


def peer_label(agreement: Agreement) -> str:
    """What the next handler under this agreement is called."""
    via = agreement.via
    return via.label if via is not None else agreement.partner.party.ids[0].value


def is_receiver(agreement: Agreement, stored: StoredOutgoing) -> bool:
    """Whether a message went to this agreement's partner, or to the handler before it (S10).

    No other handler is on its way, so no other's word counts. Two partners may be reached through
    one hub: what comes through it belongs to the message only under the message's agreement.
    """
    if stored.facts.to_party in {str(party_id) for party_id in agreement.partner.party.ids}:
        return True
    if peer_label(agreement) != stored.peer:
        return False
    names = (agreement.cpa_id, *agreement.also_known_as)
    relayed = stored.relayed_from is not None
    return agreement.via is None or relayed or stored.facts.cpa_id in names


def route_under(agreement: Agreement, binding: ActionBinding, terms: Terms | None = None) -> Route:
    """The hop to the partner, or to the hub in between, under one binding."""
    via = agreement.via
    partner = agreement.partner
    receiver_id = partner.party.ids[0]
    endpoints = binding.endpoints or partner.endpoints
    receiver_uri = partner.handler_uri
    if via is not None:
        receiver_id = via.party.ids[0] if via.party is not None else PartyId(via.label)
        endpoints, receiver_uri = via.endpoints, via.handler_uri
    return Route(
        agreement,
        binding,
        terms or binding.terms,
        agreement.form,
        binding.security,
        peer_label(agreement),
        agreement.own.party.ids[0],
        receiver_id,
        agreement.own.handler_uri,
        receiver_uri,
        endpoints,
    )


def agreement_for(context: HandlerContext, cpa_id: str, peer: str) -> Agreement | None:
    """The agreement of a hop: the message's own if it leads to that peer, else any that does."""
    fallback = None
    for agreement in context.agreements:
        if peer_label(agreement) != peer:
            continue
        if agreement.cpa_id == cpa_id or cpa_id in agreement.also_known_as:
            return agreement
        fallback = fallback or agreement
    return fallback


def agreement_toward(context: HandlerContext, party: str, service: str) -> Agreement | None:
    """The agreement under which a hub sends on to that party, by the names listings use."""
    hops = [agreement for agreement in context.agreements if agreement.forwards]
    for agreement in hops:
        if party in map(str, (*agreement.partner.party.ids, *agreement.partner.behind)):
            return agreement
    takers = [each for each in hops if service in each.partner.behind_services]
    return next(iter((*takers, *(each for each in hops if each.partner.behind_all))), None)


def as_of_today(context: HandlerContext, agreement: Agreement) -> Agreement:
    """The agreement of that name with the same two handlers, for a partner that has moved
    hears us at its new address; where it is gone, the one at hand."""
    known = context.agreements.by_cpa_id(agreement.cpa_id)
    if any(today is agreement for today in known):
        return agreement
    for each_agreement in known:
        if peer_label(each_agreement) == peer_label(agreement) and each_agreement.own.is_named_by(
            agreement.own.party
        ):
            return each_agreement
    return agreement


def agreement_of_hop(
    context: HandlerContext, tx: Transaction, stored: StoredOutgoing | StoredIncoming
) -> Agreement | None:
    """The agreement by which a stored message's other handler is reached: today's, for that
    may name a new address; where there is none any more, the one it was accepted under."""
    today = agreement_for(context, stored.facts.cpa_id, stored.peer)
    return today or context.agreement_kept(tx, stored.agreement_id)


def addresses_for(
    context: HandlerContext, tx: Transaction, stored: StoredOutgoing, transports: Iterable[str]
) -> dict[str, str]:
    """Where a stored message goes now, by transport, as far as its receiver has an address there;
    agreements may have changed since it was stored.

    An action may have addresses of its own, and a response another one than a request. What is
    passed on for others goes where the next handler takes everything (HOP-5).
    """
    agreement = agreement_of_hop(context, tx, stored)
    if agreement is None:
        return {}
    binding, kind = agreement.sending, EndpointType.ALL_PURPOSE
    if stored.relayed_from is None:
        facts = stored.facts
        binding = binding_named(agreement, facts.kind, facts.service, facts.action)
        kind = endpoint_type(facts.kind, reply=facts.ref_to is not None)
    return route_under(agreement, binding).addresses(transports, kind)


def with_number(message: Message, sequence: SequenceNumber, terms: Terms) -> Message:
    """The message with its number: of the conversation, or of the hop (C6)."""
    if not terms.numbered:
        return message
    if terms.scope is Scope.CONVERSATION:
        return replace(message, order=sequence)
    return replace(
        message, routing=(*message.routing[:-1], replace(message.routing[-1], sequence=sequence))
    )


def stamps_at_entry(terms: Terms) -> bool:
    """Whether a message gets the timestamp of its hop when it gets its number. Those of one hop may
    then pass each other while they wait, and the stamps still rise along the stream; where the
    numbers are a conversation's, its own timestamp counts, and it waits in order."""
    return terms.numbered and terms.scope is not Scope.CONVERSATION


def stamped(message: Message, stamp: Instant) -> Message:
    """The message with another timestamp of its hop."""
    hop = replace(message.routing[-1], timestamp=stamp)
    return replace(message, routing=(*message.routing[:-1], hop))


_AGREED = {
    "document_bytes": ("max_document", "payload.max_document"),
    "document_parts": ("max_parts", "payload.max_parts"),
    "compression_ratio": ("max_ratio", "payload.max_ratio"),
    "gathered_bytes": ("quota", "payload.quota"),
}
"""Of a limit: the term that may say less, and the key that it is agreed by."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one agreement, and what each of them is called."""

    limits: Limits
    names: dict[str, str]

    @classmethod
    def of(cls, limits: Limits, terms: Terms) -> Bounds:
        """Of a handler, under these terms."""
        names: dict[str, str] = {}
        for limit, (term, key) in _AGREED.items():
            agreed = getattr(terms, term)
            if agreed is not None and agreed < getattr(limits, limit):
                limits = dataclasses.replace(limits, **{limit: agreed})
                names[limit] = key
        return cls(limits, names)

    def check(self, limit: str, found: int, what: str, *, mime: bool = False) -> None:
        """Refuse more than a bound; `what`: in words, with the number."""
        bound: int = getattr(self.limits, limit)
        if found > bound:
            raise beyond(what, self.names.get(limit, limit), bound, mime=mime)


def check_to_send(limits: Limits, terms: Terms, size: int, parts: int) -> None:
    """Refuse a document that its receiver would refuse; `parts` 0: not counted yet."""
    bounds = Bounds.of(limits, terms)
    for limit, found, what in (
        ("document_bytes", size, "bytes"),
        ("document_parts", parts, "parts"),
    ):
        bound: int = getattr(bounds.limits, limit)
        if found > bound:
            name = bounds.names.get(limit, limit)
            raise InvalidValue(
                f"the document has {found:,} {what}, and no more than {bound:,} are taken ({name})",
                remedy=f"agree on more ({_AGREED[limit][1]}), or send it as several documents",
            )


FRAGMENT_ENCODING = "gzip"
"""The one compression that a Manifest with `mid:` references has a word for."""


def envelope_for(context: HandlerContext, route: Route) -> Envelope:
    """What every signal of ours needs: an id, the time, the form, who we are, the hop."""
    message_id, now = context.new_message_id(), context.now()
    hop = route.hop(now, AckRequest.NONE)
    return Envelope(message_id, now, route.form, own=route.agreement.own.party, hop=hop)

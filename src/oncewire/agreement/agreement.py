"""Agreement: what two parties agreed about the messages between them, as one value.

It serves both directions. Each direction has its own terms, because a partner may ask for
other things than it offers, and single actions may differ again. Every value remembers
where it came from, so that `agreement show` can tell why a message was handled as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import Struct

from oncewire.errors import InvalidValue
from oncewire.message.document_path import DocumentPath
from oncewire.message.envelope import MessageKind
from oncewire.message.form import Form, Security
from oncewire.message.header import ReliableMessagingMethod
from oncewire.message.ids import Party, PartyId, Service, check_id
from oncewire.message.instant import Duration, Instant
from oncewire.message.signals import Actor
from oncewire.protocol.terms import Terms

TRANSPORTS = ("http", "smtp", "ftp", "sftp", "broker")
"""The transports there are, by the name agreements call them."""

SIGNAL_SERVICE = "urn:oasis:names:tc:ebxml-msg:service"
"""The Service of acknowledgements, errors, status and ping in ebMS 2.0."""

USUAL_SERVICE = Service("urn:oncewire:service:documents")
USUAL_ACTION = "Deliver"
"""What a message of ours carries where the agreement lists no service and its sender names none."""

EBXML_METHOD = "http://www.ebxml.org/namespaces/reliableMessaging"
"""The URI that stands for the ebXML protocol among the methods supported (CPA-7)."""


class Direction(StrEnum):
    """Whose messages a binding speaks of, seen from us."""

    SEND = "send"
    RECEIVE = "receive"


class EndpointType(StrEnum):
    """What an address is for (CPPA 2.0 Endpoint/@type)."""

    REQUEST = "request"
    RESPONSE = "response"
    ERROR = "error"
    LOGIN = "login"
    ALL_PURPOSE = "allPurpose"


class Requested(StrEnum):
    """Whether a header must, must not or may ask for something.

    The first three are CPPA's. The fourth is how the drafts read (CPA-8): their headers can
    be silent, and silence then means the agreement's value. In ebMS 2.0 an absent element
    is no silence; it says no.
    """

    ALWAYS = "always"
    NEVER = "never"
    PER_MESSAGE = "perMessage"
    WHEN_STATED = "whenStated"


class Protection(StrEnum):
    """CPPA's persistenceLevel: protected on the way, in the document, or both."""

    NONE = "none"
    TRANSIENT = "transient"
    PERSISTENT = "persistent"
    BOTH = "transient-and-persistent"

    @property
    def persistent(self) -> bool:
        """Whether the document itself is protected, not only the connection."""
        return self in (Protection.PERSISTENT, Protection.BOTH)

    @property
    def transient(self) -> bool:
        """Whether the connection is protected."""
        return self in (Protection.TRANSIENT, Protection.BOTH)


class Origin(StrEnum):
    """Where a value came from."""

    DEFAULT = "default"
    PROFILE = "profile"
    FILE = "file"
    CPA = "CPA"


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an agreement: its key, what it is, and who said so."""

    key: str
    value: Any
    origin: Origin
    # The profile's name, the place in the CPA, or the rule that a default follows.
    where: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a handler on one transport."""

    transport: str
    address: str
    type: EndpointType = EndpointType.ALL_PURPOSE

    def __post_init__(self) -> None:
        check_id(self.transport, "transport")
        check_id(self.address, "address")


def address_of(endpoints: tuple[Endpoint, ...], transport: str, kind: EndpointType) -> str | None:
    """The address of that type on that transport, else the one for all purposes."""
    fallback = None
    for endpoint in endpoints:
        if endpoint.transport != transport:
            continue
        if endpoint.type is kind:
            return endpoint.address
        if endpoint.type is EndpointType.ALL_PURPOSE and fallback is None:
            fallback = endpoint.address
    return fallback


@dataclass(frozen=True, slots=True)
class PartyTerms:
    """One of the two sides: who it is, where its handler listens, how it is recognised."""

    party: Party
    name: str = ""
    # SenderURI and ReceiverURI of the drafts' RoutingHeader.
    handler_uri: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    # SHA-256 fingerprints (lower-case hex) of the TLS client certificates it may show.
    client_certificates: tuple[str, ...] = ()
    # Certificates (DER) that it is known by: what it shows on connections, and what it signs and
    # decrypts with. Ours are what the partner was told, and our key should be one of them.
    certificates: tuple[bytes, ...] = ()
    signing_certificates: tuple[bytes, ...] = ()
    # Other parties that are reached through this one.
    behind: tuple[PartyId, ...] = ()
    # Services whose messages go to it, whomever they are for.
    behind_services: tuple[str, ...] = ()
    # Whatever has no other way goes to it.
    behind_all: bool = False

    def is_named_by(self, party: Party) -> bool:
        """Whether the ids of a header mean this party.

        One common id is enough, for several ids name the same party. An id of a type that
        we know with another value is a contradiction, and then it is not this party.
        """
        if party.ids == self.party.ids:
            return True
        if not self.party.shares_id_with(party):
            return False
        known = {party_id.type for party_id in self.party.ids if party_id.type is not None}
        return all(party_id in self.party.ids for party_id in party.ids if party_id.type in known)

    def handles(self, party: Party) -> bool:
        """Whether the ids of a signal name this side's handler by its URI (ACK-12)."""
        uris = {endpoint.address for endpoint in self.endpoints}
        if self.handler_uri is not None:
            uris.add(self.handler_uri)
        return any(party_id.value in uris for party_id in party.ids)

    def reaches(self, party: Party) -> bool:
        """Whether that party is this one or lies behind it."""
        return self.is_named_by(party) or any(party_id in self.behind for party_id in party.ids)

    @property
    def leads_on(self) -> bool:
        """Whether parties that are not named may lie behind it."""
        return self.behind_all or bool(self.behind_services)


@dataclass(frozen=True, slots=True)
class Via:
    """The handler to send to when it is not the partner's own: a hub, and what it does next.

    Its onward timing is what we were told; it lets `check` compare the two hops (gap 11).
    """

    party: Party | None = None
    handler_uri: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    timeout: Duration | None = None
    retries: int | None = None
    retry_interval: Duration | None = None
    sync_timeout: Duration | None = None

    @property
    def longest_retry(self) -> Duration | None:
        """From its first send to giving up, if we were told enough."""
        if self.retries is None or self.retry_interval is None:
            return None
        first = self.retry_interval if self.timeout is None else self.timeout
        return first + self.retries * self.retry_interval

    @property
    def label(self) -> str:
        """How the hub is called in a channel's name."""
        if self.party is not None:
            return self.party.ids[0].value
        return self.handler_uri or (self.endpoints[0].address if self.endpoints else "via")


class Rules(Struct, frozen=True, gc=False):
    """What the header of a message may, must or must not say under the agreement."""

    ack: Requested = Requested.PER_MESSAGE
    ack_signature: Requested = Requested.PER_MESSAGE
    # Whose acknowledgement the two rules above speak of.
    actor: Actor = Actor.TO_PARTY_MSH
    # Acknowledgements of the next handler, when `actor` is the To Party's.
    hop_ack: Requested = Requested.PER_MESSAGE
    duplicate_elimination: Requested = Requested.PER_MESSAGE
    sync: Requested = Requested.ALWAYS
    # A message that answers another may ask for a synchronous reply too (against SYNC-14).
    sync_replies: bool = False
    # Codes of a SOAP Fault, or of its detail, after which a message is sent again.
    retry_faults: tuple[str, ...] = ("Server",)
    # reliableMessagingMethodsSupported: URIs (CPA-7).
    methods_supported: tuple[str, ...] = (EBXML_METHOD,)
    # Where in documents the values stand by which we find their messages. Ours alone.
    index: tuple[DocumentPath, ...] = ()

    def supports(self, method: ReliableMessagingMethod) -> bool:
        """Whether a message may use that reliableMessagingMethod."""
        if method is ReliableMessagingMethod.EBXML:
            return EBXML_METHOD in self.methods_supported
        return any(uri != EBXML_METHOD for uri in self.methods_supported)


class Business(Struct, frozen=True, gc=False):
    """CPPA's BusinessTransactionCharacteristics: what the business asks of the handlers."""

    non_repudiation: bool = False
    non_repudiation_of_receipt: bool = False
    confidential: Protection = Protection.NONE
    authenticated: Protection = Protection.NONE
    tamper_proof: Protection = Protection.NONE
    authorization_required: bool = False
    intelligible_check: bool = False
    time_to_acknowledge_receipt: Duration | None = None
    time_to_acknowledge_acceptance: Duration | None = None
    time_to_perform: Duration | None = None
    retry_count: int | None = None


@dataclass(frozen=True, slots=True)
class ActionBinding:
    """What holds for messages of one direction: for one service and action, or for all."""

    direction: Direction
    terms: Terms = field(default_factory=Terms)
    rules: Rules = field(default_factory=Rules)
    security: Security = field(default_factory=Security)
    business: Business = field(default_factory=Business)
    # None: any service, any action.
    service: Service | None = None
    action: str | None = None
    from_role: str | None = None
    to_role: str | None = None
    # Where the receiving party of this direction takes such messages.
    endpoints: tuple[Endpoint, ...] = ()
    values: tuple[Value, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        """Its service and action, as commands and agreement files take them."""
        what = "any message" if self.service is None else self.service.spelled
        return what if self.action is None else f"{what} / {self.action}"

    @property
    def label(self) -> str:
        """The binding in a few words, for people."""
        return f"{self.direction.value}: {self.name}"


@dataclass(frozen=True, slots=True)
class Agreement:
    """One agreement between us and one partner."""

    cpa_id: str
    own: PartyTerms
    partner: PartyTerms
    # What holds where no entry of `actions` says otherwise; signals travel under these.
    sending: ActionBinding
    receiving: ActionBinding
    actions: tuple[ActionBinding, ...] = ()
    # Only services and actions that are listed may be used.
    listed_only: bool = False
    form: Form = field(default_factory=Form)
    profile: str = "ebms2"
    # CPPA's Status: proposed, agreed or signed.
    status: str = "agreed"
    start: Instant | None = None
    end: Instant | None = None
    via: Via | None = None
    # We pass messages of others on between this partner and other partners.
    forwards: bool = False
    # Other CPAIds that mean this agreement; `any_cpa_id` takes whatever the partner writes.
    also_known_as: tuple[str, ...] = ()
    any_cpa_id: bool = False
    # What the agreement asks for and we do not have: (key, sentence).
    not_offered: tuple[tuple[str, str], ...] = ()
    values: tuple[Value, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        check_id(self.cpa_id, "cpa_id")
        for name in self.also_known_as:
            check_id(name, "also_known_as")
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise InvalidValue(
                f"agreement {self.cpa_id} ends before it starts", remedy="correct start or end"
            )

    def in_force(self, now: Instant) -> bool:
        """Whether the moment lies between start and end."""
        if self.start is not None and now < self.start:
            return False
        return self.end is None or now < self.end

    def bindings(self) -> Iterator[ActionBinding]:
        """Every binding: both directions' defaults, then the single actions."""
        yield self.sending
        yield self.receiving
        yield from self.actions

    def is_reached_at(self, address: str) -> bool:
        """Whether that is an address we send to under it: of the partner, or of the hub."""
        ends = [self.partner.endpoints, () if self.via is None else self.via.endpoints]
        ends += [
            binding.endpoints for binding in self.bindings() if binding.direction is Direction.SEND
        ]
        return any(end.address == address for some in ends for end in some)

    def default(self, direction: Direction) -> ActionBinding:
        """What holds in that direction where no action says otherwise."""
        return self.sending if direction is Direction.SEND else self.receiving

    def signal_binding(self, direction: Direction, kind: MessageKind) -> ActionBinding:
        """The binding of a signal: its own override, else the default (CPPA 2.0)."""
        for binding in self.actions:
            if (
                binding.direction is direction
                and binding.service is not None
                and binding.service.value == SIGNAL_SERVICE
                and binding.action == kind.value
            ):
                return binding
        return self.default(direction)


# Naming: whom the ids of a header mean, in the agreement's own words.
#
# A header may give a party more ids than the agreement knows, and in any order. The agreement was
# found by these ids, and the sender proved to be its partner. So a party is called what the
# agreement calls it: in the key of duplicates, in the journal, and to the application.


def sender_of(agreement: Agreement, party: Party) -> Party:
    """The From Party of a message that was received under the agreement."""
    partner, via = agreement.partner, agreement.via
    if partner.is_named_by(party) or not (agreement.forwards or via is not None):
        return Party(partner.party.ids, party.role)
    behind = known_ids(partner, party)
    if behind:
        return Party(behind, party.role)
    if via is not None and via.party is not None and via.party.shares_id_with(party):
        return Party(via.party.ids, party.role)
    # A handler on the way that we never heard of (ERR-5): by its own words, whatever their order.
    return Party(tuple(sorted(party.ids, key=str)), party.role)


def sender_name(agreement: Agreement, party: Party) -> str:
    """What listings call that From Party."""
    partner = agreement.partner
    if partner.is_named_by(party):
        return str(partner.party)
    return str(sender_of(agreement, party))


def receiver_name(side: PartyTerms, party: Party) -> str:
    """What listings call that To Party."""
    return str(side.party) if side.is_named_by(party) else str(receiver_of(side, party))


def receiver_of(side: PartyTerms, party: Party) -> Party:
    """The To Party, if it is that side or is reached through it."""
    if side.is_named_by(party):
        return Party(side.party.ids, party.role)
    return Party(known_ids(side, party) or party.ids, party.role)


def known_ids(side: PartyTerms, party: Party) -> tuple[PartyId, ...]:
    """The ids of a header by which the way to that party is known, in the agreement's order."""
    return tuple(party_id for party_id in (*side.party.ids, *side.behind) if party_id in party.ids)

"""Agreement: what two parties agreed about the messages between them, and all those of a handler.

It serves both directions. Each direction has its own terms, because a partner may ask for
other things than it offers, and single actions may differ again. Every value remembers
where it came from, so that `agreement show` can tell why a message was handled as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from msgspec import Struct

from oncewire.errors import (
    AgreementProblem,
    EbxmlError,
    Inconsistent,
    InvalidValue,
    SoapFault,
    ValueNotRecognized,
)
from oncewire.message.document_path import DocumentPath
from oncewire.message.envelope import Actor, Message, MessageKind
from oncewire.message.form import Form, ReliableMessagingMethod, Security, UnknownCpa
from oncewire.message.ids import Party, PartyId, Service, check_id
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.terms import Terms

TRANSPORTS = ("http", "smtp", "ftp", "sftp", "broker")
"""The transports there are, by the name agreements call them."""

ORDERED_WINDOW = 100
"""W where order is guaranteed and no window is named (C3).

ebMS 2.0 has no window, so a partner may run ahead of a lost message. This many early
messages are held for it; a window as large as half the range would be no bound at all.
"""

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


class Value(Struct, frozen=True):
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


# Agreements: all agreements of one handler, and which of them a message belongs to.

CPA_ID = "//Header/MessageHeader/CPAId"
FROM = "//Header/MessageHeader/From/PartyId"
TO = "//Header/MessageHeader/To/PartyId"


class Found(Struct, frozen=True):
    """The agreement of a message, and whether we are only a hop on its way."""

    agreement: Agreement
    at_hop: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Certificates that are no longer trusted, under any agreement."""

    certificates: frozenset[bytes]
    # Revocation lists, and the authorities that may have signed them; all DER.
    lists: tuple[bytes, ...]
    issuers: tuple[bytes, ...]


def withdrawn_in(agreements: Iterable[Agreement]) -> Withdrawn:
    """The certificates that those agreements declare as no longer trusted."""
    secured = [binding.security for agreement in agreements for binding in agreement.bindings()]
    return Withdrawn(
        frozenset(der for security in secured for der in security.revoked),
        tuple(
            dict.fromkeys(
                der for each_security in secured for der in each_security.revocation_lists
            )
        ),
        tuple(
            dict.fromkeys(der for each_security in secured for der in each_security.trust_anchors)
        ),
    )


class Agreements:
    """An unchanging collection; `form` says how messages under no agreement are answered."""

    def __init__(self, agreements: Iterable[Agreement] = (), *, form: Form | None = None) -> None:
        self._all = tuple(agreements)
        self.form = form or Form()
        self._by_id: dict[str, list[Agreement]] = {}
        for agreement in self._all:
            for name in dict.fromkeys((agreement.cpa_id, *agreement.also_known_as)):
                for old in self._by_id.get(name, ()):
                    if old.own.party.shares_id_with(
                        agreement.own.party
                    ) and old.partner.party.shares_id_with(agreement.partner.party):
                        raise AgreementProblem(
                            f"two agreements are called {name} and have the same parties",
                            key="cpa_id",
                            remedy="remove one of them, or give it another cpa_id",
                        )
                self._by_id.setdefault(name, []).append(agreement)

    def __iter__(self) -> Iterator[Agreement]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def withdrawn(self) -> Withdrawn:
        """Whom we have ceased to trust. An agreement that ends or changes leaves what is under
        way alone; a certificate that is revoked in any of them counts for nothing at once."""
        return withdrawn_in(self._all)

    def by_cpa_id(self, cpa_id: str) -> tuple[Agreement, ...]:
        """The agreements of that name; two partners may use one name, as PHINMS' `self`."""
        return tuple(self._by_id.get(cpa_id, ()))

    def between(self, own: Party, partner: Party) -> tuple[Agreement, ...]:
        """The agreements between two parties, by whatever name."""
        return tuple(
            agreement
            for agreement in self._all
            if agreement.own.is_named_by(own) and agreement.partner.is_named_by(partner)
        )

    def toward(self, party: Party, service: Service | None = None) -> Agreement | None:
        """The agreement under which a hop passes messages on to that party: who is the party or
        has it behind itself; else who takes the service; else who takes everything."""
        hops = [agreement for agreement in self._all if agreement.forwards]
        name = "" if service is None else str(service)
        for agreement in hops:
            if agreement.partner.reaches(party):
                return agreement
        for agreement in hops:
            if name in agreement.partner.behind_services:
                return agreement
        return next((agreement for agreement in hops if agreement.partner.behind_all), None)

    def find(self, message: Message, *, receiving: bool) -> Found:
        """The agreement a message is sent or received under, or the error it earns."""
        candidates = tuple(self._by_id.get(message.header.cpa_id, ()))
        for agreement in candidates:
            if _fits(agreement, message, receiving=receiving):
                return Found(agreement)
        loose = self._by_parties(message, receiving=receiving)
        if loose is not None:
            return loose
        if candidates:
            raise _wrong_party(candidates, message, receiving=receiving)
        raise self._unknown(message, receiving=receiving)

    def _by_parties(self, message: Message, *, receiving: bool) -> Found | None:
        """Where the CPAId is a directory's key (NHS, PHINMS), or we are a hop (HOP-5)."""
        for agreement in self._all:
            if agreement.any_cpa_id and _fits(agreement, message, receiving=receiving):
                return Found(agreement)
        sender, receiver = message.header.from_party, message.header.to_party
        hops = [agreement for agreement in self._all if agreement.forwards]
        onward = self.toward(receiver, message.header.service)
        near = (agreement for agreement in hops if _comes_from(agreement, sender, message))
        # A party that no agreement names lies behind a partner with `behind_all`.
        far = (each for each in hops if each.partner.leads_on and each is not onward)
        before = next(near, None) or next(far, None)
        if before is not None and receiving and _is_ours(before.own, receiver, message):
            # A neighbour's signal about its own hop: no one is behind it.
            return Found(before, at_hop=True)
        if before is None or onward is None or before is onward:
            return None
        return Found(before if receiving else onward, at_hop=True)

    def _unknown(self, message: Message, *, receiving: bool) -> EbxmlError | SoapFault:
        header = message.header
        form = self.form
        for agreement in self._all:
            # A partner we know is answered in the way agreed with it.
            if agreement.partner.is_named_by(header.from_party):
                form = agreement.form
                break
        problem = f"there is no agreement {header.cpa_id}"
        remedy = "use the CPAId of the agreement, or install it"
        if receiving and form.unknown_cpa is UnknownCpa.FAULT:
            return SoapFault("Client", problem, remedy=remedy)
        return ValueNotRecognized(problem, location=CPA_ID, remedy=remedy)


def place_under(agreement: Agreement, message: Message, *, receiving: bool) -> Found:
    """A message under the one agreement it is known to run under, or the error it earns."""
    cpa_id = message.header.cpa_id
    named = agreement.any_cpa_id or cpa_id in (agreement.cpa_id, *agreement.also_known_as)
    if named and _fits(agreement, message, receiving=receiving):
        return Found(agreement)
    if agreement.forwards and _comes_from(agreement, message.header.from_party, message):
        return Found(agreement, at_hop=True)
    if named:
        raise _wrong_party((agreement,), message, receiving=receiving)
    raise Inconsistent(
        f"the message refers to one under agreement {agreement.cpa_id}, and names {cpa_id}",
        location=CPA_ID,
        remedy="name the agreement of the message that is meant",
    )


def _is_ours(side: PartyTerms, party: Party, message: Message) -> bool:
    """Whether the ids mean that side: its party, or in a signal its handler's URI."""
    if side.is_named_by(party):
        return True
    return message.kind is not MessageKind.NORMAL and side.handles(party)


def _comes_from(agreement: Agreement, party: Party, message: Message) -> bool:
    return agreement.partner.reaches(party) or _is_ours(agreement.partner, party, message)


def _fits(agreement: Agreement, message: Message, *, receiving: bool) -> bool:
    sender, receiver = _ends(agreement, receiving=receiving)
    from_party, to_party = message.header.from_party, message.header.to_party
    return (
        sender.is_named_by(from_party) or _matches(agreement, sender, from_party, message)
    ) and (receiver.is_named_by(to_party) or _matches(agreement, receiver, to_party, message))


def _ends(agreement: Agreement, *, receiving: bool) -> tuple[PartyTerms, PartyTerms]:
    if receiving:
        return agreement.partner, agreement.own
    return agreement.own, agreement.partner


def _matches(agreement: Agreement, side: PartyTerms, party: Party, message: Message) -> bool:
    if _is_ours(side, party, message):
        return True
    if side is agreement.own or agreement.via is None or message.kind is MessageKind.NORMAL:
        return False
    if message.kind is MessageKind.ERROR:
        # Any handler on the way may find that a message cannot be delivered, and says so in
        # its own name (ERR-5, ERR-6); behind the hub there may be some we never heard of.
        return True
    # A hub acknowledges in its own name (ACK-12, HOP-11).
    via = agreement.via
    if via.party is not None and via.party.shares_id_with(party):
        return True
    return any(
        party_id.value in (via.handler_uri, *(end.address for end in via.endpoints))
        for party_id in party.ids
    )


def _wrong_party(
    candidates: tuple[Agreement, ...], message: Message, *, receiving: bool
) -> Inconsistent:
    """The agreement exists, but is between others: name the side that does not fit."""
    header = message.header
    known = [
        agreement
        for agreement in candidates
        if _matches(agreement, _ends(agreement, receiving=receiving)[0], header.from_party, message)
    ]
    if known:
        party, location = header.to_party, TO
    else:
        party, location = header.from_party, FROM
    return Inconsistent(
        f"{party} is not a party of agreement {header.cpa_id} on that side",
        location=location,
        remedy="use the PartyId and its type as the agreement has them",
    )

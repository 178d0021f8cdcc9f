"""Turns a CPA (CPPA 2.0, the 1.0 form, the drafts' Characteristics) into an Agreement.

A CPA describes two parties; the caller says which one we are, and either view can be
taken. What a sender does (characteristics, retries, signature) is read from the sender's
channel, where a message goes is read from the receiver's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from oncewire.agreement.agreement import (
    SIGNAL_SERVICE,
    TRANSPORTS,
    Agreement,
    Direction,
    Endpoint,
    Origin,
    PartyTerms,
    Value,
    Via,
)
from oncewire.agreement.certificates import fingerprint, leaves
from oncewire.agreement.compose import TRANSPORT_METHOD, Draft, Entry, Layer, build, layer, merge
from oncewire.agreement.cppa.document import (
    Channel,
    CpaAction,
    CpaDocument,
    CpaParty,
    Exchange,
    read_document,
)
from oncewire.agreement.cppa.remainder import SIDES, read_remainder
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.ids import Party, Service
from oncewire.message.instant import Instant, parse_instant

# What a CPA's channels and actions say, in the keys of an agreement, as CPPA 2.0 has them.


# Attribute of MessagingCharacteristics to key, and what its absence means (the schema's
# own defaults).
_CHARACTERISTICS = (
    ("syncReplyMode", "sync.mode", "none"),
    ("ackRequested", "ack.request", "perMessage"),
    ("ackSignatureRequested", "ack.signature", "perMessage"),
    ("duplicateElimination", "duplicate.elimination", "perMessage"),
    ("actor", "ack.actor", None),
)
# Parameters of the drafts, wherever their CPA puts them; both names of the list (C35).
_DRAFT_PARAMETERS = (
    ("Timeout", "delivery.timeout"),
    ("timeout", "delivery.timeout"),
    ("timeToLive", "delivery.time_to_live"),
    ("TimeToLive", "delivery.time_to_live"),
    ("mshTimeAccuracy", "delivery.time_accuracy"),
    ("DeliveryReceiptProvided", "delivery.receipt_provided"),
    ("deliveryReceiptProvided", "delivery.receipt_provided"),
)
_METHOD_LISTS = ("reliableMessagingMethodsSupported", "reliableMessagingSupported")
_BUSINESS = (
    ("isNonRepudiationRequired", "business.non_repudiation"),
    ("isNonRepudiationReceiptRequired", "business.non_repudiation_of_receipt"),
    ("isConfidential", "business.confidential"),
    ("isAuthenticated", "business.authenticated"),
    ("isTamperProof", "business.tamper_proof"),
    ("isAuthorizationRequired", "business.authorization_required"),
    ("isIntelligibleCheckRequired", "business.intelligible_check"),
    ("timeToAcknowledgeReceipt", "business.time_to_acknowledge_receipt"),
    ("timeToAcknowledgeAcceptance", "business.time_to_acknowledge_acceptance"),
    ("timeToPerform", "business.time_to_perform"),
    ("retryCount", "business.retry_count"),
)
# v0-078 says AtMostOnce for the reliable way (C1).
_SEMANTICS = {"OnceAndOnlyOnce": True, "AtMostOnce": True, "BestEffort": False,
              "Unspecified": False}  # fmt: skip
_XMLDSIG, _MORE = "http://www.w3.org/2000/09/xmldsig#", "http://www.w3.org/2001/04/xmldsig-more#"
_XMLENC = "http://www.w3.org/2001/04/xmlenc#"
_ALGORITHMS = {
    "sha1": f"{_XMLDSIG}sha1",
    "sha256": f"{_XMLENC}sha256",
    "sha512": f"{_XMLENC}sha512",
    "rsa-sha1": f"{_XMLDSIG}rsa-sha1",
    "rsa-sha256": f"{_MORE}rsa-sha256",
    "rsa-sha512": f"{_MORE}rsa-sha512",
    "aes128-cbc": f"{_XMLENC}aes128-cbc",
    "aes256-cbc": f"{_XMLENC}aes256-cbc",
    "tripledes-cbc": f"{_XMLENC}tripledes-cbc",
}
_SMIME = {"S/MIME", "SMIME"}
_XML_ENCRYPTION = {"XMLENC", "XMLENCRYPTION", "HTTP://WWW.W3.ORG/2001/04/XMLENC#"}


def channel_values(sender: Channel, receiver: Channel | None) -> list[dict[str, Value]]:
    """The sender's characteristics and retries, and how long the receiver remembers."""
    stated = sender.characteristics
    found: dict[str, object] = {}
    for name, key, absent in _CHARACTERISTICS:
        value = stated.get(name, absent if sender.is_2_0 else None)
        if value is not None:
            found[key] = value
    for name, key in _DRAFT_PARAMETERS:
        if name in stated:
            found[key] = stated[name]
    layers = [
        layer(found, Origin.CPA, f"DeliveryChannel {sender.channel_id}"),
        layer(_reliable(sender), Origin.CPA, f"DocExchange {sender.exchange_id}"),
    ]
    if receiver is not None and "PersistDuration" in receiver.receiver.reliable:
        kept = {"delivery.persist_duration": receiver.receiver.reliable["PersistDuration"]}
        layers.append(layer(kept, Origin.CPA, f"DocExchange {receiver.exchange_id}"))
    return layers


def _reliable(channel: Channel) -> dict[str, object]:
    exchange = channel.sender
    stated = exchange.reliable
    found: dict[str, object] = {}
    for name, key in (
        ("Retries", "delivery.retries"),
        ("RetryInterval", "delivery.retry_interval"),
        ("PersistDuration", "delivery.persist_duration"),
        *_DRAFT_PARAMETERS,
    ):
        if name in stated:
            found[key] = stated[name]
    for name in _METHOD_LISTS:
        if name in stated:
            found["delivery.methods_supported"] = [
                TRANSPORT_METHOD if uri == "Transport" else uri for uri in stated[name].split()
            ]
    if "deliverySemantics" in stated:
        word = stated["deliverySemantics"]
        if word not in _SEMANTICS:
            raise AgreementProblem(
                f"deliverySemantics {word[:64]!r} is not known",
                key="delivery.reliable",
                remedy="OnceAndOnlyOnce or BestEffort",
            )
        found["delivery.reliable"] = _SEMANTICS[word]
    acked = channel.characteristics.get("ackRequested", "perMessage")
    if channel.is_2_0 and acked == "perMessage":
        # The header decides; what we ask for ourselves follows from the binding.
        found["delivery.reliable"] = exchange.has_reliable
    # Order is kept by numbers, and only reliable messages have them (C3); what a CPA guarantees
    # without them, `not_offered` names.
    if _guaranteed(exchange) and found.get("delivery.reliable", acked != "never"):
        found["sequence.ordered"] = True
    return found


def _guaranteed(exchange: Exchange) -> bool:
    stated = exchange.reliable
    order = stated.get("MessageOrderSemantics") or stated.get("messageOrderSemantics")
    return order == "Guaranteed"


def action_values(action: CpaAction) -> dict[str, object]:
    """BusinessTransactionCharacteristics in our keys."""
    return {key: action.business[name] for name, key in _BUSINESS if name in action.business}


# --- security ----------------------------------------------------------------------------------


def security_values(
    direction: Direction,
    own: CpaParty,
    partner: CpaParty,
    sender: Channel | None,
    receiver: Channel | None,
    action: CpaAction | None,
) -> dict[str, Value]:
    """What is signed and encrypted, how, and with whose certificates.

    Signals are not signed by themselves: a signed acknowledgement is asked for message by
    message, and a partner that sends plain ones must not be refused.
    """
    found: dict[str, object] = {}
    if sender is not None:
        signs = action is not None and _signs(sender.sender, action)
        key = "security.sign" if direction is Direction.SEND else "security.require_signature"
        found[key] = signs
        if sender.sender.signature_algorithm:
            found["security.signature_algorithm"] = _uri(sender.sender.signature_algorithm)
        if sender.sender.hash_function:
            found["security.digest_algorithm"] = _uri(sender.sender.hash_function)
        named = (sender.sender.signature_algorithm or "") + (sender.sender.hash_function or "")
        # Refused by default; here both parties signed that they use it.
        if "sha1" in named.lower():
            found["security.allow_sha1"] = True
        algorithm = _envelope(sender, receiver)
        found["security.encrypt"] = (
            action is not None and algorithm is not None and _encrypts(action)
        )
        if algorithm is not None and (_is_smime(sender) or _is_smime(receiver)):
            # Its envelopes name what they were closed with; ours are of AES-256.
            found["security.encryption_syntax"] = "smime"
        elif algorithm is not None:
            found["security.encryption_algorithm"] = _uri(algorithm)
            # A CPA has no word for the key transport. XML Encryption of its time asks of every
            # handler that it reads both.
            found["security.allow_rsa_1_5"] = True
    found |= _certificates(direction, own, partner, sender, receiver)
    where = f"DocExchange {sender.exchange_id}" if sender is not None else "PartyInfo"
    return layer({key: value for key, value in found.items() if value != []}, Origin.CPA, where)


def _is_smime(channel: Channel | None) -> bool:
    if channel is None:
        return False
    named = (channel.sender.envelope_protocol, channel.receiver.envelope_protocol)
    return any(protocol is not None and protocol.upper() in _SMIME for protocol in named)


def _uri(algorithm: str) -> str:
    """An algorithm by its URI; many CPAs name it as people do (SHA-1, RSA-SHA256)."""
    name = algorithm.lower().replace("_", "-")
    return _ALGORITHMS.get(name) or _ALGORITHMS.get(name.replace("-", "")) or algorithm


def _signs(exchange: Exchange, action: CpaAction) -> bool:
    """A binding for signatures is needed, and the action must not say otherwise."""
    asked = action.business.get("isNonRepudiationRequired", "true")
    return exchange.has_signature and asked in ("true", "1")


def _encrypts(action: CpaAction) -> bool:
    level = action.business.get("isConfidential", "persistent")
    return level in ("persistent", "transient-and-persistent")


def _envelope(sender: Channel, receiver: Channel | None) -> str | None:
    """The encryption algorithm: the receiver says what it can open."""
    if receiver is not None and receiver.receiver.encryption_algorithm:
        return receiver.receiver.encryption_algorithm
    return sender.sender.encryption_algorithm


def _certificates(
    direction: Direction,
    own: CpaParty,
    partner: CpaParty,
    sender: Channel | None,
    receiver: Channel | None,
) -> dict[str, object]:
    received = direction is Direction.RECEIVE
    signing: list[bytes] = []
    if received and sender is not None and sender.sender.signing_certificate:
        signing += partner.certificates.get(sender.sender.signing_certificate, ())
    if not signing:
        # Signed acknowledgements may come under any of the partner's signing certificates.
        for channel in partner.channels.values():
            signing += partner.certificates.get(channel.sender.signing_certificate or "", ())
    theirs = sender if received else receiver
    secret: list[bytes] = []
    if theirs is not None and theirs.receiver.encryption_certificate:
        secret += partner.certificates.get(theirs.receiver.encryption_certificate, ())
    return {
        "security.partner_certificates": signing,
        "security.partner_encryption_certificates": secret,
        "security.trust_anchors": _anchors(own, receiver if received else sender),
    }


def _anchors(own: CpaParty, channel: Channel | None) -> list[bytes]:
    """Authorities we trust. Many CPAs list their own certificate there, which proves nothing."""
    if channel is None or channel.receiver.signing_security is None:
        return []
    ends = {
        name
        for each_channel in own.channels.values()
        for name in (
            each_channel.client_certificate,
            each_channel.sender.signing_certificate,
            each_channel.receiver.encryption_certificate,
        )
    }
    found: list[bytes] = []
    for name in own.anchors.get(channel.receiver.signing_security, ()):
        if name not in ends:
            found += own.certificates.get(name, ())
    return found


# --- what we do not have -----------------------------------------------------------------------


def not_offered(document: CpaDocument) -> tuple[tuple[str, str], ...]:
    """Things the CPA asks for and this handler does not do, each as (key, sentence)."""
    found: list[tuple[str, str]] = []
    for party in document.parties:
        found += [
            ("delivery.transports", f"the transport {endpoint.transport} is not offered")
            for endpoint in party.endpoints
            if endpoint.transport not in TRANSPORTS
        ]
        for channel in party.channels.values():
            found += _channel_not_offered(channel)
    if any("pkcs7" in encapsulation for encapsulation in document.encapsulations):
        found.append(
            (
                "security.encrypt",
                "payloads travel in S/MIME envelopes, which the application makes and opens",
            )
        )
    return tuple(dict.fromkeys(found))


def _channel_not_offered(channel: Channel) -> list[tuple[str, str]]:
    found = []
    for exchange in (channel.sender, channel.receiver):
        protocol = exchange.envelope_protocol
        if protocol is not None and protocol.upper() not in _XML_ENCRYPTION | _SMIME:
            found.append(
                ("security.encrypt", f"payload encryption by {protocol[:64]} is not offered")
            )
    if channel.access_authentication:
        found.append(
            ("partner.client_certificates", "passwords in HTTP (AccessAuthentication) are not sent")
        )
    if _guaranteed(channel.sender) and channel.characteristics.get("ackRequested") == "never":
        found.append(
            (
                "sequence.ordered",
                f"channel {channel.channel_id} guarantees order and is never acknowledged",
            )
        )
    return found


def read_cpa(
    xml: bytes | str,
    *,
    own: str | int,
    profile: str | None = None,
    own_party: Party | None = None,
    partner_party: Party | None = None,
    over: Layer | None = None,
    via: Via | None = None,
    forwards: bool = False,
    also_known_as: tuple[str, ...] = (),
    any_cpa_id: bool = False,
) -> Agreement:
    """The agreement as the party `own` sees it: a PartyId, with or without its type, a name or a
    position.

    `own_party` and `partner_party` stand in where a file leaves the PartyId empty, as PHINMS
    does. Values in `over` win over the CPA's.
    """
    try:
        document = read_document(xml)
        ours, theirs = _sides(document, own)
        return _agreement(
            document,
            _with_ids(ours, own_party, "own_party"),
            _with_ids(theirs, partner_party, "partner_party"),
            profile,
            Draft(
                cpa_id="",
                profile="",
                own=PartyTerms(Party.of("own")),
                partner=PartyTerms(Party.of("partner")),
                over=over or {},
                via=via,
                forwards=forwards,
                also_known_as=also_known_as,
                any_cpa_id=any_cpa_id,
            ),
        )
    except InvalidValue as error:
        raise AgreementProblem(error.problem, key="CPA", remedy=error.remedy) from None


def _sides(document: CpaDocument, own: str | int) -> tuple[CpaParty, CpaParty]:
    parties = document.parties
    if len(parties) != 2:
        raise AgreementProblem(
            f"the CPA has {len(parties)} PartyInfo elements",
            key="PartyInfo",
            remedy="a CPA is between exactly two parties",
        )
    matches = [
        position
        for position, party in enumerate(parties)
        if position == own or (isinstance(own, str) and _is_called(party, own))
    ]
    if len(matches) != 1:
        names = "; ".join(
            f"{party.label} ({', '.join(one.spelled for one in party.ids) or 'no PartyId'})"
            for party in parties
        )
        raise AgreementProblem(
            f"{str(own)[:128]!r} names {len(matches)} of the two parties: {names}",
            key="own.party_id",
            remedy="name one of them by its PartyId, type|value or name",
        )
    return parties[matches[0]], parties[1 - matches[0]]


def _is_called(party: CpaParty, word: str) -> bool:
    names = {
        party.label,
        *(party_id.value for party_id in party.ids),
        *(str(party_id) for party_id in party.ids),
        *(party_id.spelled for party_id in party.ids),
    }
    return word in names


def _with_ids(party: CpaParty, stated: Party | None, argument: str) -> CpaParty:
    if stated is not None:
        return replace(party, ids=stated.ids)
    if not party.ids:
        raise AgreementProblem(
            f"the party {party.label} has no PartyId in the CPA, as in those of PHINMS",
            key=argument,
            remedy="write the agreement with `oncewire agreement new --profile phinms`",
        )
    return party


def _agreement(
    document: CpaDocument, ours: CpaParty, theirs: CpaParty, profile: str | None, rest: Draft
) -> Agreement:
    remainder = read_remainder(document.beyond)
    viewer = SIDES[0 if ours.position == 0 else 1]
    draft = replace(
        rest,
        cpa_id=document.cpa_id,
        profile=profile or remainder.profile or _usual_profile(document),
        own=_seen_by(theirs, _party_terms(ours)),
        partner=_vouched_for(ours, _seen_by(ours, _party_terms(theirs))),
        entries=tuple(
            remainder.completed(entry, binding, viewer)
            for binding, entry in _entries(ours, theirs)
            if binding not in remainder.fillers
        ),
        # Where a CPA lists actions, no other may be used; PHINMS' files list none.
        listed_only=any(party.actions for party in (ours, theirs)),
        status=document.status,
        start=_moment(document.start, "Start"),
        end=_moment(document.end, "End"),
        not_offered=not_offered(document),
        # Each channel of a CPA stands for itself.
        inherit=False,
        origin=Origin.CPA,
        where=document.cpa_id,
    )
    return build(remainder.over(draft, viewer))


def _usual_profile(document: CpaDocument) -> str:
    """2.0 goes with ebMS 2.0 to the letter, a file without channels is PHINMS', any other is a
    draft's."""
    if document.is_2_0:
        return "cpa"
    channels = any(party.channels for party in document.parties)
    return "ms-0.9x" if channels else "phinms"


def _moment(text: str | None, what: str) -> Instant | None:
    if text is None:
        return None
    try:
        return parse_instant(text)[0]
    except InvalidValue as error:
        raise AgreementProblem(f"{what}: {error.problem}", key=what, remedy=error.remedy) from None


def _seen_by(other: CpaParty, side: PartyTerms) -> PartyTerms:
    """A party shows a certificate only to an address of the other's that has TLS."""
    ways = [end.address for end in other.endpoints if end.transport == "http"]
    if any(address.lower().startswith("https:") for address in ways):
        return side
    return replace(side, client_certificates=())


def _vouched_for(own: CpaParty, partner: PartyTerms) -> PartyTerms:
    """Where the CPA names no certificate of the partner's for connections, the authorities that it
    says we go by, and no others."""
    if partner.certificates:
        return partner
    names = dict.fromkeys(
        name
        for channel in own.channels.values()
        for security in channel.vouched_by
        for name in own.anchors.get(security, ())
    )
    # Many CPAs list their own certificate there, which proves nothing of the partner's.
    ours = {*_used(own, "server_certificate", "client_certificate", "sender.signing_certificate")}
    found = (der for name in names for der in own.certificates.get(name, ()) if der not in ours)
    return replace(partner, certificates=tuple(dict.fromkeys(found)))


def _used(party: CpaParty, *places: str) -> tuple[bytes, ...]:
    """The certificates that a party's channels name at these places, without their chains."""
    names = dict.fromkeys(
        attrgetter(place)(channel) for channel in party.channels.values() for place in places
    )
    found = (der for name in names for der in leaves(party.certificates.get(name or "", ())))
    return tuple(dict.fromkeys(found))


def _party_terms(party: CpaParty) -> PartyTerms:
    http = next(
        (endpoint.address for endpoint in party.endpoints if endpoint.transport == "http"), None
    )
    shown = [
        fingerprint(der)
        for channel in party.channels.values()
        for der in party.certificates.get(channel.client_certificate or "", ())
    ]
    return PartyTerms(
        party=Party(tuple(dict.fromkeys(party.ids))),
        name=party.name,
        handler_uri=http,
        endpoints=party.endpoints,
        client_certificates=tuple(dict.fromkeys(shown)),
        certificates=_used(party, "server_certificate", "client_certificate"),
        signing_certificates=_used(
            party, "sender.signing_certificate", "receiver.encryption_certificate"
        ),
    )


# --- entries -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Flow:
    """One direction: who sends, who receives, seen from us."""

    direction: Direction
    sender: CpaParty
    receiver: CpaParty

    @property
    def partner(self) -> CpaParty:
        return self.receiver if self.direction is Direction.SEND else self.sender

    @property
    def own(self) -> CpaParty:
        return self.sender if self.direction is Direction.SEND else self.receiver


def _entries(ours: CpaParty, theirs: CpaParty) -> Iterator[tuple[str, Entry]]:
    """What holds in each direction and for each action, by the name that a CPA of ours has for
    it."""
    for flow in (_Flow(Direction.SEND, ours, theirs), _Flow(Direction.RECEIVE, theirs, ours)):
        yield SIDES[flow.sender.position], _signal_entry(flow, None)
        for action in dict.fromkeys((*flow.sender.overrides, *flow.receiver.overrides)):
            yield "", _signal_entry(flow, action)
        seen: set[tuple[object, ...]] = set()
        for send, receive in _pairs(flow):
            entry = _action_entry(flow, send, receive)
            key = (entry.service, entry.action, entry.from_role, entry.to_role)
            # One action under two processes is listed twice; the first one counts.
            if key not in seen:
                seen.add(key)
                yield _name_of(send or receive), entry


def _name_of(action: CpaAction | None) -> str:
    """The id of an action binding without its end, which tells who receives."""
    bound = "" if action is None or action.binding_id is None else action.binding_id
    return bound.rpartition(".")[0]


def _signal_entry(flow: _Flow, action: str | None) -> Entry:
    """The channel that acknowledgements, errors, status and ping of a direction use."""
    sending = flow.sender.overrides.get(action or "", flow.sender.default_channel or "")
    taking = flow.receiver.overrides.get(action or "", flow.receiver.default_channel or "")
    sender = flow.sender.channel(sending or None)
    receiver = flow.receiver.channel(taking or None)
    said = _said(flow, sender, receiver, None)
    return Entry(
        flow.direction,
        said,
        service=None if action is None else Service(SIGNAL_SERVICE),
        action=action,
        endpoints=receiver.endpoints if receiver is not None else flow.receiver.endpoints,
    )


def _pairs(flow: _Flow) -> Iterator[tuple[CpaAction | None, CpaAction | None]]:
    """What one side can send with what the other can receive; either may stand alone."""
    sends = [action for action in flow.sender.actions if action.direction is Direction.SEND]
    takes = [action for action in flow.receiver.actions if action.direction is Direction.RECEIVE]
    left = list(takes)
    for send in sends:
        match = _counterpart(send, takes)
        if match is not None and match in left:
            left.remove(match)
        yield send, match
    for receive in left:
        yield None, receive


def _counterpart(send: CpaAction, takes: list[CpaAction]) -> CpaAction | None:
    for action in takes:
        if send.other_id is not None and action.binding_id == send.other_id:
            return action
    # Files of 1.0, and some of 2.0, do not name the other side's binding.
    for action in takes:
        if (action.service, action.action) == (send.service, send.action):
            return action
    return None


def _action_entry(flow: _Flow, send: CpaAction | None, receive: CpaAction | None) -> Entry:
    either = send or receive
    if either is None:
        raise AgreementProblem("an action binding is empty", remedy="ask for the CPA again")
    sends = _channels(flow.sender, send)
    takes = _reachable(sends, _channels(flow.receiver, receive))
    endpoints: list[Endpoint] = [end for channel in takes for end in channel.endpoints]
    # Without the sender's side the receiver's channel is all there is to go by.
    sender = next(iter(sends or takes), None)
    receiver = next(iter(takes), None)
    return Entry(
        flow.direction,
        _said(flow, sender, receiver, either),
        service=either.service,
        action=either.action,
        from_role=send.role if send is not None else None,
        to_role=receive.role if receive is not None else None,
        endpoints=tuple(dict.fromkeys(endpoints)),
    )


def _reachable(sends: list[Channel], takes: list[Channel]) -> list[Channel]:
    """The receiver's channels on transports that the sender's channels send on.

    A party may offer mail and HTTP for one action; which of them is meant is the sender's
    choice, and its retries and characteristics belong to that one.
    """
    ways = {channel.sends_on for channel in sends if channel.sends_on is not None}
    fitting = [
        channel for channel in takes if any(end.transport in ways for end in channel.endpoints)
    ]
    return fitting or takes


def _channels(party: CpaParty, action: CpaAction | None) -> list[Channel]:
    ids = action.channel_ids if action is not None else ()
    named = [channel for party_id in ids if (channel := party.channel(party_id)) is not None]
    if named or action is None:
        return named
    default = party.channel(party.default_channel)
    return [default] if default is not None else []


def _said(
    flow: _Flow, sender: Channel | None, receiver: Channel | None, action: CpaAction | None
) -> dict[str, Value]:
    """Every value that the two channels and the action set for this direction."""
    layers: list[Layer] = []
    if sender is not None:
        layers += channel_values(sender, receiver)
    layers.append(security_values(flow.direction, flow.own, flow.partner, sender, receiver, action))
    if action is not None:
        where = f"action binding {action.binding_id or action.action or action.service}"
        layers.append(layer(action_values(action), Origin.CPA, where))
    return merge(*layers)

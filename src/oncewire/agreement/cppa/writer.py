"""Writes an agreement as a CPA of CPPA 2.0, for a partner that reads nothing else.

Every binding has a channel of its own in both parties, so that its terms stand where CPPA has a
place for them; each channel says how its party sends and how it receives, for other handlers read
both. What messages carry (Service, action, roles) is named, or there is no CPA. Whatever CPPA has
no word for follows in a Comment (`remainder`); what that has to say is found by reading the CPA
back, so nothing is forgotten and nothing said twice. How messages are routed (hubs, who lies
behind whom) is a party's own matter and no part of a CPA.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

from oncewire.agreement.agreement import (
    SIGNAL_SERVICE,
    USUAL_ACTION,
    USUAL_SERVICE,
    ActionBinding,
    Agreement,
    Direction,
    Endpoint,
    PartyTerms,
    Protection,
    Requested,
)
from oncewire.agreement.certificates import fingerprint
from oncewire.agreement.cppa.document import BEYOND, CPPA_2_0
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.cppa.remainder import SIDES, Remainder, in_full, leftover, write_remainder
from oncewire.errors import AgreementProblem
from oncewire.message.form import EncryptionSyntax
from oncewire.message.instant import Instant, format_duration, format_instant

DS = "http://www.w3.org/2000/09/xmldsig#"
_USUAL = "usual"
"""Names the bindings of what is sent under an agreement that lists no action: a CPA lists some."""

_PACKAGING = (
    '<tns:SimplePart tns:id="message" tns:mimetype="text/xml"/>'
    '<tns:Packaging tns:id="package">'
    '<tns:ProcessingCapabilities tns:parse="true" tns:generate="true"/>'
    '<tns:CompositeList><tns:Composite tns:id="composite" tns:mimetype="multipart/related" '
    'tns:mimeparameters="type=text/xml"><tns:Constituent tns:idref="message"/></tns:Composite>'
    "</tns:CompositeList></tns:Packaging>"
)
_EVER, _ALWAYS = "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
_ROUNDS = 12
_ANY = "any"


def write_cpa(agreement: Agreement) -> bytes:
    """The CPA; reading it as our party gives the agreement again, without its routing."""
    plain = without_routing(agreement)
    _refuse_unsaid(plain)
    usual = () if plain.actions else tuple(_usual(plain))
    bound = [*_bound(plain), *usual]
    beside = Remainder(profile=plain.profile, fillers=tuple(one.name for one in usual))
    for _ in range(_ROUNDS):
        xml = _document(plain, bound, beside)
        try:
            made = read_cpa(xml, own=0)
        except AgreementProblem:
            # Some values hold only together: then all of them are said.
            whole = {one.name: one.binding for one in bound if one not in usual}
            beside = replace(beside, bindings=in_full(whole))
            continue
        if _sorted(made) == _sorted(plain):
            return xml
        wanted = [one for one in bound if one not in usual]
        beside = leftover(plain, made, list(_pairs(wanted, made)), beside)
    raise AgreementProblem(
        f"agreement {agreement.cpa_id} cannot be said in a CPA",
        key="CPA",
        remedy="tell the partner its values, as `oncewire agreement show` lists them",
    )


def without_routing(agreement: Agreement) -> Agreement:
    """What a CPA can say of an agreement, in its own elements or in the Comment."""
    return replace(
        agreement,
        via=None,
        forwards=False,
        own=replace(agreement.own, behind=()),
        partner=replace(agreement.partner, behind=()),
        not_offered=(),
    )


def _refuse_unsaid(agreement: Agreement) -> None:
    """A CPA names the action and both roles of every message; other handlers refuse what names
    none, so they have to be agreed before there is a CPA."""
    sides = (("own", agreement.own), ("partner", agreement.partner))
    for name, side in sides:
        if not side.endpoints:
            raise AgreementProblem(
                f"a CPA says where both parties are reached, and [{name}] has no address",
                key=f"{name}.http",
                remedy=f'write http = "https://..." into [{name}] of the agreement',
            )
        if not agreement.actions and side.party.role is None:
            raise AgreementProblem(
                "a CPA names the role of each party, and messages under agreement "
                f"{agreement.cpa_id} carry none",
                key=f"{name}.role",
                remedy='agree on roles and write them into the agreement: role = "Buyer" into '
                '[own] and role = "Seller" into [partner], for example; `oncewire partner add` '
                "takes them as --role and --partner-role",
            )
    for binding in agreement.actions:
        sends = binding.direction is Direction.SEND
        ours, theirs = binding.from_role, binding.to_role
        if not sends:
            ours, theirs = theirs, ours
        for key, value in (("action", binding.action), ("role", ours), ("partner_role", theirs)):
            if value is None and not _is_signal(binding):
                raise AgreementProblem(
                    f"a CPA names the action and both roles of every message, and {binding.label} "
                    f"leaves its {key} open",
                    key=f"actions.{key}",
                    remedy=f'write {key} = "..." into that [[actions]] of the agreement',
                )


def _is_signal(binding: ActionBinding) -> bool:
    """Whether it is the channel of one kind of signal; they carry no roles."""
    return binding.service is not None and binding.service.value == SIGNAL_SERVICE


def _sorted(agreement: Agreement) -> Agreement:
    """A CPA lists actions by who sends them."""
    actions = sorted(agreement.actions, key=lambda binding: binding.direction is Direction.RECEIVE)
    return replace(agreement, actions=tuple(actions))


@dataclass(frozen=True, slots=True)
class _Bound:
    """A binding and the name of its channels."""

    name: str
    binding: ActionBinding

    @property
    def sends(self) -> bool:
        return self.binding.direction is Direction.SEND


def _bound(agreement: Agreement) -> Iterator[_Bound]:
    yield _Bound(SIDES[0], agreement.sending)
    yield _Bound(SIDES[1], agreement.receiving)
    for number, binding in enumerate(agreement.actions, 1):
        yield _Bound(f"{SIDES[binding.direction is Direction.RECEIVE]}-{number}", binding)


def _usual(agreement: Agreement) -> Iterator[_Bound]:
    """The bindings of messages whose action the agreement does not list."""
    own, partner = agreement.own.party.role, agreement.partner.party.role
    for binding in (agreement.sending, agreement.receiving):
        sends = binding.direction is Direction.SEND
        yield _Bound(
            f"{SIDES[not sends]}-{_USUAL}",
            replace(
                binding,
                service=USUAL_SERVICE,
                action=USUAL_ACTION,
                from_role=own if sends else partner,
                to_role=partner if sends else own,
            ),
        )


def _pairs(
    bound: list[_Bound], made: Agreement
) -> Iterator[tuple[str, ActionBinding, ActionBinding]]:
    """Each binding that is wanted beside the one that came out."""
    yield SIDES[0], bound[0].binding, made.sending
    yield SIDES[1], bound[1].binding, made.receiving
    for direction in Direction:
        wanted = [one for one in bound[2:] if one.binding.direction is direction]
        found = [binding for binding in made.actions if binding.direction is direction]
        for one, binding in zip(wanted, found, strict=True):
            yield one.name, one.binding, binding


# --- the document ------------------------------------------------------------------------------


def _document(agreement: Agreement, bound: list[_Bound], beside: Remainder) -> bytes:
    root = (
        f'<tns:CollaborationProtocolAgreement xmlns:tns="{CPPA_2_0}" xmlns:ds="{DS}" '
        'xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'tns:cpaid={quoteattr(agreement.cpa_id)} tns:version="2_0b">'
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        root,
        f'<tns:Status tns:value="{agreement.status}"/>',
        f"<tns:Start>{_moment(agreement.start, _EVER)}</tns:Start>",
        f"<tns:End>{_moment(agreement.end, _ALWAYS)}</tns:End>",
    ]
    for position, side in enumerate((agreement.own, agreement.partner)):
        lines += _party(agreement, side, bound, first=position == 0)
    lines.append(_PACKAGING)
    if beside != Remainder(profile="cpa"):
        text = f"{BEYOND}\n{write_remainder(beside)}"
        lines.append(f'<tns:Comment xml:lang="en">{escape(text)}</tns:Comment>')
    lines.append("</tns:CollaborationProtocolAgreement>")
    return "\n".join(lines).encode()


def _moment(instant: Instant | None, unbound: str) -> str:
    return unbound if instant is None else format_instant(instant)


def _party(
    agreement: Agreement, side: PartyTerms, bound: list[_Bound], *, first: bool
) -> Iterator[str]:
    prefix = "a" if first else "b"
    default = bound[0 if first else 1].name
    name = side.name or side.party.ids[0].value
    yield (
        f"<tns:PartyInfo tns:partyName={quoteattr(name)} "
        f'tns:defaultMshChannelId="{prefix}.{default}.0" tns:defaultMshPackageId="package">'
    )
    for party_id in side.party.ids:
        kind = "" if party_id.type is None else f" tns:type={quoteattr(party_id.type)}"
        yield f"<tns:PartyId{kind}>{escape(party_id.value)}</tns:PartyId>"
    yield '<tns:PartyRef xlink:type="simple" xlink:href=""/>'
    for one in bound[2:]:
        yield _collaboration(one, sends=one.sends is first, prefix=prefix)
    shown = Certificates(side, agreement, first=first)
    yield from shown.elements(prefix)
    channels: list[str] = []
    transports: list[str] = []
    exchanges: list[str] = []
    for one in bound:
        sends = one.sends is first
        back = next(other for other in bound if other is not one) if one in bound[:2] else None
        if back is not None and not sends:
            # A party's own signals and those of its partner share its default channel.
            continue
        _channel(one, back, sends, prefix, side, shown, channels, transports, exchanges)
    yield from (*channels, *transports, *exchanges)
    yield "</tns:PartyInfo>"


def _collaboration(one: _Bound, *, sends: bool, prefix: str) -> str:
    binding = one.binding
    role = (binding.from_role if sends else binding.to_role) or _ANY
    this, other = ("send", "receive") if sends else ("receive", "send")
    can = "CanSend" if sends else "CanReceive"
    count = max(1, len(_ways(binding.endpoints)))
    channels = "".join(
        f"<tns:ChannelId>{prefix}.{one.name}.{number}</tns:ChannelId>" for number in range(count)
    )
    service = binding.service or USUAL_SERVICE
    inside = (
        f"<tns:{can}><tns:ThisPartyActionBinding tns:id={quoteattr(f'{one.name}.{this}')} "
        f'tns:action={quoteattr(binding.action or _ANY)} tns:packageId="package">'
        f"{_business(binding)}{channels}</tns:ThisPartyActionBinding>"
        f"<tns:OtherPartyActionBinding>{one.name}.{other}</tns:OtherPartyActionBinding>"
        f"</tns:{can}>"
    )
    link = 'xlink:type="simple" xlink:href="urn:oncewire:process"'
    kind = "" if service.type is None else f" tns:type={quoteattr(service.type)}"
    return (
        '<tns:CollaborationRole><tns:ProcessSpecification tns:name="documents" tns:version="1.0" '
        f"{link}/><tns:Role tns:name={quoteattr(role)} {link}/><tns:ServiceBinding>"
        f"<tns:Service{kind}>{escape(service.value)}</tns:Service>{inside}"
        "</tns:ServiceBinding></tns:CollaborationRole>"
    )


def _business(binding: ActionBinding) -> str:
    """Every attribute that is yes or no is said: ebms-core refuses a CPA without it. What is signed
    and encrypted is said to be so, for handlers sign and encrypt by these words."""
    said, secret = binding.business, binding.business.confidential
    if binding.security.encrypt and not secret.persistent:
        secret = Protection.BOTH if secret.transient else Protection.PERSISTENT
    words = {
        "isNonRepudiationRequired": _flag(said.non_repudiation or _signed(binding)),
        "isNonRepudiationReceiptRequired": _flag(said.non_repudiation_of_receipt),
        "isConfidential": secret.value,
        "isAuthenticated": said.authenticated.value,
        "isTamperProof": said.tamper_proof.value,
        "isAuthorizationRequired": _flag(said.authorization_required),
        "isIntelligibleCheckRequired": _flag(said.intelligible_check),
    }
    for name, duration in (
        ("timeToAcknowledgeReceipt", said.time_to_acknowledge_receipt),
        ("timeToAcknowledgeAcceptance", said.time_to_acknowledge_acceptance),
        ("timeToPerform", said.time_to_perform),
    ):
        if duration is not None:
            words[name] = format_duration(duration)
    if said.retry_count is not None:
        words["retryCount"] = str(said.retry_count)
    attributes = " ".join(f'tns:{name}="{value}"' for name, value in words.items())
    return f"<tns:BusinessTransactionCharacteristics {attributes}/>"


def _signed(binding: ActionBinding) -> bool:
    """Whether the messages of a binding are signed, in either direction."""
    sends = binding.direction is Direction.SEND
    return binding.security.sign if sends else binding.security.require_signature


def _flag(value: bool) -> str:
    return "true" if value else "false"


# --- channels ----------------------------------------------------------------------------------


class Certificates:
    """The certificates that a party is known by in the CPA."""

    def __init__(self, side: PartyTerms, agreement: Agreement, *, first: bool) -> None:
        known = [binding.security for binding in agreement.bindings()]
        signing = list(side.signing_certificates)
        if not first:
            signing += [der for one in known for der in one.partner_certificates]
        self._signing = signing[-1:]
        shown = [der for der in signing if fingerprint(der) in side.client_certificates]
        self._shown = (list(side.certificates) or shown)[-1:]

    def elements(self, prefix: str) -> Iterator[str]:
        """The certificates as the PartyInfo lists them."""
        for name, ders in (("signing", self._signing), ("shown", self._shown)):
            for der in ders:
                text = base64.b64encode(der).decode()
                yield (
                    f'<tns:Certificate tns:certId="{prefix}.{name}"><ds:KeyInfo><ds:X509Data>'
                    f"<ds:X509Certificate>{text}</ds:X509Certificate></ds:X509Data></ds:KeyInfo>"
                    "</tns:Certificate>"
                )

    @property
    def signs(self) -> bool:
        """Whether the certificates that it signs and decrypts with are known."""
        return bool(self._signing)

    @property
    def shows(self) -> bool:
        """Whether the certificate that it shows on connections is known."""
        return bool(self._shown)


def _ways(endpoints: Iterable[Endpoint]) -> dict[str, list[Endpoint]]:
    """Addresses by transport: a Transport of CPPA has one protocol."""
    found: dict[str, list[Endpoint]] = {}
    for end in endpoints:
        found.setdefault(end.transport, []).append(end)
    return found


def _channel(
    one: _Bound,
    back: _Bound | None,
    sends: bool,
    prefix: str,
    side: PartyTerms,
    shown: Certificates,
    channels: list[str],
    transports: list[str],
    exchanges: list[str],
) -> None:
    """The channels of one binding in one party; `back`: the other way over the same channel."""
    binding = one.binding
    taken = back.binding if back is not None else binding
    ends = _ways(taken.endpoints if back is not None or not sends else ())
    own = _ways(side.endpoints)
    ways = list(_ways(binding.endpoints)) or ["http"]
    if back is not None:
        ways = list(ends)[:1] or ways[:1]
    for number, way in enumerate(ways):
        name = f"{prefix}.{one.name}.{number}"
        channels.append(
            f'<tns:DeliveryChannel tns:channelId="{name}" tns:transportId="{name}.t" '
            f'tns:docExchangeId="{name}.d">{_characteristics(binding)}</tns:DeliveryChannel>'
        )
        # Where a channel only sends, its party is reached as it is anyway.
        reached = ends.get(way) or own.get(way) or next(iter(own.values()))
        transports.append(_transport(name, prefix, way, reached, shown))
        exchanges.append(
            f'<tns:DocExchange tns:docExchangeId="{name}.d">{_sender(binding, prefix, shown)}'
            f"{_receiver(taken, prefix, shown)}</tns:DocExchange>"
        )


def _characteristics(binding: ActionBinding) -> str:
    rules = binding.rules
    words = {"syncReplyMode": binding.terms.sync_mode.value}
    for name, rule in (
        ("ackRequested", rules.ack),
        ("ackSignatureRequested", rules.ack_signature),
        ("duplicateElimination", rules.duplicate_elimination),
    ):
        # The drafts' fourth word is none of CPPA's.
        words[name] = (Requested.PER_MESSAGE if rule is Requested.WHEN_STATED else rule).value
    words["actor"] = rules.actor.value
    attributes = " ".join(f'tns:{name}="{value}"' for name, value in words.items())
    return f"<tns:MessagingCharacteristics {attributes}/>"


def _transport(name: str, prefix: str, way: str, ends: list[Endpoint], shown: Certificates) -> str:
    back = ends[0].transport
    kind = '<tns:TransportSecurityProtocol tns:version="1.2">TLS</tns:TransportSecurityProtocol>'
    client = (
        f"<tns:TransportClientSecurity>{kind}"
        f'<tns:ClientCertificateRef tns:certId="{prefix}.shown"/></tns:TransportClientSecurity>'
    )
    server = (
        f"<tns:TransportServerSecurity>{kind}"
        f'<tns:ServerCertificateRef tns:certId="{prefix}.shown"/></tns:TransportServerSecurity>'
    )
    listed = "".join(
        f'<tns:Endpoint tns:uri={quoteattr(end.address)} tns:type="{end.type.value}"/>'
        for end in ends
    )
    return (
        f'<tns:Transport tns:transportId="{name}.t"><tns:TransportSender>{_protocol(way)}'
        f"{client if shown.shows and way == 'http' else ''}</tns:TransportSender>"
        f"<tns:TransportReceiver>{_protocol(back)}{listed}"
        f"{server if shown.shows and back == 'http' else ''}</tns:TransportReceiver>"
        "</tns:Transport>"
    )


def _protocol(way: str) -> str:
    return f'<tns:TransportProtocol tns:version="1.1">{way.upper()}</tns:TransportProtocol>'


def _reliable(binding: ActionBinding) -> str:
    terms = binding.terms
    kept = f"<tns:PersistDuration>{format_duration(terms.persist_duration)}</tns:PersistDuration>"
    if not terms.reliable:
        return kept
    order = "Guaranteed" if terms.ordered else "NotGuaranteed"
    return (
        f"<tns:ReliableMessaging><tns:Retries>{terms.retries}</tns:Retries>"
        f"<tns:RetryInterval>{format_duration(terms.retry_interval)}</tns:RetryInterval>"
        f"<tns:MessageOrderSemantics>{order}</tns:MessageOrderSemantics></tns:ReliableMessaging>"
        f"{kept}"
    )


def _sender(binding: ActionBinding, prefix: str, shown: Certificates) -> str:
    text = f'<tns:ebXMLSenderBinding tns:version="2.0">{_reliable(binding)}'
    if _signed(binding) and shown.signs:
        text += (
            f"<tns:SenderNonRepudiation>{_signature(binding)}"
            f'<tns:SigningCertificateRef tns:certId="{prefix}.signing"/></tns:SenderNonRepudiation>'
        )
    return text + "</tns:ebXMLSenderBinding>"


def _receiver(binding: ActionBinding, prefix: str, shown: Certificates) -> str:
    security = binding.security
    text = f'<tns:ebXMLReceiverBinding tns:version="2.0">{_reliable(binding)}'
    if _signed(binding):
        text += f"<tns:ReceiverNonRepudiation>{_signature(binding)}</tns:ReceiverNonRepudiation>"
    if security.encrypt and shown.signs:
        is_smime = security.encryption_syntax is EncryptionSyntax.SMIME
        protocol = 'tns:version="3.0">S/MIME' if is_smime else 'tns:version="1.0">XMLENC'
        text += (
            "<tns:ReceiverDigitalEnvelope>"
            f"<tns:DigitalEnvelopeProtocol {protocol}</tns:DigitalEnvelopeProtocol>"
            f"<tns:EncryptionAlgorithm>{escape(security.encryption_algorithm)}"
            "</tns:EncryptionAlgorithm>"
            f'<tns:EncryptionCertificateRef tns:certId="{prefix}.signing"/>'
            "</tns:ReceiverDigitalEnvelope>"
        )
    return text + "</tns:ebXMLReceiverBinding>"


def _signature(binding: ActionBinding) -> str:
    """How messages are signed, for the signer and for the verifier."""
    security = binding.security
    return (
        f"<tns:NonRepudiationProtocol>{DS}</tns:NonRepudiationProtocol>"
        f"<tns:HashFunction>{escape(security.digest_algorithm)}</tns:HashFunction>"
        f"<tns:SignatureAlgorithm>{escape(security.signature_algorithm)}</tns:SignatureAlgorithm>"
    )

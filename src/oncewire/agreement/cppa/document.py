"""A CPA's parties, actions and channels as plain values, not yet judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lxml import etree
from lxml.etree import _Element as Element

from oncewire.agreement.agreement import Direction, Endpoint, EndpointType
from oncewire.agreement.certificates import from_base64
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.ids import PartyId, Service

# Parses untrusted XML of a CPA, and finds elements in it by their local names.
#
# CPPA 2.0, the 1.0 form that PHINMS keeps, and the drafts differ in namespace, so names are
# compared without it. The parser opens nothing, knows no DTD and no entities, and refuses what is
# too large to be a CPA.


SIZE_MAX = 8 * 1024 * 1024
"""The largest CPA of the samples has 160 KB, most of it certificates."""


def parse(xml: bytes | str) -> Element:
    """The root element; anything but a small, plain XML document is refused."""
    data = xml.encode("utf-8", errors="surrogatepass") if isinstance(xml, str) else xml
    if len(data) > SIZE_MAX:
        raise AgreementProblem(f"the file has more than {SIZE_MAX} bytes", remedy="this is no CPA")
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        # Text in hand is UTF-8 by now, whatever its XML declaration says.
        encoding="utf-8" if isinstance(xml, str) else None,
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError, LookupError) as error:
        raise AgreementProblem(
            f"this is not well-formed XML: {str(error)[:200]}", remedy="ask for the file again"
        ) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise AgreementProblem(
            "the file has a DOCTYPE", remedy="remove the DOCTYPE; a CPA needs none"
        )
    return root


def local(element: Element) -> str:
    """The name without its namespace."""
    return str(element.tag).rpartition("}")[2]


def children(element: Element | None, name: str) -> Iterator[Element]:
    """The child elements of that local name."""
    if element is not None:
        for each_element in element.iterchildren(etree.Element):
            if local(each_element) == name:
                yield each_element


def child(element: Element | None, *path: str) -> Element | None:
    """The first descendant along the path of local names."""
    for name in path:
        element = next(children(element, name), None)
    return element


def attribute(element: Element | None, name: str) -> str | None:
    """The attribute of that local name, qualified or not."""
    return attributes(element).get(name)


def attributes(element: Element | None) -> dict[str, str]:
    """Every attribute by its local name, without white space around the values."""
    if element is None:
        return {}
    return {
        str(name).rpartition("}")[2]: str(value).strip() for name, value in element.attrib.items()
    }


def text_of(element: Element | None, *path: str) -> str | None:
    """The text of the element at the path, stripped; None when there is none."""
    found = child(element, *path)
    text = (found.text or "").strip() if found is not None else ""
    return text or None


def inside(element: Element | None) -> Iterator[Element]:
    """Every child element."""
    if element is not None:
        yield from element.iterchildren(etree.Element)


def descendants(element: Element, *names: str) -> Iterator[Element]:
    """Every element below with one of those local names, in document order."""
    for each_element in element.iter(etree.Element):
        if local(each_element) in names:
            yield each_element


# DeliveryChannel of a CPA, with the Transport and the DocExchange it points to.


@dataclass(frozen=True, slots=True)
class Exchange:
    """An ebXMLSenderBinding or ebXMLReceiverBinding (2.0), or an ebXMLBinding (1.0)."""

    # Local name to text, of ReliableMessaging's children and attributes, and PersistDuration.
    reliable: dict[str, str] = field(default_factory=dict)
    has_reliable: bool = False
    has_signature: bool = False
    hash_function: str | None = None
    signature_algorithm: str | None = None
    signing_certificate: str | None = None
    signing_security: str | None = None
    envelope_protocol: str | None = None
    encryption_algorithm: str | None = None
    encryption_certificate: str | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """A DeliveryChannel with the Transport and DocExchange it points to."""

    channel_id: str
    exchange_id: str = ""
    # MessagingCharacteristics (2.0) or Characteristics (1.0, drafts), by local name.
    characteristics: dict[str, str] = field(default_factory=dict)
    is_2_0: bool = False
    # The transport it sends on, and where it receives.
    sends_on: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    client_certificate: str | None = None
    server_certificate: str | None = None
    # SecurityDetails that say whose certificates it takes from the other side's server and client.
    vouched_by: tuple[str, ...] = ()
    access_authentication: bool = False
    sender: Exchange = field(default_factory=Exchange)
    receiver: Exchange = field(default_factory=Exchange)


def read_channel(
    element: Element, transports: dict[str | None, Element], exchanges: dict[str | None, Element]
) -> Channel:
    """The channel, with what its two references say put into it."""
    transport = transports.get(attribute(element, "transportId"))
    exchange = exchanges.get(attribute(element, "docExchangeId"))
    modern = child(element, "MessagingCharacteristics")
    old = child(exchange, "ebXMLBinding")
    return Channel(
        channel_id=attribute(element, "channelId") or "",
        exchange_id=attribute(element, "docExchangeId") or "",
        characteristics=attributes(modern)
        if modern is not None
        else attributes(child(element, "Characteristics")),
        is_2_0=modern is not None,
        sends_on=_transport_name(text_of(transport, "TransportSender", "TransportProtocol")),
        endpoints=read_endpoints(transport),
        client_certificate=_secured(transport, "Client"),
        server_certificate=_secured(transport, "Server"),
        vouched_by=tuple(
            filter(None, (_vouched(transport, side) for side in ("Client", "Server")))
        ),
        access_authentication=child(transport, "TransportSender", "AccessAuthentication")
        is not None,
        sender=_exchange(old if old is not None else child(exchange, "ebXMLSenderBinding")),
        receiver=_exchange(old if old is not None else child(exchange, "ebXMLReceiverBinding")),
    )


def _secured(transport: Element | None, side: str) -> str | None:
    """The certificate that a TransportClientSecurity or TransportServerSecurity refers to."""
    place = "TransportSender" if side == "Client" else "TransportReceiver"
    path = (place, f"Transport{side}Security", f"{side}CertificateRef")
    return attribute(child(transport, *path), "certId")


def _vouched(transport: Element | None, side: str) -> str | None:
    """The SecurityDetails by which a TransportClientSecurity judges servers, or the other way."""
    place, other = ("TransportSender", "Server")
    if side == "Server":
        place, other = ("TransportReceiver", "Client")
    path = (place, f"Transport{side}Security", f"{other}SecurityDetailsRef")
    return attribute(child(transport, *path), "securityId")


def read_endpoints(transport: Element | None) -> tuple[Endpoint, ...]:
    """Where a transport receives; 1.0 has its Endpoint straight inside the Transport."""
    receiver = child(transport, "TransportReceiver")
    place = receiver if receiver is not None else transport
    protocol = text_of(place, "TransportProtocol") or text_of(place, "ReceivingProtocol")
    scheme = (text_of(place, "TransportSecurity", "Protocol") or "https").lower()
    found = []
    for element in children(place, "Endpoint"):
        address = attribute(element, "uri") or ""
        kind = attribute(element, "type") or EndpointType.ALL_PURPOSE.value
        if address and kind in {known.value for known in EndpointType}:
            # One address in the usual form: `mailto:` without slashes, and never without scheme.
            if address.lower().startswith("mailto:"):
                address = "mailto:" + address[len("mailto:") :].lstrip("/")
            elif "://" not in address:
                address = f"{scheme}://{address}"
            name = _transport_name(protocol or address.partition(":")[0])
            found.append(Endpoint(name or "http", address, EndpointType(kind)))
    return tuple(dict.fromkeys(found))


def _transport_name(protocol: str | None) -> str | None:
    """Our name of a TransportProtocol; HTTPS is HTTP over TLS."""
    if protocol is None:
        return None
    return {"https": "http", "mailto": "smtp"}.get(protocol.lower(), protocol.lower())


def _exchange(binding: Element | None) -> Exchange:
    reliable = child(binding, "ReliableMessaging")
    values = attributes(reliable)
    for element in (*inside(reliable), *inside(binding)):
        if element.text and element.text.strip() and len(element) == 0:
            values.setdefault(local(element), element.text.strip())
    # Attributes of the binding itself, where drafts put parameters, but not its version.
    for name, value in attributes(binding).items():
        if name != "version":
            values.setdefault(name, value)
    signature = _of_either_side(binding, "NonRepudiation")
    envelope = _of_either_side(binding, "DigitalEnvelope")
    certificate = attribute(child(signature, "SigningCertificateRef"), "certId")
    return Exchange(
        reliable=values,
        has_reliable=reliable is not None,
        has_signature=signature is not None,
        hash_function=text_of(signature, "HashFunction"),
        signature_algorithm=_algorithm(child(signature, "SignatureAlgorithm")),
        signing_certificate=certificate or attribute(child(signature, "CertificateRef"), "certId"),
        signing_security=attribute(child(signature, "SigningSecurityDetailsRef"), "securityId"),
        envelope_protocol=text_of(envelope, "DigitalEnvelopeProtocol"),
        encryption_algorithm=_algorithm(child(envelope, "EncryptionAlgorithm")),
        encryption_certificate=attribute(child(envelope, "EncryptionCertificateRef"), "certId")
        or attribute(child(envelope, "CertificateRef"), "certId"),
    )


def _of_either_side(binding: Element | None, name: str) -> Element | None:
    found = (child(binding, f"{side}{name}") for side in ("Sender", "Receiver", ""))
    return next((element for element in found if element is not None), None)


def _algorithm(element: Element | None) -> str | None:
    """The W3C URI where it is given, else the text."""
    text = (element.text or "").strip() if element is not None else ""
    return attribute(element, "w3c") or text or None


BEYOND = "Beyond CPPA 2.0, for Oncewire:"
"""The beginning of the Comment that holds the remainder."""

CPPA_2_0 = "http://www.oasis-open.org/committees/ebxml-cppa/schema/cpp-cpa-2_0.xsd"


@dataclass(frozen=True, slots=True)
class CpaAction:
    """One CanSend or CanReceive of a party, or a whole ServiceBinding of 1.0."""

    direction: Direction
    service: Service
    action: str | None = None
    binding_id: str | None = None
    other_id: str | None = None
    role: str | None = None
    channel_ids: tuple[str, ...] = ()
    # BusinessTransactionCharacteristics, by local name.
    business: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CpaParty:
    """One PartyInfo."""

    name: str
    # A PHINMS file may leave the PartyId empty.
    ids: tuple[PartyId, ...]
    channels: dict[str, Channel]
    actions: tuple[CpaAction, ...]
    certificates: dict[str, tuple[bytes, ...]]
    anchors: dict[str, tuple[str, ...]]
    default_channel: str | None = None
    # MSH action to channel, where it is not the default one.
    overrides: dict[str, str] = field(default_factory=dict)
    # Endpoints of all transports, whether a channel uses them or not.
    endpoints: tuple[Endpoint, ...] = ()
    # Whether it is the first PartyInfo of the CPA or the second.
    position: int = 0

    @property
    def label(self) -> str:
        """The party as an error message calls it."""
        return self.name or (str(self.ids[0]) if self.ids else "without a name")

    def channel(self, channel_id: str | None) -> Channel | None:
        """The channel of that id; one that is named but missing is an error of the CPA."""
        if channel_id is None:
            return None
        if channel_id not in self.channels:
            raise AgreementProblem(
                f"party {self.label}: there is no DeliveryChannel {channel_id[:128]!r}",
                key="DeliveryChannel",
                remedy="ask the partner for a complete CPA",
            )
        return self.channels[channel_id]


@dataclass(frozen=True, slots=True)
class CpaDocument:
    """A whole CPA."""

    cpa_id: str
    is_2_0: bool
    status: str
    start: str | None
    end: str | None
    parties: tuple[CpaParty, ...]
    # Media types of Encapsulation elements: payloads inside another envelope.
    encapsulations: tuple[str, ...] = ()
    # The Comment in which Oncewire says what CPPA has no word for.
    beyond: str | None = None


def read_document(xml: bytes | str) -> CpaDocument:
    """The CPA as plain values; anything that is no CPA is an `AgreementProblem`."""
    root = parse(xml)
    if local(root) != "CollaborationProtocolAgreement":
        raise AgreementProblem(
            f"the root element is {local(root)[:64]}, not CollaborationProtocolAgreement",
            remedy="give a CPA; a CPP or a message is something else",
        )
    # 2.0a to 2.0c say the same under names that differ in a letter.
    is_2_0 = (etree.QName(root).namespace or "").startswith(CPPA_2_0.removesuffix(".xsd"))
    status = child(root, "Status")
    packaging = {
        attribute(element, "mimetype") or "" for element in descendants(root, "Encapsulation")
    }
    return CpaDocument(
        cpa_id=attribute(root, "cpaid") or "",
        is_2_0=is_2_0,
        status=(attribute(status, "value") if status is not None else None) or "agreed",
        start=text_of(root, "Start"),
        end=text_of(root, "End"),
        parties=tuple(
            replace(_party(element), position=min(place, 1))
            for place, element in enumerate(children(root, "PartyInfo"))
        ),
        encapsulations=tuple(sorted(packaging - {""})),
        beyond=next(
            (
                element.text
                for element in children(root, "Comment")
                if element.text and element.text.strip().startswith(BEYOND)
            ),
            None,
        ),
    )


def _party(info: Element) -> CpaParty:
    transports, exchanges = (
        {attribute(element, key): element for element in children(info, name)}
        for name, key in (("Transport", "transportId"), ("DocExchange", "docExchangeId"))
    )
    channels = {}
    for element in children(info, "DeliveryChannel"):
        channel = read_channel(element, transports, exchanges)
        channels[channel.channel_id] = channel
    ids = tuple(
        PartyId((element.text or "").strip(), attribute(element, "type"))
        for element in children(info, "PartyId")
        if (element.text or "").strip()
    )
    return CpaParty(
        name=attribute(info, "partyName") or "",
        ids=ids,
        channels=channels,
        actions=tuple(_actions(info)),
        certificates={
            attribute(element, "certId") or "": _certificates(element)
            for element in children(info, "Certificate")
        },
        anchors={
            attribute(element, "securityId") or "": tuple(
                attribute(anchor, "certId") or ""
                for anchor in children(child(element, "TrustAnchors"), "AnchorCertificateRef")
            )
            for element in children(info, "SecurityDetails")
        },
        # 1.0 names no channel for signals.
        default_channel=attribute(info, "defaultMshChannelId") or next(iter(channels), None),
        overrides={
            attribute(element, "action") or "": attribute(element, "channelId") or ""
            for element in children(info, "OverrideMshActionBinding")
        },
        endpoints=tuple(
            dict.fromkeys(end for element in transports.values() for end in read_endpoints(element))
        ),
    )


def _certificates(element: Element) -> tuple[bytes, ...]:
    found = []
    for each_element in descendants(element, "X509Certificate"):
        if (each_element.text or "").strip():
            try:
                found.append(from_base64(each_element.text or ""))
            except InvalidValue as error:
                raise AgreementProblem(
                    f"Certificate {attribute(element, 'certId')}: {error.problem}",
                    key="Certificate",
                    remedy=error.remedy,
                ) from None
    return tuple(found)


def _actions(info: Element) -> Iterator[CpaAction]:
    for role in children(info, "CollaborationRole"):
        name = attribute(child(role, "Role"), "name")
        for binding in children(role, "ServiceBinding"):
            element = child(binding, "Service")
            value = text_of(binding, "Service") or attribute(binding, "name")
            if value is None:
                raise AgreementProblem(
                    "a ServiceBinding names no Service", key="Service", remedy="correct the CPA"
                )
            service = Service(value, attribute(element, "type"))
            listed = list(descendants(binding, "CanSend", "CanReceive"))
            for each_element in listed:
                yield _action(each_element, service, name)
            if attribute(binding, "channelId") is not None:
                yield from _whole_service(binding, service, name)


def _action(element: Element, service: Service, role: str | None) -> CpaAction:
    """CanSend or CanReceive, wherever it stands: a nested one is the synchronous reply."""
    this = child(element, "ThisPartyActionBinding")
    direction = Direction.SEND if local(element) == "CanSend" else Direction.RECEIVE
    return CpaAction(
        direction=direction,
        service=service,
        action=attribute(this, "action"),
        binding_id=attribute(this, "id"),
        other_id=text_of(element, "OtherPartyActionBinding"),
        role=role,
        channel_ids=tuple(
            text
            for each_element in children(this, "ChannelId")
            if (text := (each_element.text or "").strip())
        ),
        business=attributes(child(this, "BusinessTransactionCharacteristics")),
    )


def _whole_service(binding: Element, service: Service, role: str | None) -> Iterator[CpaAction]:
    """1.0: one channel for the service, and an Override for each action that differs."""
    channel = attribute(binding, "channelId")
    channels = (channel,) if channel else ()
    for direction in Direction:
        yield CpaAction(direction, service, None, role=role, channel_ids=channels)
        for element in children(binding, "Override"):
            other = attribute(element, "channelId")
            yield CpaAction(
                direction,
                service,
                attribute(element, "action"),
                role=role,
                channel_ids=(other,) if other else channels,
            )

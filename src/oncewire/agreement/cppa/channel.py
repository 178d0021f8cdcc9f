"""DeliveryChannel of a CPA, with the Transport and the DocExchange it points to."""

from __future__ import annotations

from dataclasses import dataclass, field

from lxml.etree import _Element as Element

from oncewire.agreement.agreement import Endpoint, EndpointType
from oncewire.agreement.cppa.xml import (
    attribute,
    attributes,
    child,
    children,
    inside,
    local,
    text_of,
)


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
    element: Element,
    transports: dict[str | None, Element],
    exchanges: dict[str | None, Element],
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
            found.append(_endpoint(protocol, scheme, address, EndpointType(kind)))
    return tuple(dict.fromkeys(found))


def _endpoint(protocol: str | None, scheme: str, address: str, kind: EndpointType) -> Endpoint:
    """One address in the usual form: `mailto:` without slashes, and never without scheme."""
    if address.lower().startswith("mailto:"):
        address = "mailto:" + address[len("mailto:") :].lstrip("/")
    elif "://" not in address:
        address = f"{scheme}://{address}"
    name = _transport_name(protocol or address.partition(":")[0])
    return Endpoint(name or "http", address, kind)


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
    signature = next(
        (
            found
            for name in ("SenderNonRepudiation", "ReceiverNonRepudiation", "NonRepudiation")
            if (found := child(binding, name)) is not None
        ),
        None,
    )
    envelope = next(
        (
            found
            for name in ("SenderDigitalEnvelope", "ReceiverDigitalEnvelope", "DigitalEnvelope")
            if (found := child(binding, name)) is not None
        ),
        None,
    )
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


def _algorithm(element: Element | None) -> str | None:
    """The W3C URI where it is given, else the text."""
    text = (element.text or "").strip() if element is not None else ""
    return attribute(element, "w3c") or text or None

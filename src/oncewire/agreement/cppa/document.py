"""A CPA's parties, actions and channels as plain values, not yet judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lxml import etree
from lxml.etree import _Element as Element

from oncewire.agreement.agreement import Direction, Endpoint
from oncewire.agreement.certificates import from_base64
from oncewire.agreement.cppa.channel import Channel, read_channel, read_endpoints
from oncewire.agreement.cppa.xml import (
    attribute,
    attributes,
    child,
    children,
    descendants,
    local,
    parse,
    text_of,
)
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message.ids import PartyId, Service

BEYOND = "Beyond CPPA 2.0, for Oncewire:"
"""How that Comment begins."""

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
    transports = {
        attribute(element, "transportId"): element for element in children(info, "Transport")
    }
    exchanges = {
        attribute(element, "docExchangeId"): element for element in children(info, "DocExchange")
    }
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

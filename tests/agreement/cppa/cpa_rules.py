"""What a CPA has to be for others to take it: CPPA 2.0's schema, and what ebms-core reads of it.

ebms-core 2.x refuses a CPA at its first missing piece, with no more than a null pointer; the rules
here are each of those pieces, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lxml import etree
from lxml.etree import _Element as Element

NAMESPACE = "http://www.oasis-open.org/committees/ebxml-cppa/schema/cpp-cpa-2_0.xsd"
SAID = (
    "isNonRepudiationRequired",
    "isNonRepudiationReceiptRequired",
    "isConfidential",
    "isAuthenticated",
    "isTamperProof",
    "isAuthorizationRequired",
    "isIntelligibleCheckRequired",
)

CHANNEL = (
    "syncReplyMode",
    "ackRequested",
    "ackSignatureRequested",
    "duplicateElimination",
    "actor",
)


def _tag(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"


def all_of(element: Element, name: str) -> list[Element]:
    """The descendants of that name."""
    return list(element.iter(_tag(name)))


def said(element: Element, name: str) -> str | None:
    """An attribute of CPPA."""
    value = element.get(_tag(name))
    return None if value is None else str(value)


def problems(xml: bytes) -> list[str]:
    """What keeps ebms-core from taking the CPA, or from exchanging messages under it."""
    return list(_problems(etree.fromstring(xml)))


def _problems(root: Element) -> Iterator[str]:
    if said(all_of(root, "Status")[0], "value") == "proposed":
        yield "it is only proposed"
    for exchange in all_of(root, "DocExchange"):
        for part in ("ebXMLSenderBinding", "ebXMLReceiverBinding"):
            if not all_of(exchange, part):
                yield f"DocExchange {said(exchange, 'docExchangeId')} has no {part}"
    for transport in all_of(root, "Transport"):
        for part in ("TransportSender", "TransportReceiver"):
            found = all_of(transport, part)
            if not found or not all_of(found[0], "TransportProtocol"):
                yield f"Transport {said(transport, 'transportId')} has no {part}"
        if not all_of(transport, "Endpoint"):
            yield f"Transport {said(transport, 'transportId')} has no Endpoint"
    for binding in all_of(root, "ThisPartyActionBinding"):
        (business,) = all_of(binding, "BusinessTransactionCharacteristics")
        for name in SAID:
            if said(business, name) is None:
                yield f"action {said(binding, 'action')} does not say {name}"
    for channel in all_of(root, "MessagingCharacteristics"):
        for name in CHANNEL:
            if said(channel, name) is None:
                yield f"a channel does not say {name}"
    yield from _unpaired(root)


def _unpaired(root: Element) -> Iterator[str]:
    """Each CanSend names a CanReceive of the other party, with the same Service and action."""
    bindings = {}
    for party in all_of(root, "PartyInfo"):
        for role in all_of(party, "CollaborationRole"):
            service = all_of(role, "Service")[0]
            for can in (*all_of(role, "CanSend"), *all_of(role, "CanReceive")):
                (this,) = all_of(can, "ThisPartyActionBinding")
                other = all_of(can, "OtherPartyActionBinding")[0].text
                what = (service.text, said(service, "type"), said(this, "action"))
                bindings[said(this, "id")] = (party, can.tag, what, other)
    for name, (party, tag, what, other) in bindings.items():
        there = bindings.get(other)
        if there is None or there[0] is party or there[1] == tag or there[2:] != (what, name):
            yield f"{what} of {said(party, 'partyName')} has no counterpart"


def schema(corpus: Path) -> etree.XMLSchema:
    """CPPA 2.0's own."""
    return etree.XMLSchema(etree.parse(corpus / "ebms-core/xsd/cpp-cpa-2_0.xsd"))


def alike(one: Element, other: Element) -> bool:
    """Whether two elements say the same: names, attributes, texts and children in their order."""
    inside = [list(each.iterchildren(etree.Element)) for each in (one, other)]
    return (
        one.tag == other.tag
        and {name: value.strip() for name, value in one.attrib.items()}
        == {name: value.strip() for name, value in other.attrib.items()}
        and "".join(one.xpath("text()")).split() == "".join(other.xpath("text()")).split()
        and len(inside[0]) == len(inside[1])
        and all(alike(*pair) for pair in zip(*inside, strict=True))
    )

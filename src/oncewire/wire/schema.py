"""Whether a header has the structure its specification prints, and where it does not.

The tables are those of the standard: which children, how many, in which order, which attributes, of
which type. They are turned into an XML Schema once, and libxml2 judges by it: the same verdict as
the official schema's, at the speed of C. What a breach means is the agreement's matter (`enforce`,
`report`, `off`): real partners are not always valid (docs/explanation/decisions.md#real-partners).
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Iterator
from typing import Any

from lxml import etree

from oncewire.errors import SoapFault
from oncewire.message.form import Dialect
from oncewire.wire.drafts.blocks import canonical_tag
from oncewire.wire.ebms2.blocks import DS, EB, SOAP, STRUCTURE, XLINK, XML
from oncewire.wire.xml import Element, children

PROBLEMS_MAX = 20
"""Breaches that are reported: the first usually causes the rest."""

# §9.1.1, §4.2.3.2.4 and §7.3.
_ENUMERATIONS = {
    "order": ("Reset", "Continue"),
    "severity": ("Warning", "Error"),
    "status": ("UnAuthorized", "NotRecognized", "Received", "Processed", "Forwarded"),
}
_OCCURS = {
    "": "",
    "?": ' minOccurs="0"',
    "*": ' minOccurs="0" maxOccurs="unbounded"',
    "+": ' maxOccurs="unbounded"',
}
# Lax: foreign content is checked where its schema is known, which is never (§2.3.6).
_OTHER = '<xs:any namespace="##other" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>'
# Skipped: `security` reads them, and more strictly than a schema could.
_DIGESTS = f'<xs:any namespace="{DS}" processContents="skip" minOccurs="0" maxOccurs="unbounded"/>'
_OTHER_ATTRIBUTES = '<xs:anyAttribute namespace="##other" processContents="lax"/>'
_CHILD = re.compile(r"(\w+)([?*+]?)\Z")
_ATTRIBUTE = re.compile(r"((?:\w+:)?\w+)([!?])(=?)([\w:]*)\Z")


def _children(words: str) -> str:
    inner = ""
    for word in words.split():
        match = _CHILD.match(word)
        name, occurs = (match.group(1), match.group(2)) if match else (word, "")
        if name == "other":
            inner += _OTHER
        elif name == "ds":
            inner += _DIGESTS
        elif name == "Role":
            # The one element without a declaration of its own.
            inner += f'<xs:element name="Role" type="t:text"{_OCCURS[occurs]}/>'
        else:
            inner += f'<xs:element ref="t:{name}"{_OCCURS[occurs]}/>'
    return f"<xs:sequence>{inner}</xs:sequence>" if inner else ""


def _attributes(words: str) -> str:
    inner = last = ""
    for word in words.split():
        match = _ATTRIBUTE.match(word)
        if match is None:
            last = _OTHER_ATTRIBUTES
            continue
        name, need, fixed, kind = match.groups()
        use = ' use="required"' if need == "!" else ""
        if fixed:
            inner += f'<xs:attribute ref="{name}" fixed="{kind}"{use}/>'
        elif kind:
            inner += f'<xs:attribute name="{name}" type="{_type(kind)}"{use}/>'
        else:
            reference = name if ":" in name else f"t:{name}"
            inner += f'<xs:attribute ref="{reference}"{use}/>'
    return inner + last


def _type(kind: str) -> str:
    return kind if kind.startswith("xs:") else f"t:{kind}"


def _element(name: str, content: str, attributes: str) -> str:
    if not content.startswith("="):
        inner = _children(content) + _attributes(attributes)
        return f'<xs:element name="{name}"><xs:complexType>{inner}</xs:complexType></xs:element>'
    kind = _type(content[1:].strip())
    if not attributes:
        return f'<xs:element name="{name}" type="{kind}"/>'
    return (
        f'<xs:element name="{name}"><xs:complexType><xs:simpleContent>'
        f'<xs:extension base="{kind}">{_attributes(attributes)}</xs:extension>'
        "</xs:simpleContent></xs:complexType></xs:element>"
    )


_OPEN = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"'


def _ebxml_schema() -> str:
    imports = "".join(
        f'<xs:import namespace="{uri}" schemaLocation="memory:{name}"/>'
        for name, uri in (("soap", SOAP), ("xlink", XLINK), ("xml", XML))
    )
    words = "".join(
        f'<xs:simpleType name="{name}"><xs:restriction base="xs:NMTOKEN">'
        + "".join(f'<xs:enumeration value="{value}"/>' for value in values)
        + "</xs:restriction></xs:simpleType>"
        for name, values in _ENUMERATIONS.items()
    )
    elements = "".join(_element(name, *row) for name, row in STRUCTURE.items())
    return (
        f'{_OPEN} xmlns:t="{EB}" xmlns:soap="{SOAP}" xmlns:xlink="{XLINK}" '
        f'targetNamespace="{EB}" elementFormDefault="qualified" attributeFormDefault="qualified">'
        f'{imports}{words}<xs:simpleType name="text"><xs:restriction base="xs:string">'
        '<xs:minLength value="1"/></xs:restriction></xs:simpleType>'
        '<xs:attribute name="id" type="xs:ID"/><xs:attribute name="version" type="t:text"/>'
        f"{elements}</xs:schema>"
    )


def _soap_schema() -> str:
    anything = (
        '<xs:any namespace="##any" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>'
    )
    return (
        f'{_OPEN} xmlns:t="{SOAP}" targetNamespace="{SOAP}">'
        '<xs:element name="Envelope"><xs:complexType><xs:sequence>'
        '<xs:element ref="t:Header" minOccurs="0"/><xs:element ref="t:Body"/>'
        f"{_OTHER}</xs:sequence>{_OTHER_ATTRIBUTES}</xs:complexType></xs:element>"
        f'<xs:element name="Header"><xs:complexType><xs:sequence>{_OTHER}</xs:sequence>'
        f"{_OTHER_ATTRIBUTES}</xs:complexType></xs:element>"
        f'<xs:element name="Body"><xs:complexType><xs:sequence>{anything}</xs:sequence>'
        '<xs:anyAttribute namespace="##any" processContents="lax"/></xs:complexType></xs:element>'
        # 0 or 1 alone (SOAP 1.1 §4.2.3): `true` is reported here and obeyed by the reader.
        '<xs:attribute name="mustUnderstand"><xs:simpleType><xs:restriction base="xs:boolean">'
        '<xs:pattern value="0|1"/></xs:restriction></xs:simpleType></xs:attribute>'
        '<xs:attribute name="actor" type="xs:anyURI"/></xs:schema>'
    )


def _xlink_schema() -> str:
    words = "".join(
        f'<xs:enumeration value="{value}"/>'
        for value in ("simple", "extended", "locator", "arc", "resource", "title", "none")
    )
    return (
        f'{_OPEN} targetNamespace="{XLINK}"><xs:attribute name="type"><xs:simpleType>'
        f'<xs:restriction base="xs:NMTOKEN">{words}</xs:restriction></xs:simpleType>'
        '</xs:attribute><xs:attribute name="href" type="xs:anyURI"/>'
        '<xs:attribute name="role" type="xs:anyURI"/></xs:schema>'
    )


def _xml_schema() -> str:
    language = '<xs:attribute name="lang" type="xs:language"/>'
    return f'{_OPEN} targetNamespace="{XML}">{language}</xs:schema>'


class _FromMemory(etree.Resolver):
    """Hands the imported pieces to libxml2; nothing is fetched."""

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]  # noqa: ARG002
        """The piece by its name; the stubs of lxml lack the third argument it really passes."""
        made = {"soap": _soap_schema, "xlink": _xlink_schema, "xml": _xml_schema}
        return self.resolve_string(made[system_url.rpartition(":")[2]](), context)  # type: ignore[call-arg]


class _Validators(threading.local):
    """libxml2 keeps the findings in the validator, so each thread has its own."""

    @functools.cached_property
    def ebms2(self) -> etree.XMLSchema:
        parser = etree.XMLParser(no_network=True)
        parser.resolvers.add(_FromMemory())
        return etree.XMLSchema(etree.XML(_ebxml_schema().encode(), parser))


_VALIDATORS = _Validators()
_NAMESPACE = re.compile(r"\{[^}]*\}")


def problems(root: Element, dialect: Dialect) -> tuple[str, ...]:
    """Where the header breaks its structure, in document order."""
    if dialect is not Dialect.EBMS2:
        return draft_problems(root)
    validator = _VALIDATORS.ebms2
    if validator.validate(root):
        return ()
    return tuple(
        f"line {entry.line}: {_NAMESPACE.sub('', entry.message)[:512]}"
        for entry in itertools.islice(_entries(validator), PROBLEMS_MAX)
    )


def _entries(validator: etree.XMLSchema) -> Iterator[Any]:
    log: Any = validator.error_log
    yield from log


_DRAFT_ORDER = (
    "from",
    "to",
    "cpaid",
    "conversationid",
    "service",
    "action",
    "messagedata",
    "qualityofserviceinfo",
    "synchronousmessaginginfo",
)


_DRAFT_PLACES = {name: place for place, name in enumerate(_DRAFT_ORDER)}
# It holds what 0.9x has from CPAId to Action.
_DRAFT_PLACES["tpainfo"] = _DRAFT_PLACES["action"]


def draft_problems(root: Element) -> tuple[str, ...]:
    """The drafts print no schema but an order (HDR-6), and an empty element (SYNC-15)."""
    found = []
    for header in children(root):
        if canonical_tag(header.tag) == "header":
            break
    else:
        return ("Header is missing",)
    last = -1
    for child in children(header):
        name = canonical_tag(child.tag)
        place = _DRAFT_PLACES.get(name, len(_DRAFT_PLACES))
        if place < last:
            found.append(f"line {child.sourceline}: {name[:64]} stands too late in Header")
        else:
            last = place
        if name == "synchronousmessaginginfo" and (len(child) or (child.text or "").strip()):
            found.append(f"line {child.sourceline}: SynchronousMessagingInfo is not empty")
    return tuple(found[:PROBLEMS_MAX])


def broken(found: tuple[str, ...]) -> SoapFault:
    """The fault of a header that must be valid and is not."""
    # A Fault and no ErrorList: what such a header says of its sender cannot be relied on.
    return SoapFault(
        "Client",
        f"the header breaks its schema: {found[0]}",
        remedy="send a valid header, or agree on validation = report",
    )

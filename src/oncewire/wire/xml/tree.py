"""The hardened parser: a header's bytes to a tree, never before its limits are checked."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TypeAlias

from lxml import etree

from oncewire.errors import InvalidValue, OtherXml
from oncewire.wire.limits import Limits, doctype_refused, enforce

WHITESPACE = " \t\r\n"
Element: TypeAlias = etree._Element  # noqa: SLF001 - lxml gives its public type no public name

children: Callable[[Element], list[Element]] = operator.itemgetter(slice(None))
"""An element's children, in half the time that it takes to go through the element itself."""


def _parser(encoding: str | None) -> etree.XMLParser:
    # Comments and processing instructions vanish, so that the text around them is read as
    # one: `a<!-- -->b` must not be read as `a` by us and as `ab` by the signature.
    # No DTD, no entity, no network: SOAP 1.1 §3 forbids a document type, and no dialect needs one.
    return etree.XMLParser(
        encoding=encoding,
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        no_network=True,
        huge_tree=False,
        recover=False,
        remove_comments=True,
        remove_pis=True,
    )


# One parser for all: making one costs as much as parsing a header.
_SHARED = _parser(None)
_FORCED: dict[str, etree.XMLParser] = {}


def parse(envelope: bytes, charset: str | None, limits: Limits) -> etree._Element:
    """The root of a header that is within its limits, or the error that refuses it."""
    forced = enforce(envelope, charset, limits)
    parser = _SHARED
    if forced is not None:
        # `enforce` lets only a handful of names through, so this never grows.
        parser = _FORCED.setdefault(forced, _parser(forced))
    try:
        root: etree._Element = etree.fromstring(envelope, parser)
    except (etree.XMLSyntaxError, LookupError, ValueError) as error:
        raise OtherXml(
            f"the header is not well-formed XML: {_reason(error)}",
            location="header",
            remedy="send well-formed XML",
        ) from None
    plain = forced is None and envelope[:1] == b"<" and envelope[1:2] != b"\x00"
    # Where the markup is plain ASCII, `enforce` has looked at every byte of it already.
    if not plain and root.getroottree().docinfo.internalDTD is not None:
        raise doctype_refused()
    return root


def _reason(error: Exception) -> str:
    # libxml2 repeats the offending text, which may be long or not printable.
    text = str(error).splitlines()[0] if str(error) else "nothing to read"
    return "".join(char if char.isprintable() else "?" for char in text[:200])


def foreign_text(element: bytes, own: frozenset[str]) -> str:
    """A foreign element as it will be written, if it can stand alone and is foreign indeed."""
    try:
        root = etree.fromstring(element, _SHARED)
        text = element.decode()
    except (etree.XMLSyntaxError, ValueError):
        text, root = "", None
    # It is copied into our header as it is, so a declaration or a document type would make that
    # unreadable.
    if root is None or root.getroottree().docinfo.internalDTD is not None or text[:2] == "<?":
        raise InvalidValue(
            "a foreign element is not well-formed by itself",
            remedy="give one element in UTF-8 that declares its namespaces, without declaration",
        )
    # An element of ours in disguise would say a second time, and otherwise, what the message's
    # values say.
    if namespace(root) in own:
        raise InvalidValue(
            f"the element {local_name(root)[:64]} is not foreign",
            remedy="set the value of the message instead",
        )
    return text


def local_name(element: etree._Element) -> str:
    """The element's name without its namespace."""
    tag = str(element.tag)
    return tag[tag.rfind("}") + 1 :]


def namespace(element: etree._Element) -> str:
    """The element's namespace, empty when it has none."""
    tag = str(element.tag)
    return tag[1 : tag.rfind("}")] if tag[0] == "{" else ""


def whole_number(text: str | None) -> int | None:
    """The number a text of up to 18 digits names; None for anything else.

    The bound matters: Python refuses, with an error of its own, to read thousands of digits.
    """
    if text is None:
        return None
    digits = text.strip(WHITESPACE)
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        return int(digits)
    return None

"""XML as received: the hardened parser, and where elements lie in the received bytes.

lxml does not keep byte positions, expat does. What is foreign to us is kept as it was
written, and a hop changes one block by its position, so both start here.
"""

from __future__ import annotations

import operator
import pyexpat
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from lxml import etree

from oncewire.errors import InvalidValue, OtherXml
from oncewire.message.instant import SECOND, Instant, format_instant, parse_instant
from oncewire.wire.limits import Limits, doctype_refused, encoding_of, enforce

# Writing text into XML: escaping, and the few attributes every writer needs.


# What XML 1.0 cannot carry in any form, not even as a character reference.
_ILLEGAL = r"\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_SPECIAL_TEXT = re.compile(rf"[&<>\r{_ILLEGAL}]")
# A parser turns line ends and tabs in attributes into spaces (XML 1.0 §3.3.3), so they travel as
# references.
_SPECIAL_ATTRIBUTE = re.compile(rf'[&<>"\r\n\t{_ILLEGAL}]')
_NEVER = re.compile(f"[{_ILLEGAL}]")
# A bare carriage return would be read back as a line feed, so it travels as a reference.
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "\r": "&#13;",
        "\n": "&#10;",
        "\t": "&#9;",
    }
)


def text(value: str) -> str:
    """The value as element content."""
    # Nearly every value passes here untouched.
    if value.isprintable() and "&" not in value and "<" not in value and ">" not in value:
        return value
    return _escaped(value, _TEXT) if _SPECIAL_TEXT.search(value) else value


def _escaped(value: str, table: dict[int, str]) -> str:
    """The value by the table. What XML cannot carry is refused and not dropped: an id without its
    control character is another id."""
    if _NEVER.search(value):
        raise InvalidValue(
            f"{value[:64]!r} contains a character that XML cannot carry",
            remedy="remove control characters",
        )
    return value.translate(table)


# Nearly every id: ASCII without markup, and without a space before or behind it.
_PLAIN_ID = re.compile(r"[!-%'-;=?-~](?:[ -%'-;=?-~]*[!-%'-;=?-~])?\Z")


def identifier(value: str) -> str:
    """An id as element content; readers drop outer spaces, so it must have none."""
    if _PLAIN_ID.match(value):
        return value
    if value[0] in " \t" or value[-1] in " \t":
        raise InvalidValue(
            f"{value[:64]!r} begins or ends with a space",
            remedy="readers drop outer spaces and would see another id; remove them",
        )
    return text(value)


def attribute(value: str) -> str:
    """The value between double quotes."""
    return _escaped(value, _ATTRIBUTE) if _SPECIAL_ATTRIBUTE.search(value) else value


def optional_attribute(name: str, value: str | None) -> str:
    """` name="value"`, or nothing."""
    return "" if value is None else f' {name}="{attribute(value)}"'


def boolean(value: bool) -> str:
    """The value as XML Schema writes it."""
    return "true" if value else "false"


# A `>` may stand inside an attribute's value.
_START_TAG = re.compile(r"""<[^\s/>]+(?:[^>"']|"[^"]*"|'[^']*')*>""")
_START_TAG_BYTES = re.compile(rb"""<[^\s/>]+(?:[^>"']|"[^"]*"|'[^']*')*>""")
_NAME = re.compile(r"<[^\s/>]+")
_XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"


def spans(
    envelope: bytes, encoding: str | None, wanted: Iterable[int]
) -> dict[int, tuple[int, int]]:
    """First and past-the-last byte of the n-th elements in document order (the root is 0)."""
    left = set(wanted)
    found: dict[int, tuple[int, int]] = {}
    open_elements: list[tuple[int, int]] = []
    count = 0
    parser = pyexpat.ParserCreate(encoding)

    def start(_name: str, _attributes: dict[str, str]) -> None:
        nonlocal count
        # By count: lxml and expat see the same elements in the same order.
        open_elements.append((count, parser.CurrentByteIndex))
        count += 1

    def end(_name: str) -> None:
        number, begin = open_elements.pop()
        if number in left:
            found[number] = (begin, end_of_element(envelope, parser.CurrentByteIndex, begin))

    walk(parser, envelope, start, end)
    return found


def walk(
    parser: pyexpat.XMLParserType,
    envelope: bytes,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None],
) -> None:
    """Have the parser report every element of a header that was read before, as bytes lie."""
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    try:
        parser.Parse(envelope, True)
    except (pyexpat.ExpatError, LookupError, ValueError) as error:
        raise OtherXml(
            f"the header cannot be read twice alike: {error}",
            location="header",
            remedy="send well-formed XML",
        ) from None


def end_of_element(envelope: bytes, index: int, begin: int) -> int:
    """Past the last byte of an element whose end expat reported at `index`.

    For `<a/>` expat already points past it; for `</a>` it points at the end tag. The bytes
    at `index` cannot tell: after `<a/>` the parent's end tag may follow at once.
    """
    # UTF-16 of either byte order: `<` has a zero beside it.
    wide = envelope[begin : begin + 2] in (b"<\x00", b"\x00<")
    if not wide:
        tag = _START_TAG_BYTES.match(envelope, begin)
        if tag is not None and tag.group().endswith(b"/>"):
            return tag.end()
        return envelope.index(b">", index) + 1
    little = envelope[begin] != 0
    written = envelope[begin:index].decode("utf-16-le" if little else "utf-16-be", "replace")
    name = _START_TAG.match(written)
    if name is not None and name.group().endswith("/>"):
        return begin + len(name.group().encode("utf-16-le"))
    mark = b">\x00" if little else b"\x00>"
    close = envelope.index(mark, index)
    # A match across two characters is none.
    while (close - index) % 2:
        close = envelope.index(mark, close + 1)
    return close + 2


def exact_bytes(
    envelope: bytes, charset: str | None, root: etree._Element, elements: Sequence[etree._Element]
) -> list[bytes]:
    """Each element as it was written, in UTF-8, with the namespaces it leans on declared.

    Nothing is added when the element declares all it uses, so a copy stays a copy.
    """
    if not elements:
        return []
    positions = {element: number for number, element in enumerate(root.iter(etree.Element))}
    encoding, declared = encoding_of(envelope, charset)
    # Expat believes the document's own word, as the tree's parser does; only silence is filled.
    forced = None if declared else encoding
    places = spans(envelope, forced, [positions[element] for element in elements])
    written = []
    for element in elements:
        begin, end = places[positions[element]]
        try:
            text = envelope[begin:end].decode(piece_encoding(envelope, encoding))
        except (UnicodeDecodeError, LookupError) as error:
            raise OtherXml(
                f"the header cannot be decoded as {encoding}: {error}",
                location="encoding",
                remedy="write the header in UTF-8",
            ) from None
        written.append(_self_contained(text, element).encode())
    return written


def piece_encoding(envelope: bytes, encoding: str) -> str:
    """How a slice of the header is decoded and encoded."""
    # A slice has no byte order mark, so UTF-16 must be told which end comes first.
    if encoding.replace("-", "") != "utf16":
        return encoding
    big = envelope.startswith(b"\xfe\xff") or envelope[:1] == b"\x00"
    return "utf-16-be" if big else "utf-16-le"


def _has_bare_names(element: etree._Element, uri: str) -> bool:
    """Whether the default namespace matters to anything inside."""
    return any(
        not node.prefix and str(node.tag).startswith(f"{{{uri}}}")
        for node in element.iter(etree.Element)
    )


def _self_contained(text: str, element: etree._Element) -> str:
    """Add the declarations of prefixes that occur in the text but are bound outside it."""
    start = _START_TAG.match(text)
    if start is None:
        return text
    tag = start.group()
    added = ""
    for prefix, uri in sorted(element.nsmap.items(), key=lambda item: item[0] or ""):
        if uri == _XML_NAMESPACE:
            continue
        name = f"xmlns:{prefix}" if prefix else "xmlns"
        # Also prefixes in values, such as a QName or an XPath, which no parser would tell. One too
        # many does no harm.
        used = f"{prefix}:" in text if prefix else _has_bare_names(element, uri)
        if used and not re.search(rf"\s{re.escape(name)}\s*=", tag):
            added += f' {name}="{attribute(uri)}"'
    if not added:
        return text
    name_match = _NAME.match(text)
    cut = name_match.end() if name_match else 0
    return text[:cut] + added + text[cut:]


# Moments as the wire writes them: the usual forms fast, every other form by the general way.


# Without its zone, as both forms are in UTC.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_SECOND = timedelta(seconds=1)
# Beyond the year 9999 the general way says what is wrong.
_FAR = 250_000_000_000 * SECOND
# A second in UTC as XML Schema writes it, and as v0-078 does. Leap seconds and the hour 24 are for
# the general way.
_USUAL = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}|[0-9]{8}T[0-9]{6})")


def read_moment(text: str) -> tuple[Instant, bool]:
    """The instant a dateTime names, and whether it named its zone, as `parse_instant` says."""
    whole, dot, fraction = text[:-1].partition(".")
    plain = not dot or (len(fraction) <= 6 and fraction.isascii() and fraction.isdigit())
    if plain and text[-1:] == "Z" and _USUAL.fullmatch(whole) is not None:
        try:
            second = (datetime.fromisoformat(whole) - _EPOCH) // _SECOND * SECOND
            return second + int(fraction.ljust(6, "0")), True
        except ValueError:
            # No such day, or the hour 24: the general way says what it is.
            pass
    return parse_instant(text)


def written_moment(instant: Instant) -> str:
    """The instant as xsd:dateTime in UTC, as `format_instant` says."""
    if not 0 <= instant < _FAR:
        return format_instant(instant)
    written = (_EPOCH + timedelta(0, 0, instant)).isoformat()
    return (written.rstrip("0") if "." in written else written) + "Z"


def written_basic_moment(instant: Instant) -> str:
    """The instant in ISO 8601's basic form, as the rm-0.78 dialect writes TimeStamp."""
    return written_moment(instant).replace("-", "").replace(":", "")


# The hardened parser: a header's bytes to a tree, never before its limits are checked.

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

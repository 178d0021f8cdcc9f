"""Parses untrusted XML of a CPA, and finds elements in it by their local names.

CPPA 2.0, the 1.0 form that PHINMS keeps, and the drafts differ in namespace, so names are
compared without it. The parser opens nothing, knows no DTD and no entities, and refuses
what is too large to be a CPA.
"""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree
from lxml.etree import _Element as Element

from oncewire.errors import AgreementProblem

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

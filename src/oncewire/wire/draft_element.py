"""One element of a draft header: children and attributes by name, whatever their spelling.

The drafts leave open what is an attribute and what an element, and partners differ in
namespaces and in capitals (WIRE.md A.3, A.8), so a value is asked for by name alone.
"""

from __future__ import annotations

from lxml import etree

from oncewire.wire.draft_names import canonical
from oncewire.wire.tree import WHITESPACE


class DraftElement:
    """A view on an lxml element; `names` are canonical (lower case, aliases joined)."""

    __slots__ = ("attributes", "children", "element", "order")

    def __init__(self, element: etree._Element) -> None:
        self.element = element
        self.children: dict[str, list[etree._Element]] = {}
        self.order: list[tuple[str, etree._Element]] = []
        for child in element:
            tag = child.tag
            name = canonical(tag[tag.rfind("}") + 1 :])
            self.children.setdefault(name, []).append(child)
            self.order.append((name, child))
        self.attributes: dict[str, str] = {}
        for key, value in element.items():
            text = str(key)
            self.attributes.setdefault(canonical(text[text.rfind("}") + 1 :]), str(value))

    def first(self, name: str) -> DraftElement | None:
        """The first child of that name."""
        found = self.children.get(name)
        return DraftElement(found[0]) if found else None

    def all(self, name: str) -> list[DraftElement]:
        """Every child of that name."""
        return [DraftElement(child) for child in self.children.get(name, ())]

    def value(self, name: str) -> str | None:
        """An attribute of that name, or the text of a child of that name."""
        value = self.attributes.get(name)
        if value is not None:
            return value.strip(WHITESPACE)
        found = self.children.get(name)
        return (found[0].text or "").strip(WHITESPACE) if found else None

    @property
    def text(self) -> str:
        """The element's text without the white space around it."""
        return (self.element.text or "").strip(WHITESPACE)

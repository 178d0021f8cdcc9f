"""One element of a draft header: children and attributes by name, whatever their spelling.

The drafts leave open what is an attribute and what an element, and partners differ in
namespaces and in capitals (docs/decisions.md#drafts-on-the-wire), so a value is asked
for by name alone.
"""

from __future__ import annotations

from oncewire.wire.drafts.names import canonical_tag
from oncewire.wire.xml.tree import WHITESPACE, Element


class DraftElement:
    """A view on an lxml element; `names` are canonical (lower case, aliases joined)."""

    __slots__ = ("attributes", "children", "element")

    def __init__(self, element: Element) -> None:
        self.element = element
        self.children: dict[str, list[Element]] = {}
        for child in element:
            self.children.setdefault(canonical_tag(child.tag), []).append(child)
        self.attributes: dict[str, str] = {}
        for key, value in element.items():
            self.attributes.setdefault(canonical_tag(str(key)), str(value))

    @property
    def order(self) -> list[tuple[str, Element]]:
        """Name and element of each child, as they stand."""
        return [(canonical_tag(child.tag), child) for child in self.element]

    def first(self, name: str) -> DraftElement | None:
        """The first child of that name."""
        found = self.children.get(name)
        return DraftElement(found[0]) if found else None

    def all(self, name: str) -> list[DraftElement]:
        """Every child of that name."""
        return [DraftElement(child) for child in self.children.get(name, ())]

    def value(self, name: str) -> str | None:
        """An attribute of that name, or the text of a child of that name."""
        # The attribute first: that is how the drafts print most of their values.
        value = self.attributes.get(name)
        if value is not None:
            return value.strip(WHITESPACE)
        found = self.children.get(name)
        return (found[0].text or "").strip(WHITESPACE) if found else None

    @property
    def text(self) -> str:
        """The element's text without the white space around it."""
        return (self.element.text or "").strip(WHITESPACE)

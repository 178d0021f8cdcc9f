"""One element of a draft header: children and attributes by name, whatever their spelling.

The drafts leave open what is an attribute and what an element, and partners differ in
namespaces and in capitals (docs/decisions.md#drafts-on-the-wire), so a value is asked
for by name alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncewire.wire.drafts.names import canonical_tag
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.tree import WHITESPACE, Element, children, local_name

# Never changed.
_NO_CHILDREN: dict[str, list[Element]] = {}
_NO_ATTRIBUTES: dict[str, str] = {}
_NONE: frozenset[str] = frozenset()
# The stubs of lxml think that a name might be bytes.
_attributes: Callable[[Element], Any] = Element.items


class DraftElement:
    """A view on an lxml element; `names` are canonical (lower case, aliases joined).

    Whoever asks for one thing of a name must find no more than one. Of two another reader may take
    the other: the first counts for whatever has to be said, and `findings` hears of it.
    """

    __slots__ = ("_doubled", "_findings", "attributes", "children", "element")

    def __init__(self, element: Element, findings: Findings | None = None) -> None:
        self.element = element
        self._findings = findings
        # Most elements have only the one or the other.
        self.children = _by_name(element) if len(element) else _NO_CHILDREN
        self.attributes = _NO_ATTRIBUTES
        self._doubled = _NONE
        if items := _attributes(element):
            self.attributes = found = {}
            # The first of a name counts.
            for key, value in items:
                name = canonical_tag(key)
                if name not in found:
                    found[name] = value
                else:
                    # In two namespaces, or in two spellings.
                    self._doubled |= {name}

    @property
    def order(self) -> list[tuple[str, Element]]:
        """Name and element of each child, as they stand."""
        return [(canonical_tag(child.tag), child) for child in self.element]

    def first(self, name: str) -> DraftElement | None:
        """The only child of that name."""
        found = self.children.get(name)
        if not found:
            return None
        if len(found) > 1:
            self._twice(found[1])
        return DraftElement(found[0], self._findings)

    def all(self, name: str) -> list[DraftElement]:
        """Every child of that name."""
        found = self.children.get(name)
        return [DraftElement(child, self._findings) for child in found] if found else []

    def attribute(self, name: str) -> str | None:
        """The only attribute of that name, as it is written."""
        if self._doubled and name in self._doubled and self._findings is not None:
            place = _place(self.element)
            self._findings.twice(f"the attribute {name}", f"{place}/@{name}")
        return self.attributes.get(name)

    def value(self, name: str) -> str | None:
        """An attribute of that name, or the text of a child of that name."""
        # The attribute first: that is how the drafts print most of their values.
        value = self.attribute(name) if self.attributes else None
        found = self.children.get(name)
        if found and (value is not None or len(found) > 1):
            self._twice(found[-1])
        if value is not None:
            return value.strip(WHITESPACE)
        return (found[0].text or "").strip(WHITESPACE) if found else None

    def _twice(self, element: Element) -> None:
        if self._findings is not None:
            self._findings.twice(local_name(element), _place(element))

    @property
    def text(self) -> str:
        """The element's text without the white space around it."""
        return (self.element.text or "").strip(WHITESPACE)


def _by_name(element: Element) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {}
    for child in children(element):
        name = canonical_tag(child.tag)
        if name in found:
            found[name].append(child)
        else:
            found[name] = [child]
    return found


def _place(element: Element) -> str:
    """Where an element stands, as errors name places: without the root, which is one for all."""
    names = [local_name(element)]
    names.extend(local_name(parent) for parent in element.iterancestors())
    return "//" + "/".join(reversed(names[:-1] or names))

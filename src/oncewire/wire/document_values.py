"""Values in documents: what stands at the paths that an agreement names, for those who search.

The document is a partner's, and nothing depends on finding anything in it: what is too large, too
deep, not well-formed or of another kind than it says has no values. It is parsed once, by the
hardened parser, and gone through once, whatever paths there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from oncewire.errors import EbxmlError
from oncewire.message.document_path import DocumentPath, Step
from oncewire.wire.limits import Limits
from oncewire.wire.parcel import ReadFault
from oncewire.wire.xml import Element, local_name, parse

DOCUMENT_MAX = 256 * 1024
"""A larger document is not looked into."""

VALUES_MAX = 16
"""Values of one document; those that come after them are not looked for."""

LOOKED_AT = 50_000
"""Elements of one document that are looked at."""

_LIMITS = Limits(header_bytes=DOCUMENT_MAX, header_siblings=10_000)

State = tuple[int, int]
"""A path, by its place in the list, and how many of its steps are done."""


def values_in(data: bytes, media_type: str, paths: Sequence[DocumentPath]) -> list[tuple[str, str]]:
    """(Path, value) of what stands at the paths, in the order of the document."""
    if not paths or len(data) > DOCUMENT_MAX:
        return []
    kind = media_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        return _in_json(data, paths)
    if kind.endswith(("/xml", "+xml")):
        return _in_xml(data, paths)
    return []


def _in_json(data: bytes, paths: Sequence[DocumentPath]) -> list[tuple[str, str]]:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return []
    found: list[tuple[str, str]] = []
    for path in paths:
        value = _pointed_at(document, path.pointer) if path.pointer else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float):
            found.append((path.text, str(value)))
    return found[:VALUES_MAX]


def _pointed_at(value: Any, names: Sequence[str]) -> Any:
    for name in names:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 10:
            value = value[int(name)] if int(name) < len(value) else None
        else:
            return None
    return value


def _in_xml(data: bytes, paths: Sequence[DocumentPath]) -> list[tuple[str, str]]:
    steps = [path.steps for path in paths]
    try:
        root = parse(data, None, _LIMITS)
    except (EbxmlError, ReadFault):
        return []
    found: list[tuple[str, str]] = []
    begun = frozenset((place, 0) for place, of_path in enumerate(steps) if of_path)
    for element, ended in _walk(root, steps, begun):
        for place in ended:
            value = _value(element, paths[place].attribute)
            if value:
                found.append((paths[place].text, value))
                if len(found) == VALUES_MAX:
                    return found
    return found


def _walk(
    root: Element, steps: list[tuple[Step, ...]], begun: frozenset[State]
) -> Iterator[tuple[Element, list[int]]]:
    """Elements at which paths end, with these. All paths are followed at once: each element is
    looked at once, and the depth of a document costs no call."""
    waiting: list[tuple[Element, frozenset[State]]] = [(root, begun)]
    for _ in range(LOOKED_AT):
        if not waiting:
            return
        element, states = waiting.pop()
        name, here, ended = local_name(element), set(), []
        for place, done in states:
            step = steps[place][done]
            if step.deep:
                here.add((place, done))
            if step.name in (name, "*"):
                if done + 1 == len(steps[place]):
                    ended.append(place)
                else:
                    here.add((place, done + 1))
        if ended:
            yield element, sorted(ended)
        if here:
            below = frozenset(here)
            waiting += [(child, below) for child in reversed(element)]


def _value(element: Element, attribute: str) -> str:
    if not attribute:
        return (element.text or "").strip()
    for name, value in element.attrib.items():
        if str(name).rpartition("}")[2] == attribute:
            return str(value).strip()
    return ""

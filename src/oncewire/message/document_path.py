"""DocumentPath: where in a document a value stands by which its message is found.

In XML it is a path of XPath: steps behind `/` (a child) or `//` (at any depth), each a name or `*`,
and at the end perhaps `@name` or `text()`. A name means the element whatever its namespace is; a
prefix may be written and says nothing. There are no conditions, functions and axes: with what is
here, any document is gone through once, whatever its sender put into it. In JSON the same text is a
JSON Pointer (RFC 6901), if it begins with one `/`.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from oncewire.errors import InvalidValue

PATH_MAX = 200
"""Characters of a path."""
STEPS_MAX = 16

_NAME = r"(?:[\w.-]+:)?([\w.-]+|\*)"
_STEP = re.compile(rf"(//?)(?:{_NAME})(?=/|\Z)")
_END = re.compile(rf"(//?)(?:@{_NAME}|(text\(\)))\Z")


class Step(NamedTuple):
    """One step to an element."""

    # Of that name, without prefix; `*`: of any.
    name: str
    # At any depth below the last, and not among its children alone.
    deep: bool


class DocumentPath(Struct, frozen=True, dict=True):
    """A path, as the agreement writes it."""

    text: str

    def __post_init__(self) -> None:
        if len(self.text) > PATH_MAX:
            raise InvalidValue(
                f"a path of {len(self.text)} characters is too long",
                remedy=f"write one of at most {PATH_MAX}",
            )
        if not self.pointer and not self.steps and not self.attribute:
            raise InvalidValue(
                f"{self.text!r} is no path to a value in a document",
                remedy="write an XPath of names and `*` behind / or //, with @name or text() at "
                "its end, such as //order/@id, or a JSON Pointer such as /order/id; conditions, "
                "functions and axes are not taken",
            )

    @cached_property
    def _taken_apart(self) -> tuple[tuple[Step, ...], str]:
        steps: list[Step] = []
        place = 0
        while (found := _STEP.match(self.text, place)) is not None:
            steps.append(Step(found[2], found[1] == "//"))
            place = found.end()
        end = _END.match(self.text, place)
        whole = place == len(self.text) or end is not None
        if not whole or not self.text.startswith("/") or len(steps) > STEPS_MAX:
            return (), ""
        if end is None:
            return tuple(steps), ""
        if end[1] == "//":
            steps.append(Step("*", deep=True))
        return tuple(steps), end[2] or ""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in XML; none: it is no path in XML."""
        return self._taken_apart[0]

    @property
    def attribute(self) -> str:
        """The attribute whose value is meant; empty: the element's text."""
        return self._taken_apart[1]

    @cached_property
    def pointer(self) -> tuple[str, ...]:
        """The names that lead to the value in JSON; none: it is no JSON Pointer."""
        if not self.text.startswith("/") or self.text.startswith("//"):
            return ()
        names = self.text[1:].split("/")
        if len(names) > STEPS_MAX or any(re.search("~(?![01])", name) for name in names):
            return ()
        return tuple(name.replace("~1", "/").replace("~0", "~") for name in names)

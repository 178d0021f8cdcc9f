"""The one search box: what a person types, as the filters that `find` has.

`partner:globex state:unknown since:2d order-4711` narrows by words; a bare word that is the name of
a partner, a state or a day means that; any other is the text that is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date, timedelta
from shlex import quote
from typing import Any

from msgspec import Struct

from oncewire.entry.control.verb import Verb
from oncewire.protocol.states import OutgoingState
from oncewire.store.transition.rows import STORED_INCOMING

FILTERS = (
    "partner", "state", "since", "until", "conversation", "service", "action", "file", "value",
)  # fmt: skip
DIRECTIONS = {"": "find", "out": "outbox", "in": "inbox"}
STATES = tuple(
    dict.fromkeys(each.value for states in (OutgoingState, STORED_INCOMING) for each in states)
)
SHOWN = 50
"""Messages of one page."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_WORD = re.compile(r"(\w+):(\S+)\Z", re.ASCII)


class Wanted(Struct, frozen=True):
    """What is looked for: the verb, its filters, and the place to go on from."""

    direction: str
    filters: dict[str, str]
    parts: bool
    after: str

    @property
    def verb(self) -> str:
        """The verb that finds it."""
        return DIRECTIONS[self.direction]

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of that verb."""
        found: dict[str, Any] = {**self.filters, "limit": SHOWN}
        found |= {"parts": True} if self.parts else {}
        return found | ({"after": self.after} if self.after else {})

    @property
    def query(self) -> dict[str, Any]:
        """The same as the address of a page has it, without the place."""
        text = {"q": self.filters["text"]} if "text" in self.filters else {}
        rest = {name: value for name, value in self.filters.items() if name != "text"}
        return {**text, **rest, "direction": self.direction, "parts": self.parts and "1"}

    @property
    def command(self) -> str:
        """The same as a command."""
        words = ["oncewire", self.verb]
        for name, value in self.filters.items():
            words += [] if name == "text" else [f"--{name}", quote(value)]
        words += ["--parts"] if self.parts else []
        text = self.filters.get("text", "")
        # What begins like an option is none.
        words += [*(["--"] if text.startswith("-") else []), quote(text)] if text else []
        return " ".join(words)


def wanted(asked: Mapping[str, str], partners: Collection[str], verb: Verb[..., Any]) -> Wanted:
    """What the query of a page asks for; a filter of its own wins over one in the box."""
    filters: dict[str, str] = {}
    known = {argument.name for argument in verb.arguments}
    left = []
    for word in asked.get("q", "").split():
        found = _WORD.match(word)
        if found and found[1] in FILTERS and found[1] in known:
            filters[found[1]] = found[2]
        elif word in partners:
            filters["partner"] = word
        elif word in STATES:
            filters["state"] = word
        elif _DAY.match(word):
            filters |= {"since": word, "until": _next_day(word)}
        else:
            left.append(word)
    if left:
        filters["text"] = " ".join(left)
    filters |= {name: asked[name] for name in FILTERS if asked.get(name, "").strip()}
    direction = asked.get("direction", "")
    return Wanted(
        direction if direction in DIRECTIONS else "",
        {name: value.strip() for name, value in filters.items()},
        asked.get("parts") == "1",
        asked.get("after", ""),
    )


def _next_day(day: str) -> str:
    try:
        return (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        # `find` says what is wrong with it.
        return day

"""The one search box: what a person types, as the filters that `find` has.

`partner:globex state:unknown since:2d order-4711` narrows by words; a bare word that is the name of
a partner, a state or a day means that; any other is the text that is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta
from shlex import quote
from typing import Any

from msgspec import Struct

from oncewire.entry.control.verb import Verb
from oncewire.store.search import TAKEN_OVER

FLAGS = ("parts", "again", "slow", "slowest")
FLAG_WORDS = {"slow": "slow", "late": "slow", "again": "again", "twice": "again"}
"""Words in the box that set a flag."""
FILTERS = (
    "partner", "state", "since", "until", "conversation", "service", "action", "file", "value",
)  # fmt: skip
DIRECTIONS = {"": "find", "out": "outbox", "in": "inbox"}
STATES = {
    "waiting": "to a partner: its channel has no free place, or is suspended; it has not left",
    "outstanding": "to a partner: it was sent, or is to be sent; no answer has settled it",
    "delivered": "to a partner: its receiver acknowledged it",
    "taken_over": "to a partner: a hub or a reliable transport has it and answers for it; its "
    "receiver has said nothing",
    "sent": "to a partner: it was sent once with best effort, and no answer is expected",
    "suspended": "to a partner: its attempts are used up, and it waits for a person",
    "not_delivered": "to a partner: it certainly did not arrive",
    "unknown": "to a partner: it was sent and never acknowledged, so that it may have arrived",
    "held": "from a partner: it waits for a number before it, or for the way on",
    "ready": "from a partner: it waits for the application",
    "handed_over": "from a partner: the application has it and has not confirmed it",
    "confirmed": "from a partner: the application confirmed it",
    "forwarded": "from a partner: it was taken for another party and sent on",
    "refused": "from a partner: it was answered with an error, and no application gets it",
    "closed": "from a partner: it was given up here",
    "gathered": "from a partner: it is a part of a document that is not whole yet",
}
"""What each state means, in the words of a page."""
SHOWN = 50
"""Messages of one page."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_CLOCK = re.compile(r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?\Z", re.ASCII)
_WORD = re.compile(r"(\w+):(\S+)\Z", re.ASCII)


class Wanted(Struct, frozen=True):
    """A search: its direction, filters, flags, and the position to continue from."""

    direction: str
    filters: dict[str, str]
    flags: tuple[str, ...]
    after: str

    @property
    def verb(self) -> str:
        """The verb that finds it."""
        return DIRECTIONS[self.direction]

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of that verb."""
        found: dict[str, Any] = {**self.filters, "limit": SHOWN, **dict.fromkeys(self.flags, True)}
        return found | ({"after": self.after} if self.after else {})

    @property
    def query(self) -> dict[str, Any]:
        """The search as the query of a page, without the position."""
        text = {"q": self.filters["text"]} if "text" in self.filters else {}
        rest = {name: value for name, value in self.filters.items() if name != "text"}
        return {**text, **rest, "direction": self.direction, **dict.fromkeys(self.flags, "1")}

    @property
    def command(self) -> str:
        """The search as a command line."""
        words = ["oncewire", self.verb]
        for name, value in self.filters.items():
            words += [] if name == "text" else [f"--{name}", quote(value)]
        words += [f"--{flag}" for flag in self.flags]
        text = self.filters.get("text", "")
        # What begins like an option is none.
        words += [*(["--"] if text.startswith("-") else []), quote(text)] if text else []
        return " ".join(words)


def wanted(asked: Mapping[str, str], partners: Collection[str], verb: Verb[..., Any]) -> Wanted:
    """What the query of a page asks for; a filter of its own wins over one in the box."""
    filters: dict[str, str] = {}
    known = {argument.name for argument in verb.arguments}
    # A day without `since:` or `until:` before it, which a time of day may follow.
    bare = ""
    left, flags = [], {name for name in FLAGS if asked.get(name) == "1"}
    for word in asked.get("q", "").split():
        found = _WORD.match(word)
        if found and found[1] in FILTERS and found[1] in known:
            filters[found[1]] = found[2]
        elif word in partners:
            filters["partner"] = word
        elif word in STATES:
            filters["state"] = word
        elif _DAY.match(word):
            filters |= {"since": word, "until": next_day(word)}
            bare = word
        elif bare and _CLOCK.match(word):
            filters |= _minute(bare, word)
        elif word in FLAG_WORDS:
            flags.add(FLAG_WORDS[word])
        else:
            left.append(word)
    if left:
        filters["text"] = " ".join(left)
    filters |= {name: asked[name] for name in FILTERS if asked.get(name, "").strip()}
    direction = asked.get("direction", "")
    return Wanted(
        direction if direction in DIRECTIONS else "",
        {name: value.strip() for name, value in filters.items()},
        tuple(name for name in FLAGS if name in flags),
        asked.get("after", ""),
    )


def _minute(day: str, clock: str) -> dict[str, str]:
    """The minute of a day, as lists show it, or what comes of one that is none."""
    since = f"{day}T{clock[:5]}:00"
    try:
        until = (datetime.fromisoformat(since) + timedelta(minutes=1)).isoformat()
    except (ValueError, OverflowError):
        # `find` says what is wrong with it.
        until = since
    return {"since": f"{since}Z", "until": f"{until}Z"}


def day_of(text: str) -> str:
    """The day that a text is; empty: it is none."""
    return text if _DAY.match(text) and next_day(text) != text else ""


def next_day(day: str) -> str:
    """The day after a day; what is no day, as it is."""
    try:
        return (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        # `find` says what is wrong with it.
        return day


# --- what was found, in a sentence -------------------------------------------------------------

GROUPS = {
    "delivered": ("delivered",),
    "taken over": (TAKEN_OVER,),
    "waiting": ("waiting", "outstanding", "suspended"),
    "failed": ("not_delivered", "unknown"),
    "sent, nothing more is known": ("sent",),
}
"""Words of what became of sent messages, and their states."""


def in_groups(tally: Mapping[str, int]) -> dict[str, int]:
    """How many sent messages of a tally are in each group; none at all where nothing was sent."""
    counted = {
        word: sum(tally.get(f"out.{state}", 0) for state in states)
        for word, states in GROUPS.items()
    }
    return counted if any(counted.values()) else {}


GOOD = {"out": ("delivered", "sent"), "in": ("confirmed", "forwarded")}
TROUBLED = {"not_delivered", "unknown", "suspended", "refused", "closed", "held"}


def summed_up(wanted: Wanted, tally: Mapping[str, int], today: date, *, whole: bool) -> str:
    """How many messages there are of what is asked for, and what became of them."""
    partner = wanted.filters.get("partner", "")
    said = []
    for way, word in (("out", "to"), ("in", "from")):
        counts = {
            name.partition(".")[2]: count
            for name, count in tally.items()
            if name.startswith(f"{way}.")
        }
        total = sum(counts.values())
        if not total and (partner or wanted.direction not in ("", way)):
            continue
        many = f"{total:,} message{'' if total == 1 else 's'}"
        named = f"{many} {word} {partner or 'partners'}"
        verdict = _verdict(counts) if way == "out" and partner and whole else ""
        said.append(f"{verdict}{named}{_became(way, counts, total)}")
    when, (since, until) = "", (wanted.filters.get(name, "") for name in ("since", "until"))
    if _DAY.match(since) and until == next_day(since):
        ago = (today - date.fromisoformat(since)).days
        when = {0: f"Today ({since})", 1: f"Yesterday ({since})"}.get(ago, since)
    looked = "" if whole else "of the newest that were counted, "
    text = "; ".join(said) or f"no message{_NONE[wanted.direction] + partner if partner else ''}"
    text = f"{when}: {looked}{text}" if when else f"{looked}{text}"
    return f"{text[:1].upper()}{text[1:]}."


_NONE = {"out": " to ", "in": " from ", "": " to or from "}


def _verdict(counts: Mapping[str, int]) -> str:
    """Whether a partner got all that was meant for it, as far as is known here."""
    found = in_groups({f"out.{state}": count for state, count in counts.items()})
    if not found:
        return ""
    if found["failed"]:
        return "no, some failed: "
    if found["waiting"] or found["taken over"]:
        return "none failed, and not all are settled: "
    return "yes: "


def _became(way: str, counts: Mapping[str, int], total: int) -> str:
    good = {word: counts[word] for word in GOOD[way] if counts.get(word)}
    rest = {word: count for word, count in counts.items() if count and word not in good}
    if total and not rest and len(good) == 1:
        return f", all {next(iter(good))}"
    words = [f"{count:,} {word.replace('_', ' ')}" for word, count in {**good, **rest}.items()]
    return f", {', '.join(words)}" if words else ""

"""Coverage: which values of two terms were in force together, and which never can be.

Two values of two terms make a pair. A pair that no world had is looked for: if no sound agreement
can be written that holds both, it is a contradiction and not a hole.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from oncewire.agreement.keys import BY_TARGET
from oncewire.message.instant import SECOND
from oncewire.simulation.wild.papers import Paper, is_sound
from oncewire.simulation.wild.plan import BUYER, SELLER, Said
from oncewire.simulation.wild.values import Held, held_by

_DURATIONS = frozenset(
    {"timeout", "retry_interval", "persist_duration", "time_to_live", "time_accuracy",
     "sync_timeout", "keep", "ack_wait"}
)  # fmt: skip

# Terms that follow from rules and have no key of their own.
_FOLLOWING: dict[str, tuple[Said, ...]] = {
    'ack_requested="None"': ((("ack.actor", "nextMSH"),), (("ack.request", "never"),)),
    'ack_requested="Signed"': ((("ack.signature", "always"),),),
    "duplicate_elimination=false": ((("duplicate.elimination", "never"),),),
}

_GROUNDS: tuple[Said, ...] = tuple(
    (("flow.mode", flow), *numbers)
    for flow, numbers in product(
        ("unrestricted", "window", "stop-and-wait"),
        (
            (),
            (("sequence.numbered", False), ("sequence.ordered", False)),
            (("sequence.numbered", True), ("flow.window", 2), ("sequence.scope", "pair")),
            (("sequence.numbered", True), ("sequence.scope", "pair"), ("sequence.reset", "silent")),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Pairs that some agreement had, out of all that values of two terms can make."""

    covered: frozenset[tuple[str, str]]
    conceivable: frozenset[tuple[str, str]]
    terms: int
    values: int

    @classmethod
    def of(cls, held: Iterable[Held]) -> Coverage:
        """What these sets of values cover."""
        covered: set[tuple[str, str]] = set()
        by_term: dict[str, set[str]] = defaultdict(set)
        for values in held:
            covered.update(combinations(sorted(values), 2))
            for value in values:
                by_term[value.partition("=")[0]].add(value)
        conceivable = {
            (min(one, other), max(one, other))
            for term, another in combinations(by_term, 2)
            for one, other in product(by_term[term], by_term[another])
        }
        return cls(
            frozenset(covered),
            frozenset(conceivable),
            len(by_term),
            sum(map(len, by_term.values())),
        )

    def missing(self) -> list[tuple[str, str]]:
        """Pairs that a sound agreement can hold, and none did."""
        return sorted(pair for pair in self.conceivable - self.covered if _is_possible(*pair))


def _is_possible(one: str, other: str) -> bool:
    """Whether some sound agreement holds both values."""
    for profile, ground, said in product(
        ("ebms2", "ms-0.9x", "rm-0.78"), _GROUNDS, _said_for(one, other)
    ):
        merged = dict((*ground, *said))
        if profile == "ebms2":
            merged["wire.extensions"] = ("hop_sequence", "routing", "transient_error")
        paper = Paper("any", BUYER, SELLER, profile, tuple(merged.items()))
        if is_sound(paper) and {one, other} <= held_by(paper.agreement.sending.terms):
            return True
    return False


def _said_for(one: str, other: str) -> Iterator[Said]:
    for first, second in product(_spellings(one), _spellings(other)):
        yield (*first, *second)


def _spellings(value: str) -> tuple[Said, ...]:
    """How an agreement says a value of a term."""
    if value in _FOLLOWING:
        return _FOLLOWING[value]
    name, _, text = value.partition("=")
    key, plain = BY_TARGET.get(f"terms.{name}"), json.loads(text)
    if key is None or plain is None:
        return ((),)
    if name in _DURATIONS:
        plain = plain / SECOND
    return (((key.name, tuple(plain) if isinstance(plain, list) else plain),),)

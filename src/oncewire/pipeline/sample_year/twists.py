"""What handlers do wrong on purpose: each twist breaks one promise about one message.

A twisted message runs through the same protocol as all others. Its sender goes by other terms than
were agreed, the network has something in store for it, or its rows tell something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from oncewire.message.instant import MINUTE, SECOND, Duration, Instant
from oncewire.message.sequence import SequenceStatus
from oncewire.protocol import notes
from oncewire.protocol.kinds import Kind
from oncewire.protocol.terms import OnExhausted, Terms

NEVER = 1_000
"""More attempts than any terms allow."""
AGREED = -1

Columns = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Twist:
    """How one message differs from an honest one."""

    terms: Callable[[Terms], Terms] = lambda terms: terms
    """The terms that its sender goes by."""
    lost: int = 0
    """How many attempts do not arrive; AGREED: as many as were agreed."""
    acks_lost: int = 0
    answer: str = ""
    """What its receiver answers, if that is no acknowledgement."""
    timers: bool = True
    """Whether its sender ever looks at it again."""
    drops: frozenset[Kind] = frozenset()
    repeats: Mapping[Kind, Duration] = field(default_factory=dict)
    """Rows that are told once more, so much later."""
    moves: Mapping[Kind, Duration] = field(default_factory=dict)
    says: Mapping[Kind, Callable[[Columns], Columns]] = field(default_factory=dict)
    """What else some columns of a row say."""

    def rows(self, when: Instant, kind: Kind, told: Columns) -> Iterator[tuple[Instant, Columns]]:
        """The rows that stand in the place of an honest one."""
        if kind in self.drops:
            return
        if kind in self.says:
            told = {**told, **self.says[kind](told)}
        yield when + self.moves.get(kind, 0), told
        if kind in self.repeats:
            yield when + self.repeats[kind], told


def other_digest(digest: str) -> str:
    """The digest of something else."""
    return hashlib.sha256(digest.encode()).hexdigest()


def _failing(terms: Terms) -> Terms:
    return replace(terms, on_exhausted=OnExhausted.FAIL_MESSAGE)


def _hasty(terms: Terms) -> Terms:
    return replace(terms, timeout=terms.timeout // 2)


def _stubborn(terms: Terms) -> Terms:
    return replace(terms, retries=terms.retries + 1)


def _fainthearted(terms: Terms) -> Terms:
    return replace(_failing(terms), retries=0)


def _wider(terms: Terms) -> Terms:
    return replace(terms, window=terms.window + 1)


def _other_status(told: Columns) -> Columns:
    reset, goes_on = SequenceStatus.RESET.value, SequenceStatus.CONTINUE.value
    said = notes.Numbered.read(told["detail"]).status
    return {"detail": notes.Numbered(goes_on if said == reset else reset).write()}


def _notice(told: Columns) -> Columns:
    return {"detail": told["detail"].replace("{", '{"notice":true,', 1)}


K = Kind
_RECEIVER = frozenset({K.RECEIVED, K.ACK_SENT, K.HANDED_OVER, K.CONFIRMED})

TWISTS: dict[str, Twist] = {
    "never_handed_over": Twist(drops=frozenset({K.HANDED_OVER, K.CONFIRMED})),
    "never_sent": Twist(lost=NEVER, timers=False, drops=frozenset({K.SENT})),
    "no_word": Twist(lost=NEVER, timers=False),
    "no_end": Twist(acks_lost=NEVER, timers=False),
    "not_passed_on": Twist(),
    "never_confirmed": Twist(drops=frozenset({K.CONFIRMED})),
    "handed_over_twice": Twist(repeats={K.HANDED_OVER: SECOND, K.CONFIRMED: 2 * SECOND}),
    "handed_over_first": Twist(),
    "after_the_next": Twist(),
    "altered": Twist(),
    "given_otherwise": Twist(
        says={K.HANDED_OVER: lambda told: {"digest": other_digest(told["digest"])}}
    ),
    "other_number": Twist(
        says={K.HANDED_OVER: lambda told: {"sequence_number": told["sequence_number"] + 1}}
    ),
    "not_notified": Twist(terms=_failing, lost=NEVER, drops=frozenset({K.NOTIFIED})),
    "told_again": Twist(terms=_failing, lost=NEVER, repeats={K.NOTIFIED: SECOND}),
    "notice_of_notice": Twist(terms=_failing, acks_lost=NEVER, says={K.RECEIVED: _notice}),
    "taken_back": Twist(),
    "wrong_outcome": Twist(
        terms=_failing,
        lost=NEVER,
        says={
            K.FAILED: lambda _: {"detail": notes.Failed("not_delivered", "exhausted").write()},
            K.NOTIFIED: lambda _: {"detail": notes.Notified("Error").write()},
        },
    ),
    "number_left_out": Twist(),
    "number_again": Twist(),
    "early_reset": Twist(),
    "beyond_window": Twist(terms=_wider),
    "wrong_status": Twist(says={K.NUMBERED: _other_status}),
    "no_skip": Twist(answer="refused", drops=frozenset({K.SKIPPED})),
    "early_retry": Twist(terms=_hasty, lost=1),
    "one_more_retry": Twist(terms=_stubborn, lost=AGREED),
    "gave_up_early": Twist(terms=_fainthearted, lost=NEVER),
    # Later than any Timeout of the year, so that it is nothing else than too late.
    "sent_after_ack": Twist(repeats={K.SENT: 6 * MINUTE}),
    "second_ack": Twist(repeats={K.ACKNOWLEDGED: SECOND}),
    "unsigned_ack": Twist(
        says={K.ACKNOWLEDGED: lambda _: {"detail": notes.Acknowledged().write()}}
    ),
    "unverified": Twist(
        says={
            K.RECEIVED: lambda told: {"detail": told["detail"].replace('"verified"', '"partial"')}
        }
    ),
    "ack_of_nothing": Twist(drops=_RECEIVER),
    "ack_before_store": Twist(moves={K.ACK_SENT: -3}),
    "forgotten": Twist(repeats={K.RECEIVED: 20 * SECOND}),
    "invented": Twist(),
    "missing_part": Twist(),
}
"""By the name that `faults` uses. What cannot be said by these values is done by name where the
message is sent or received."""

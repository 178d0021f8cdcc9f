"""Faults to plant: for each kind of violation, ways to cause exactly that one and no other.

A recipe says which streams it fits, what it does to which messages, and whom the checker will
name. Neighbours of a fault go plainly, so that nothing else depends on chance there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oncewire.message.header import AckRequest
from oncewire.message.instant import MILLISECOND, SECOND, Duration
from oncewire.pipeline.sample_year.stream import Force, Stream
from oncewire.protocol.terms import ResetRule

WINDOW_MAX = 16
"""The largest window that counts as one here; `unrestricted` has none worth the name."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to break one promise."""

    kind: str
    misbehaviour: str
    fits: Callable[[Stream], bool]
    forces: Callable[[Stream, int], dict[int, Force]]
    offset: int = 0
    """Whom the checker names: this many messages after the one with the misbehaviour."""
    stranger: bool = False
    """Whether it names a message that was never submitted."""

    def margin(self, stream: Stream) -> int:
        """How many messages on each side go plainly."""
        if not stream.terms.numbered:
            return 4
        return 2 * min(stream.terms.window_size, WINDOW_MAX) + 4


def _plain_region(stream: Stream, place: int) -> dict[int, Force]:
    reach = 4 if not stream.terms.numbered else min(stream.terms.window_size, WINDOW_MAX) + 4
    return {index: Force() for index in range(place - reach, place + reach + 1)}


def _only(misbehaviour: str) -> Callable[[Stream, int], dict[int, Force]]:
    def forces(stream: Stream, place: int) -> dict[int, Force]:
        return _plain_region(stream, place) | {place: Force(misbehaviour)}

    return forces


def _close(misbehaviour: str) -> Callable[[Stream, int], dict[int, Force]]:
    """The next message follows at once."""

    def forces(stream: Stream, place: int) -> dict[int, Force]:
        return _plain_region(stream, place) | {
            place: Force(misbehaviour),
            place + 1: Force(gap=20 * MILLISECOND),
        }

    return forces


def _beyond_window(stream: Stream, place: int) -> dict[int, Force]:
    """The window's first message is answered slowly, and one too many enters meanwhile."""
    window = stream.terms.window_size
    found = _plain_region(stream, place)
    found[place - window] = Force(ack_after=5 * SECOND)
    for index in range(place - window + 1, place):
        found[index] = Force(gap=20 * MILLISECOND)
    found[place] = Force("beyond_window", gap=20 * MILLISECOND)
    return found


def _after_unsettled(misbehaviour: str, gap: Duration) -> Callable[[Stream, int], dict[int, Force]]:
    """Two before it one is answered slowly, and is unsettled still when its turn comes."""

    def forces(stream: Stream, place: int) -> dict[int, Force]:
        found = _plain_region(stream, place)
        found[place - 2] = Force(ack_after=8 * SECOND)
        found[place - 1] = Force(gap=20 * MILLISECOND)
        found[place] = Force(misbehaviour, gap=gap)
        return found

    return forces


# --- which streams ---


def _direct(stream: Stream) -> bool:
    return (
        stream.terms.reliable
        and not stream.terms.numbered
        and stream.hub is None
        and not stream.split
    )


def _single_way(stream: Stream) -> bool:
    return _direct(stream) and len(stream.terms.transports) == 1


def _retrying(stream: Stream) -> bool:
    return _single_way(stream) and stream.terms.resends > 0


def _unordered(stream: Stream) -> bool:
    plain = stream.hub is None and not stream.split
    return stream.terms.reliable and not stream.terms.ordered and plain


def _counted(stream: Stream) -> bool:
    return stream.terms.numbered and not stream.terms.ordered and stream.terms.window_size > 3


def _numbered(stream: Stream) -> bool:
    return stream.terms.numbered and not stream.terms.ordered


def _ordered(stream: Stream) -> bool:
    return stream.terms.ordered


def _windowed(stream: Stream) -> bool:
    return stream.terms.numbered and 1 < stream.terms.window_size <= WINDOW_MAX


def _ordered_window(stream: Stream) -> bool:
    return stream.terms.ordered and stream.terms.window_size > 1


def _with_status(stream: Stream) -> bool:
    return stream.terms.numbered and stream.terms.reset is not ResetRule.SILENT


def _signed_ack(stream: Stream) -> bool:
    # A hub's stream has two acknowledgements, and only the To Party's is one of the agreement.
    signed = stream.terms.reliable and stream.terms.ack_requested is AckRequest.SIGNED
    return signed and stream.hub is None and not stream.split


def _signed_message(stream: Stream) -> bool:
    return stream.signed and stream.hub is None and not stream.split


def _hubbed(stream: Stream) -> bool:
    return stream.hub is not None


def _split(stream: Stream) -> bool:
    return stream.split


RECIPES: tuple[Recipe, ...] = (
    Recipe("lost", "never_handed_over", _unordered, _only("never_handed_over")),
    Recipe("lost", "never_sent", _direct, _only("never_sent")),
    Recipe("lost", "no_word", _direct, _only("no_word")),
    Recipe("lost", "not_passed_on", _hubbed, _only("not_passed_on")),
    Recipe("unconfirmed", "never_confirmed", _unordered, _only("never_confirmed")),
    Recipe("twice", "handed_over_twice", _unordered, _only("handed_over_twice")),
    Recipe("twice", "handed_over_twice", _ordered, _only("handed_over_twice")),
    Recipe("out_of_order", "after_the_next", _ordered_window, _close("after_the_next")),
    Recipe("altered", "altered", _unordered, _only("altered")),
    Recipe("altered", "given_otherwise", _ordered, _only("given_otherwise")),
    Recipe("unnotified", "not_notified", _direct, _only("not_notified")),
    Recipe("untold", "told_again", _direct, _only("told_again")),
    Recipe("needless_notice", "notice_of_notice", _direct, _only("notice_of_notice")),
    Recipe("taken_back", "taken_back", _direct, _only("taken_back")),
    Recipe("gap", "number_left_out", _counted, _only("number_left_out")),
    Recipe("gap", "no_skip", _ordered_window, _close("no_skip"), offset=1),
    Recipe(
        "repeated_number",
        "number_again",
        _counted,
        _after_unsettled("number_again", 2 * SECOND),
    ),
    Recipe("window_exceeded", "beyond_window", _windowed, _beyond_window),
    Recipe("wrong_status", "wrong_status", _with_status, _only("wrong_status")),
    Recipe("early_reset", "early_reset", _counted, _after_unsettled("early_reset", 2 * SECOND)),
    Recipe("early_retry", "early_retry", _retrying, _only("early_retry")),
    Recipe("too_many_retries", "one_more_retry", _single_way, _only("one_more_retry")),
    Recipe("late_send", "sent_after_ack", _retrying, _only("sent_after_ack")),
    Recipe("gave_up_early", "gave_up_early", _retrying, _only("gave_up_early")),
    Recipe("ack_without_store", "ack_of_nothing", _direct, _only("ack_of_nothing")),
    Recipe("ack_without_store", "ack_before_store", _unordered, _only("ack_before_store")),
    Recipe("forgotten", "forgotten", _unordered, _only("forgotten")),
    Recipe("invented", "invented", _direct, _only("invented"), stranger=True),
    Recipe("wrong_outcome", "wrong_outcome", _direct, _only("wrong_outcome")),
    Recipe("unmatched_ack", "second_ack", _direct, _only("second_ack")),
    Recipe("unsigned", "unsigned_ack", _signed_ack, _only("unsigned_ack")),
    Recipe("unsigned", "unverified", _signed_message, _only("unverified")),
    Recipe("incomplete", "missing_part", _split, _only("missing_part")),
    Recipe("unfinished", "no_end", _direct, _only("no_end")),
    Recipe("impossible_order", "handed_over_first", _direct, _only("handed_over_first")),
    Recipe("contradiction", "other_number", _numbered, _only("other_number")),
)
"""Every kind of violation has at least one; what is wrong with a journal is no broken promise."""

"""Faults to plant: for each kind of violation, ways to cause exactly that one and no other.

A recipe says which streams it fits, what it does to which messages, and whom the checker will
name. Neighbours of a fault go plainly, so that nothing else depends on chance there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oncewire.journal.predicates.retry import attempts_allowed
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.message.header import AckRequest
from oncewire.message.instant import MILLISECOND, SECOND, Duration
from oncewire.pipeline.sample_year.stream import Force, Stream
from oncewire.protocol.terms import ResetRule

PARTS = 4
"""Parts of every split document of the year."""
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
    names: str = "message"
    aligned: int = 1

    def margin(self, stream: Stream) -> int:
        """How many messages on each side go plainly."""
        if not stream.terms.numbered:
            return 4 * self.aligned
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
    return not stream.terms.numbered and stream.hub is None and not stream.split


def _single_way(stream: Stream) -> bool:
    return _direct(stream) and len(stream.terms.transports) == 1


def _retrying(stream: Stream) -> bool:
    return _single_way(stream) and attempts_allowed(stream.terms) > 1


def _unordered(stream: Stream) -> bool:
    return not stream.terms.ordered and stream.hub is None and not stream.split


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
    signed = stream.terms.ack_requested is AckRequest.SIGNED
    return signed and stream.hub is None and not stream.split


def _signed_message(stream: Stream) -> bool:
    return stream.signed and stream.hub is None and not stream.split


def _hubbed(stream: Stream) -> bool:
    return stream.hub is not None


def _split(stream: Stream) -> bool:
    return stream.split


_K = ViolationKind

RECIPES: tuple[Recipe, ...] = (
    Recipe(_K.LOST.value, "never_handed_over", _unordered, _only("never_handed_over")),
    Recipe(_K.LOST.value, "never_sent", _direct, _only("never_sent")),
    Recipe(_K.LOST.value, "no_word", _direct, _only("no_word")),
    Recipe(_K.LOST.value, "not_passed_on", _hubbed, _only("not_passed_on")),
    Recipe(_K.UNCONFIRMED.value, "never_confirmed", _unordered, _only("never_confirmed")),
    Recipe(_K.TWICE.value, "handed_over_twice", _unordered, _only("handed_over_twice")),
    Recipe(_K.TWICE.value, "handed_over_twice", _ordered, _only("handed_over_twice")),
    Recipe(_K.OUT_OF_ORDER.value, "after_the_next", _ordered_window, _close("after_the_next")),
    Recipe(_K.ALTERED.value, "altered", _unordered, _only("altered")),
    Recipe(_K.ALTERED.value, "given_otherwise", _ordered, _only("given_otherwise")),
    Recipe(_K.UNNOTIFIED.value, "not_notified", _direct, _only("not_notified")),
    Recipe(_K.UNTOLD.value, "told_again", _direct, _only("told_again")),
    Recipe(_K.NEEDLESS_NOTICE.value, "notice_of_notice", _direct, _only("notice_of_notice")),
    Recipe(_K.TAKEN_BACK.value, "taken_back", _direct, _only("taken_back")),
    Recipe(_K.GAP.value, "number_left_out", _counted, _only("number_left_out")),
    Recipe(_K.GAP.value, "no_skip", _ordered_window, _close("no_skip"), offset=1),
    Recipe(
        _K.REPEATED_NUMBER.value,
        "number_again",
        _counted,
        _after_unsettled("number_again", 2 * SECOND),
    ),
    Recipe(_K.WINDOW_EXCEEDED.value, "beyond_window", _windowed, _beyond_window),
    Recipe(_K.WRONG_STATUS.value, "wrong_status", _with_status, _only("wrong_status")),
    Recipe(
        _K.EARLY_RESET.value, "early_reset", _counted, _after_unsettled("early_reset", 2 * SECOND)
    ),
    Recipe(_K.EARLY_RETRY.value, "early_retry", _retrying, _only("early_retry")),
    Recipe(_K.TOO_MANY_RETRIES.value, "one_more_retry", _single_way, _only("one_more_retry")),
    Recipe(_K.LATE_SEND.value, "sent_after_ack", _retrying, _only("sent_after_ack")),
    Recipe(_K.GAVE_UP_EARLY.value, "gave_up_early", _retrying, _only("gave_up_early")),
    Recipe(_K.ACK_WITHOUT_STORE.value, "ack_of_nothing", _direct, _only("ack_of_nothing")),
    Recipe(_K.ACK_WITHOUT_STORE.value, "ack_before_store", _unordered, _only("ack_before_store")),
    Recipe(_K.FORGOTTEN.value, "forgotten", _unordered, _only("forgotten")),
    Recipe(_K.INVENTED.value, "invented", _direct, _only("invented"), names="stranger"),
    Recipe(_K.WRONG_OUTCOME.value, "wrong_outcome", _direct, _only("wrong_outcome")),
    Recipe(_K.UNMATCHED_ACK.value, "second_ack", _direct, _only("second_ack")),
    Recipe(_K.UNSIGNED.value, "unsigned_ack", _signed_ack, _only("unsigned_ack")),
    Recipe(_K.UNSIGNED.value, "unverified", _signed_message, _only("unverified")),
    Recipe(
        _K.INCOMPLETE.value,
        "missing_part",
        _split,
        _only("missing_part"),
        names="document",
        aligned=PARTS,
    ),
    Recipe(_K.UNFINISHED.value, "no_end", _direct, _only("no_end")),
    Recipe(_K.IMPOSSIBLE_ORDER.value, "handed_over_first", _direct, _only("handed_over_first")),
    Recipe(_K.CONTRADICTION.value, "other_number", _numbered, _only("other_number")),
)
"""Every kind of violation has at least one; what is wrong with a journal is no broken promise."""

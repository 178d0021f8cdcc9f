"""A row that a promise rests on cannot vanish, or appear twice, without a word."""

from hypothesis import given
from hypothesis import strategies as st

from oncewire.journal.row import Row
from oncewire.protocol.notes import Kind
from tests.journal.changes import judged
from tests.journal.scenarios import SCENARIOS

# What is not here is either not promised (a DUPLICATE row), or promised only in part (one of
# several attempts may be missing where fewer would have done as well).
ESSENTIAL: dict[Kind, set[str]] = {
    Kind.SUBMITTED: set(SCENARIOS) - {"suspended_at_the_end"},
    Kind.NUMBERED: set(SCENARIOS),
    Kind.SENT: {"plain", "window", "unknown", "hub", "split", "redelivered_after_a_crash"},
    Kind.ACKNOWLEDGED: {"plain", "window", "lost_ack", "split", "signed", "silent_reset"},
    Kind.FAILED: set(SCENARIOS),
    Kind.EXPIRED: set(SCENARIOS),
    Kind.REJECTED: set(SCENARIOS),
    Kind.RESUMED: set(SCENARIOS),
    Kind.NOTIFIED: {"unknown", "refused", "expired_unsent", "connection_refused", "hub_gives_up"},
    Kind.RECEIVED: {"plain", "window", "lost_ack", "split", "signed", "abandon_ends_the_epoch"},
    Kind.HANDED_OVER: {"plain", "window", "lost_ack", "split", "hub", "signed"},
    Kind.CONFIRMED: {"plain", "window", "lost_ack", "split", "hub", "signed"},
    Kind.SKIPPED: set(SCENARIOS),
    Kind.FORWARDED: set(SCENARIOS),
    Kind.JOINED: set(SCENARIOS),
}
ONCE_ONLY = {
    Kind.NUMBERED,
    Kind.SENT,
    Kind.RECEIVED,
    Kind.CONFIRMED,
    Kind.JOINED,
}


ROWS: dict[str, list[Row]] = {name: make().rows for name, make in SCENARIOS.items()}


def _places(name: str, kinds: set[Kind]) -> list[int]:
    return [index for index, row in enumerate(ROWS[name]) if row.kind in kinds]


VANISHING = [
    (name, index)
    for kind, names in sorted(ESSENTIAL.items())
    for name in sorted(names)
    for index in _places(name, {kind})
]
REPEATED = [(name, index) for name in sorted(ROWS) for index in _places(name, ONCE_ONLY)]


@given(st.sampled_from(VANISHING))
def test_an_essential_row_that_vanishes_is_missed(choice: tuple[str, int]) -> None:
    name, index = choice
    rows = ROWS[name].copy()
    gone = rows.pop(index)
    assert not judged(rows, healed=True).clean, gone


@given(st.sampled_from(REPEATED))
def test_a_row_that_may_stand_once_is_seen_twice(choice: tuple[str, int]) -> None:
    name, index = choice
    rows = ROWS[name].copy()
    rows.insert(index, rows[index])
    assert judged(rows, healed=True).violations, rows[index]

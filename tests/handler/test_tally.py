"""Counting what strangers do, within a bound."""

from __future__ import annotations

from oncewire.handler.context import FORGOTTEN_AFTER, KEYS_MAX, Tally, is_told


def test_each_name_is_counted_for_itself() -> None:
    tally = Tally()
    assert [tally.count("a", 0), tally.count("b", 0), tally.count("a", 0)] == [1, 1, 2]


def test_there_is_a_bound() -> None:
    tally = Tally()
    for number in range(3 * KEYS_MAX):
        tally.count(f"m{number}", number)
    assert len(tally) <= KEYS_MAX + 1
    # The rest is counted together.
    assert tally.count("one more", 3 * KEYS_MAX) == 2 * KEYS_MAX + 1


def test_what_is_long_ago_makes_room() -> None:
    tally = Tally()
    for number in range(KEYS_MAX):
        tally.count(f"m{number}", 0)
    assert tally.count("late", FORGOTTEN_AFTER) == 1
    assert tally.count("late", FORGOTTEN_AFTER) == 2
    assert len(tally) == 1


def test_few_of_many_are_told_of() -> None:
    assert [count for count in range(1, 1_000) if is_told(count)] == [
        2**power for power in range(10)
    ]

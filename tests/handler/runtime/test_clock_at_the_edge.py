"""Somebody sets the clock while strangers are at the door: nobody gains by it, nobody is lost."""

from __future__ import annotations

import pytest

from oncewire.handler.context import JOURNALED_EVERY, JOURNALED_MAX
from oncewire.message.form import Form
from oncewire.message.ids import Party
from oncewire.message.instant import HOUR, Duration
from oncewire.wire import codec
from tests.handler.runtime.test_clock import YEAR, SetPair
from tests.handler.test_http import message

ODD = Party.of("urn:test:beta", "urn:odd:type")


def refused(pair: SetPair, begin: int, count: int) -> int:
    """So many refused messages; how many of them have a row of the journal."""
    before = len(pair.rows("refused", at="beta"))
    for number in range(begin, begin + count):
        answer = pair.deliver("beta", codec.write(message(number, to_party=ODD), Form()))
        assert answer.refused
    return len(pair.rows("refused", at="beta")) - before


@pytest.mark.long
@pytest.mark.parametrize("by", [HOUR, -HOUR, 10 * YEAR, -10 * YEAR])
@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "left"])
def test_rows_for_refusals_are_given_by_the_steady_clock(by: Duration, accepted: bool) -> None:
    pair = SetPair.pair()
    assert refused(pair, 0, JOURNALED_MAX + 50) == JOURNALED_MAX
    pair.set_clock(by, "beta")
    pair.settle("beta")
    if accepted and pair.beta.context.in_doubt:
        pair.beta.accept_clock()
        pair.settle("beta")
    # A clock that is set brings no more of them than the time that went by,
    assert refused(pair, 1000, 50) <= 1
    pair.pass_time(JOURNALED_MAX * JOURNALED_EVERY)
    # and keeps none of them away for ever.
    assert refused(pair, 2000, JOURNALED_MAX + 50) >= JOURNALED_MAX - 2
    with pair.beta.context.store.reader() as reader:
        counted = sum(one.count for one in reader.refusals(100))
    counted += sum(one.count for one in pair.beta.context.state.refusals.counted)
    assert counted == 2 * JOURNALED_MAX + 150


@pytest.mark.parametrize("by", [10 * YEAR, -10 * YEAR])
def test_counts_of_refusals_are_written_whatever_the_clock_says(by: Duration) -> None:
    pair = SetPair.pair()
    refused(pair, 0, 3)
    pair.set_clock(by, "beta")
    pair.settle("beta")
    pair.pass_time()
    pair.settle("beta")
    assert pair.beta.context.state.refusals.counted == ()

"""Steps that are taken one behind whoever asked for them."""

from __future__ import annotations

import hashlib
import threading
from time import thread_time

import pytest

from oncewire.store.spool import SHORT, Behind, Digesting, worked


def test_whoever_asks_goes_on_and_waits_with_the_next_step() -> None:
    behind, gate, taken = Behind("test"), threading.Event(), list[int]()

    def first() -> None:
        assert gate.wait(60)
        taken.append(1)

    behind.do(first)
    assert taken == []
    gate.set()
    behind.do(lambda: taken.append(2))
    assert taken[:1] == [1]
    behind.settle()
    assert taken == [1, 2]


def test_what_a_step_raised_is_raised_once_and_the_next_one_is_not_taken() -> None:
    behind, taken = Behind("test"), list[int]()

    def broken() -> None:
        raise OSError(28, "no space")

    behind.do(broken)
    with pytest.raises(OSError, match="no space"):
        behind.do(lambda: taken.append(1))
    behind.settle()
    assert taken == []


def test_what_others_work_for_a_thread_counts_as_its_work() -> None:
    """Else a stranger would pay for half of what his body costs."""
    step, step_of_a_step = Behind("test"), Behind("test of a test")

    def work() -> None:
        begin = thread_time()
        while thread_time() < begin + 0.02:
            pass

    def work_by_others() -> None:
        step_of_a_step.do(work)
        step_of_a_step.settle()

    begin, own = worked(), thread_time()
    step.do(work)
    step.do(work_by_others)
    step.settle()
    assert worked() - begin >= 0.04
    assert thread_time() - own < 0.04


@pytest.mark.parametrize("sizes", [(), (1,), (SHORT,), (SHORT - 1, 3 * SHORT, 0, 5, SHORT)])
def test_a_digest_is_that_of_all_pieces_in_their_order(sizes: tuple[int, ...]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    digesting, whole = Digesting(), hashlib.sha256()
    for piece in pieces:
        digesting.update(piece)
        whole.update(piece)
        assert digesting.copy().digest() == whole.digest()
    assert digesting.hexdigest() == whole.hexdigest()

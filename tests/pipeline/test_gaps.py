"""The inventory of gaps: modulo the range, epoch by epoch."""

from msgspec.structs import replace

from oncewire.journal.row import Row
from oncewire.pipeline.judging.channels import GapFold
from oncewire.protocol.notes import Kind
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.terms import FlowMode, Terms

TERMS = Terms(
    numbered=True, ordered=True, flow=FlowMode.WINDOW, window=4, numbers=SequenceRange(0, 9)
)


def gaps(*rows: tuple[Kind, int, int], terms: Terms = TERMS) -> list[tuple]:
    fold = GapFold()
    for seq, (kind, epoch, number) in enumerate(rows):
        row = Row(
            seq, 0, 0, "b", "n", kind.value, f"m{epoch}.{number}", channel="c", epoch=epoch,
            sequence_number=number,
        )  # fmt: skip
        fold.feed(row, terms)
    return [
        (one.side, one.epoch, one.first_missing, one.missing, one.state) for one in fold.finish()
    ]


def received(*numbers: int, epoch: int = 0) -> list[tuple[Kind, int, int]]:
    return [(Kind.RECEIVED, epoch, number) for number in numbers]


def numbered(*numbers: int, epoch: int = 1) -> list[tuple[Kind, int, int]]:
    return [(Kind.NUMBERED, epoch, number) for number in numbers]


def test_no_gap_over_the_wrap_around() -> None:
    assert gaps(*received(*range(10), *range(10), 0, 1)) == []
    assert gaps(*numbered(*range(10), *range(10), 0, 1)) == []


def test_arrivals_in_any_order_within_the_window_close_their_gaps() -> None:
    assert gaps(*received(2, 0, 1, 3, 8 - 2, 4, 5)) == []


def test_a_gap_across_the_wrap() -> None:
    assert gaps(*received(*range(8), 1)) == [("receiving", 0, 8, 3, "open")]
    # One of the three comes after all: two runs are left of it.
    assert gaps(*received(*range(8), 1, 9)) == [
        ("receiving", 0, 8, 1, "open"),
        ("receiving", 0, 0, 1, "open"),
    ]


def test_an_epoch_that_is_over_closes_its_gaps() -> None:
    assert gaps(*received(0, 2), *received(0, epoch=1)) == [("receiving", 0, 1, 1, "missing")]


def test_a_skip_explains_itself() -> None:
    assert gaps((Kind.RECEIVED, 0, 0), (Kind.SKIPPED, 0, 1), (Kind.RECEIVED, 0, 2)) == [
        ("receiving", 0, 1, 1, "skipped")
    ]


def test_a_number_the_sender_left_out() -> None:
    assert gaps(*numbered(0, 1, 3, 4)) == [("sending", 1, 2, 1, "never_given")]
    assert gaps(*numbered(0, 1), *numbered(0, 1, epoch=2)) == []


def test_the_drafts_range_begins_with_one() -> None:
    terms = replace(TERMS, numbers=SequenceRange(1, 10))
    assert gaps(*received(1, 2, 4), terms=terms) == [("receiving", 0, 3, 1, "open")]
    assert gaps(*received(*range(1, 11), 1, 2), terms=terms) == []

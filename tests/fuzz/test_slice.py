"""A slice of `make fuzz` in every test run."""

import pytest

from oncewire.errors import MimeProblem
from oncewire.wire.codec import ReadFault
from tests.fuzz.__main__ import main
from tests.fuzz.cases import Broken, Tally, data_of, run
from tests.fuzz.seeds import captures

CASES = 3_000
SEED = 1_000


@pytest.mark.long
def test_mutated_messages_raise_only_our_own_errors() -> None:
    print(f"seed {SEED}; replay: python -m tests.fuzz --seed {SEED} --case N")
    good = captures()
    tally = Tally()
    for number in range(CASES):
        try:
            run(SEED, number, good, tally)
        except Exception as error:
            raise AssertionError(
                f"case {number} broke; replay: python -m tests.fuzz --seed {SEED} --case {number}"
            ) from error
    assert sum(tally.outcomes.values()) == CASES
    # Mutations that all fail, or all pass, would show nothing.
    assert tally.outcomes["read"] > CASES // 20
    assert tally.by_template > CASES // 50
    for code in ("Inconsistent", "MimeProblem", "OtherXml", "SOAP Client", "ValueNotRecognized"):
        assert tally.outcomes[f"refused: {code}"] > 0, tally.outcomes


def test_a_good_message_is_read() -> None:
    tally = Tally()
    good = captures()
    assert len(good) > 30
    for number, data in enumerate(good[:-1]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tests.fuzz.cases.mutated", lambda _chance, one: one)
            run(1, number, [data], tally)
    assert set(tally.outcomes) == {"read"} or tally.outcomes["refused: MimeProblem"] < 4, tally


def test_a_case_replays_to_the_same_bytes() -> None:
    good = captures()
    assert data_of(5, 7, good) == data_of(5, 7, good)
    assert data_of(5, 7, good) != data_of(5, 8, good)


def test_a_crash_is_found_and_its_replay_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(*_args: object) -> None:
        raise KeyError("not ours")

    monkeypatch.setattr("tests.fuzz.cases.inspection.describe_bytes", explode)
    assert main(["--cases", "3", "--seed", "4"]) == 1
    assert "--seed 4 --case 0" in capsys.readouterr().out


def test_a_difference_between_the_two_ways_to_read_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_up = ReadFault((MimeProblem("made up", location="x"),))
    monkeypatch.setattr("tests.fuzz.cases._in_pieces", lambda *_: made_up)
    monkeypatch.setattr("tests.fuzz.cases.mutated", lambda _chance, one: one)
    with pytest.raises(Broken):
        run(1, 0, captures()[:1], Tally())

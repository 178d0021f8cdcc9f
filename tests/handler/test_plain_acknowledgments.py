"""What is acknowledged in few words is acknowledged as by a whole message, whatever is agreed."""

from types import SimpleNamespace

import pytest

from oncewire.handler.sending import answer
from tests.handler.key_cases import CASES, MAIL, Case

# Made anew whenever a payload is encrypted: these scenes do not repeat themselves.
CHANCE = ("security.encryption_syntax", "security.order")
PLAYED = [case for case in CASES if case.key not in CHANCE]
MORE = (
    Case("delivery.transports", ["http", "smtp"], base=MAIL),
    Case("wire.extensions", ["routing"]),
)


@pytest.mark.parametrize("case", [*PLAYED, *MORE], ids=lambda case: case.key)
def test_both_ways_give_one_record(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    played = case.play(case.change)
    monkeypatch.setattr(answer, "Dialect", SimpleNamespace(EBMS2=None))
    assert case.play(case.change) == played

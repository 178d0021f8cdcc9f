"""What a watcher is told of a partner."""

import pytest

from oncewire.entry.party.names import Names
from oncewire.entry.watching.snapshot import PartnerSeen, _partner
from oncewire.handler.contacts import Contact
from oncewire.message.instant import MILLISECOND, SECOND


def seen(silent_since: int, *, direct: bool = True) -> PartnerSeen:
    """A partner whose retry interval is 5 s."""
    return PartnerSeen(
        peer="urn:hub",
        party_id="urn:seller",
        contact=Contact(silent_since=silent_since),
        retry_interval=5 * SECOND,
        window_used=0,
        window_size=1,
        oldest_at=None,
        certificate_ends=None,
        agreement_ends=None,
        direct=direct,
    )


@pytest.mark.parametrize(
    ("since", "now", "silent"),
    [
        (0, 100 * SECOND, False),
        (10 * SECOND, 10 * SECOND + 339 * MILLISECOND, False),
        (10 * SECOND, 20 * SECOND - 1, False),
        (10 * SECOND, 20 * SECOND, True),
    ],
)
def test_one_attempt_that_failed_is_no_silence(since: int, now: int, silent: bool) -> None:
    told = _partner(seen(since), Names(), now, silent_intervals=2)
    assert told.silent_since == (since if silent else 0)


def test_a_hub_on_the_way_is_named() -> None:
    told = [_partner(seen(0, direct=direct), Names(), 0, 2).through for direct in (True, False)]
    assert told == ["", "urn:hub"]

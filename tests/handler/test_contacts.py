"""A partner that falls silent and comes back: two lines of the log, and at once another attempt."""

from __future__ import annotations

import logging

import pytest

from oncewire.errors import NotHere
from oncewire.handler.actions import Post
from oncewire.handler.contacts import HURRIED_EACH, TOLD_EACH, UNSENT_MAX, Contacts
from oncewire.handler.sending.transmit import Transmission, left_ways, take_again
from oncewire.journal.check import check_journal
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND
from oncewire.protocol.notes import Kind
from oncewire.protocol.sender import HURRIES_MAX
from oncewire.protocol.states import OutgoingState
from tests.handler.network import Network, Stores
from tests.handler.runtime.test_clock import SetPair

TERMS = '[delivery]\ntimeout = "PT5M"\nretry_interval = "PT5M"\nretries = 2\n'


class Outage(Network):
    """Beta's endpoint refuses connections while `down`; alpha's attempts are listed."""

    def __post_init__(self) -> None:
        self.attempts: list[tuple[str, int]] = []
        self.down = True
        self.lose_request = self._lose
        super().__post_init__()

    def _lose(self, post: Post) -> bool | Transmission:
        self.attempts.append((post.message_id.partition("@")[0], post.attempt))
        reason = "connection refused"
        lost = Transmission(post.message_id, post.attempt, sent=False, certain=True, reason=reason)
        return self.down and lost

    def ping(self) -> None:
        """Beta asks whether alpha is there, and alpha hears it."""
        self.beta.ping("alpha-beta")
        self.settle("beta")

    def count(self, kind: Kind) -> int:
        assert check_journal(self.rows(), healed=False).violations == ()
        return len(self.rows(kind.value))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.message.startswith("a partner is")]


@pytest.mark.requirement("RTY-13")
def test_a_partner_that_answers_again_is_tried_at_once(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Outage.pair(extra=TERMS, store=stores)
    pair.send_all((1, 2))
    assert said(caplog) == []
    pair.pass_time(6 * SECOND)
    assert said(caplog) == ["a partner is silent"]
    pair.pass_time(MINUTE)
    assert pair.attempts == [("order-1", 1), ("order-2", 1)]
    pair.down = False
    pair.ping()
    assert said(caplog) == ["a partner is silent", "a partner is back"]
    pair.pass_time(SECOND)
    assert pair.attempts[2:] == [("order-1", 2), ("order-2", 2)]
    assert pair.state(1) is pair.state(2) is OutgoingState.DELIVERED
    assert pair.count(Kind.RESUMED) == 2
    pair.close()


def test_a_probe_that_gets_through_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    pair = Outage.pair(extra=TERMS)
    assert left_ways(pair.alpha.context) == []
    pair.send(1)
    pair.pass_time(30 * SECOND)
    (way,) = left_ways(pair.alpha.context)
    pair.down = False
    take_again(pair.alpha.context, way)
    pair.settle("alpha")
    pair.pass_time(SECOND)
    assert pair.state(1) is OutgoingState.DELIVERED
    assert said(caplog) == ["a partner is silent", "a partner is back"]
    assert left_ways(pair.alpha.context) == []


def test_a_partner_that_answers_and_takes_nothing_keeps_no_message() -> None:
    pair = Outage.pair(extra=TERMS)
    pair.send(1)
    for _ in range(60):
        pair.pass_time(30 * SECOND)
        pair.ping()
    # Three times at once, and then by its timer until the agreed retries are used up.
    assert pair.count(Kind.RESUMED) == HURRIES_MAX
    assert pair.count(Kind.EXHAUSTED) == 1
    assert len(pair.attempts) == HURRIES_MAX + 3


@pytest.mark.requirement("RTY-8")
def test_a_partner_that_asks_for_a_pause_gets_it() -> None:
    pair = Outage.pair(extra=TERMS)
    pair.send(1)
    pair.send(2)
    pair.pass_time(MINUTE)
    busy = Transmission("order-2@alpha", 1, sent=False, reason="503", retry_after=120)
    pair.alpha.transmission_over(busy)
    pair.settle("alpha")
    pair.pass_time(30 * SECOND)
    assert len(pair.attempts) == 2
    assert pair.count(Kind.RESUMED) == 0


def test_a_partner_that_flaps_each_second_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    contacts, now = Contacts(), 10**15
    for second in range(3600):
        at = now + second * SECOND
        contacts.failed("beta", f"m{second}", at, "refused", certain=True)
        contacts.tell(at)
        contacts.arrived("beta", at + SECOND // 2)
        contacts.tell(at + SECOND // 2)
    assert said(caplog) == []
    assert len(contacts["beta"].unsent) == UNSENT_MAX
    # One that is away for ten seconds and back for one has two lines a minute at most.
    for second in range(0, 3600, 11):
        at = now + HOUR + second * SECOND
        contacts.failed("beta", "m", at, "refused", certain=True)
        contacts.tell(at + 9 * SECOND)
        contacts.arrived("beta", at + 10 * SECOND)
    assert 2 * 40 < len(said(caplog)) <= 2 * HOUR // TOLD_EACH


def test_an_overloaded_partner_is_not_hurried_all_the_time() -> None:
    contacts, now = Contacts(), 10**15
    hurried = 0
    for tenth in range(600):
        at = now + tenth * SECOND // 10
        contacts.failed("beta", f"m{tenth}", at, "timed out", certain=False)
        contacts.sent("beta", "other", at)
        hurried += bool(contacts.returning(at, 64))
    assert hurried <= MINUTE // HURRIED_EACH + 1


def test_a_clock_that_jumps_by_a_day_changes_no_silence(caplog: pytest.LogCaptureFixture) -> None:
    for by in (DAY, -DAY):
        caplog.clear()
        pair = SetPair.pair(extra=TERMS)
        contacts = pair.alpha.context.state.contacts
        contacts.failed("urn:beta", "m", pair.alpha.context.now(), "refused", certain=True)
        pair.set_clock(by)
        pair.pass_time(6 * SECOND)
        pair.alpha.accept_clock()
        pair.settle("alpha")
        contacts.arrived("urn:beta", pair.alpha.context.now())
        assert said(caplog) == ["a partner is silent", "a partner is back"]
        (back,) = [one for one in caplog.records if one.message == "a partner is back"]
        assert vars(back)["silent_seconds"] == 6


def test_an_operator_resumes_all_that_goes_to_a_partner(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    pair = Outage.pair(extra=TERMS, store=stores)
    pair.send(1)
    pair.pass_time(MINUTE)
    pair.down = False
    with pytest.raises(NotHere):
        pair.alpha.resume(partner="nobody")
    pair.alpha.resume(partner="alpha-beta")
    pair.settle("alpha")
    pair.pass_time(SECOND)
    assert pair.state(1) is OutgoingState.DELIVERED
    pair.close()

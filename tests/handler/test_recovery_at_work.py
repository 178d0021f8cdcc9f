"""Time-outs, retries and errors: what a real sender does with what comes back, or does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.handler.sending.transmit import Transmission
from oncewire.journal.check import check_journal
from oncewire.message.envelope import COMMUNICATION_CODE, Error, Severity
from oncewire.message.instant import HOUR, SECOND
from oncewire.protocol.states import OutgoingState
from tests.handler.network import Network
from tests.handler.samples import toml
from tests.handler.test_exchange import OTHER
from tests.handler.wiretap import error_about

LAW = '[delivery]\ntimeout = "PT30S"\nretry_interval = "PT60S"\nretries = 3\n'
TRANSIENT = "TransientError"


def attempts(pair: Network, message_id: str = "order-1@alpha") -> list[int]:
    """When each attempt was made, in seconds since the first."""
    with pair.alpha.context.store.reader() as reader:
        rows = [
            row.at
            for row in reader.journal_since(0, 1_000_000)
            if row.kind == "sent" and row.message_id == message_id
        ]
    return [(at - rows[0]) // SECOND for at in rows]


def let_pass(pair: Network, seconds: int) -> None:
    """Time passes second by second, so that whatever is due happens when it is due."""
    pair.pass_time(*[SECOND] * seconds)


def answer_first(pair: Network, error: Error) -> None:
    """beta reports an error in the message that arrived last."""
    pair.deliver("alpha", error_about(pair.to("beta")[-1], error))


def silent(profile: str = "rm-0.78", extra: str = LAW) -> Network:
    """A sender whose acknowledgements never arrive."""
    pair = Network.pair(profile, extra, lose_answer=lambda count: True)
    pair.send(1)
    return pair


@pytest.mark.requirement("RTY-1", "RTY-2", "RTY-3", "RTY-7", "RTY-18", "DUP-3")
@pytest.mark.parametrize("profile", ["rm-0.78", "ms-0.9x", "ebms2"])
def test_a_message_is_resent_by_the_law_and_never_given_up_early(profile: str) -> None:
    pair = silent(profile)
    let_pass(pair, 400)
    assert attempts(pair) == [0, 30, 90, 150]
    # Every copy is the message that was stored, byte for byte.
    assert len({one.parcel.body for one in pair.to("beta")}) == 1


@pytest.mark.requirement("RTY-6")
def test_after_a_transport_error_the_message_is_sent_again_after_an_interval() -> None:
    pair = Network.pair("rm-0.78", LAW, lose_request=lambda post: post.attempt == 1)
    pair.send(1)
    let_pass(pair, 120)
    assert attempts(pair) == [0, 60]
    assert pair.state("order-1@alpha") is OutgoingState.DELIVERED


@pytest.mark.requirement("RTY-6", "ERR-1")
def test_a_communication_error_that_is_received_is_worked_like_a_local_one() -> None:
    pair = silent()
    let_pass(pair, 10)
    answer_first(pair, Error(COMMUNICATION_CODE, description="the line broke"))
    let_pass(pair, 90)
    assert attempts(pair)[:2] == [0, 70]
    assert pair.state("order-1@alpha") is OutgoingState.OUTSTANDING


@pytest.mark.requirement("RTY-8", "RTY-9", "ERR-4")
@pytest.mark.parametrize(("named", "pause"), [(45, 45), (None, 60)])
def test_a_transient_error_stops_the_sender_for_as_long_as_it_says(
    named: int | None, pause: int
) -> None:
    pair = silent()
    pair.send(2)
    let_pass(pair, 1)
    answer_first(pair, Error(TRANSIENT, Severity.WARNING, min_retry_secs=named))
    pair.lose_answer = lambda count: False
    before = len(pair.to("beta"))
    let_pass(pair, pause - 1)
    assert len(pair.to("beta")) == before
    let_pass(pair, 2)
    # The last message again, and then the one that waited behind it.
    ids = [one.message.header.message_id for one in pair.to("beta")[before:]]
    assert ids == ["order-1@alpha", "order-2@alpha"]


@pytest.mark.requirement("RTY-10")
def test_an_acknowledgement_ends_the_recovery_at_once() -> None:
    pair = silent()
    pair.lose_answer = lambda count: False
    answer_first(pair, Error(TRANSIENT, Severity.WARNING, min_retry_secs=1000))
    copy = pair.to("beta")[0]
    pair.deliver("beta", copy.parcel)
    assert pair.state("order-1@alpha") is OutgoingState.DELIVERED
    let_pass(pair, 1100)
    assert attempts(pair) == [0]


@pytest.mark.requirement("RTY-10")
def test_another_error_switches_to_its_own_recovery() -> None:
    pair = silent()
    answer_first(pair, Error(COMMUNICATION_CODE))
    let_pass(pair, 5)
    answer_first(pair, Error(TRANSIENT, Severity.WARNING, min_retry_secs=100))
    let_pass(pair, 110)
    assert attempts(pair)[:2] == [0, 105]


@pytest.mark.requirement("RTY-11", "RTY-12", "RTY-13", "OPS-1")
def test_all_errors_count_against_one_total_and_then_the_operator_is_called() -> None:
    pair = Network.pair("rm-0.78", LAW, lose_request=lambda post: post.attempt % 2 == 0)
    pair.lose_answer = lambda count: True
    pair.send(1)
    for _ in range(4):
        let_pass(pair, 40)
        answer_first(pair, Error(TRANSIENT, Severity.WARNING, min_retry_secs=20))
        let_pass(pair, 100)
    assert len(attempts(pair)) == 1 + 3
    assert pair.state("order-1@alpha") is OutgoingState.SUSPENDED
    pair.send(2)
    (incident,) = pair.incidents()
    assert incident.message_id == "order-1@alpha"
    # Resolved: the counter starts again, from the uncompleted message, and the stream goes on.
    pair.lose_request = pair.lose_answer = lambda count: False
    pair.alpha.resume(message_id="order-1@alpha")
    pair.settle("alpha")
    let_pass(pair, 2)
    assert pair.take() == ["order-1@alpha", "order-2@alpha"]
    assert not pair.incidents()


@pytest.mark.requirement("ERR-1", "ERR-2")
def test_a_messaging_error_is_passed_up_and_the_transfer_goes_on() -> None:
    pair = Network.pair("rm-0.78", LAW, lose_answer=lambda count: True)
    pair.send(1)
    pair.send(2)
    answer_first(pair, Error("NotRecognized", description="no such service"))
    assert pair.state("order-1@alpha") is OutgoingState.NOT_DELIVERED
    assert attempts(pair) == [0]
    sent = [one.message.header.message_id for one in pair.to("beta")]
    assert sent[-1] == "order-2@alpha"


@pytest.mark.requirement("RTY-4", "RTY-15")
def test_the_retries_of_each_transport_are_counted_apart() -> None:
    """Undelivered and unacknowledged attempts both count; another transport has its own."""
    both = LAW + 'transports = ["http", "smtp"]\n'
    desk = Network.single(
        toml("ms-0.9x", '"urn:test:own"', '"urn:test:partner"', "both", both),
        at="2026-01-01T00:00:00Z",
    )
    desk.submit(replace(OTHER, cpa_id="both"))
    heard = 0
    for _ in range(900):
        for post in desk.posts[heard:]:
            heard += 1
            desk.hear(post, None, sent=heard % 2 == 0)
        desk.pass_time(SECOND)
    assert [post.transport for post in desk.posts] == ["http"] * 4 + ["smtp"] * 4
    assert {desk.parcel(post).body for post in desk.posts} == {desk.parcel(desk.posts[0]).body}


# --- a transport that answers for the delivery ----------------------------------------------------

DELEGATED = '[delivery]\nmethod = "Transport"\ntransports = ["http"]\npersist_duration = "PT1H"\n'


@pytest.mark.requirement("ERR-9", "RM-7")
@pytest.mark.parametrize("restarted", [False, True])
def test_whether_a_transport_was_given_it_before_a_restart_nobody_knows(restarted: bool) -> None:
    """The transport answers for the delivery. It says that it got nothing, which is certain of
    this run alone."""
    pair = Network.pair("ms-0.9x", DELEGATED, hears=False, carrying=False)
    sent = pair.send()
    if restarted:
        pair.crash("alpha")
    assert len(pair.posts) == 1 + restarted
    gone = Transmission(sent.message_id, 1, sent=False, certain=True, reason="nobody is there")
    pair.alpha.transmission_over(gone)
    pair.settle("alpha")
    (notice,) = pair.alpha.notices(10)
    assert notice.severity is (Severity.WARNING if restarted else Severity.ERROR)
    with pair.alpha.context.store.reader() as reader:
        assert not check_journal(reader.journal_since(0, 1_000), healed=False).violations


@pytest.mark.requirement("RTY-17")
def test_a_transport_that_answers_for_a_message_is_given_it_before_its_time_is_over() -> None:
    pair = Network.pair("ms-0.9x", DELEGATED, carrying=False)
    pair.send()
    (post,) = pair.posts
    assert post.begin_within is not None
    assert HOUR - 2 * SECOND < post.begin_within < HOUR

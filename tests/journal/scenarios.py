"""Clean histories, one for each way a message can go; every one of them keeps every promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from oncewire.message.form import AckRequest, SyncReplyMode
from oncewire.message.instant import HOUR, MINUTE, SECOND
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.synchronous import TIMEOUT_MESSAGE
from oncewire.protocol.terms import (
    FlowMode,
    HopMode,
    OnExhausted,
    ResetRule,
    RetryCount,
    SyncRetries,
    Terms,
)
from tests.journal.histories import BEST_EFFORT, CHANNEL, EPOCH_START, ORDERED, PLAIN, World, digest

Scenario = Callable[[], World]
SCENARIOS: dict[str, Scenario] = {}


def scenario(terms: Terms = PLAIN) -> Callable[[Callable[[World], None]], Scenario]:
    """What happens in a new world under these terms, by its name."""

    def register(happens: Callable[[World], None]) -> Scenario:
        def make() -> World:
            world = World(terms)
            happens(world)
            return world

        SCENARIOS[happens.__name__] = make
        return make

    return register


@scenario()
def plain(world: World) -> None:
    world.deliver("m1")


@scenario()
def lost_ack(world: World) -> None:
    """The ack is lost, the resend is stopped as a duplicate, the stored answer goes back."""
    world.submit("m1")
    world.send("m1")
    world.arrive("m1")
    world.wait(PLAIN.timeout)
    world.send("m1", 2)
    world.duplicate("m1")
    world.acknowledged("m1")


@scenario(BEST_EFFORT)
def best_effort(world: World) -> None:
    world.submit("m1")
    world.send("m1")
    world.hand_over("m1")
    world.submit("m2")
    world.send("m2")


@scenario()
def unknown_then_late_ack(world: World) -> None:
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.fail("m1", "unknown", "no acknowledgement after 3 attempts")
    world.arrive("m1")
    world.acknowledged("m1", late=True)


@scenario()
def unknown(world: World) -> None:
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.fail("m1", "unknown", "no acknowledgement after 3 attempts")


@scenario()
def connection_refused(world: World) -> None:
    """Every attempt was refused by the transport: certainly not delivered."""
    world.submit("m1")
    for attempt in (1, 2, 3):
        world.send("m1", attempt)
        world.note(
            Kind.SEND_FAILED,
            "m1",
            attempt=attempt,
            transport="http",
            said=notes.SendFailed("refused", "connection refused"),
        )
        world.wait(PLAIN.timeout if attempt == 1 else PLAIN.retry_interval)
    world.note(Kind.EXHAUSTED, "m1", transport="http")
    world.fail("m1", "not_delivered", "no acknowledgement after 3 attempts")


@scenario()
def refused(world: World) -> None:
    world.submit("m1")
    world.send("m1")
    world.node("globex").add(
        Kind.REFUSED, "m1", digest=digest("m1"), said=notes.Refused("ValueNotRecognized")
    )
    world.note(Kind.REJECTED, "m1", ref_to="error-1", said=notes.Rejected("ValueNotRecognized"))
    world.fail("m1", "not_delivered", "ValueNotRecognized")


@scenario(
    replace(PLAIN, sync_mode=SyncReplyMode.SIGNALS_AND_RESPONSE, sync_retries=SyncRetries.NONE)
)
def closed_unanswered(world: World) -> None:
    """A synchronous request that is not repeated, and whose connection ran out of time."""
    world.submit("m1")
    world.send("m1")
    world.receive("m1")
    said = notes.Refused("DeliveryFailure", "Warning", problem=TIMEOUT_MESSAGE)
    world.node("globex").add(Kind.REFUSED, "m1", digest=digest("m1"), said=said)
    answer = notes.Rejected("DeliveryFailure", "Warning", TIMEOUT_MESSAGE, None, "globex")
    world.note(Kind.REJECTED, "m1", ref_to="error-1", said=answer)
    world.fail("m1", "unknown", "rejected")


@scenario()
def conflicting_copy(world: World) -> None:
    """Other content under a known id is refused, and the first is delivered all the same."""
    world.deliver("m1")
    world.node("globex").add(
        Kind.REFUSED, "m1", digest="sha-of-something-else", said=notes.Refused("Inconsistent")
    )


@scenario()
def expired_unsent(world: World) -> None:
    world.submit("m1", time_to_live=EPOCH_START - 3 * HOUR + MINUTE)
    world.wait(2 * MINUTE)
    world.note(Kind.EXPIRED, "m1", said=notes.Expired("TimeToLive"))
    world.fail("m1", "not_delivered", "TimeToLive has passed")


@scenario()
def expired_under_way(world: World) -> None:
    world.submit("m1", time_to_live=EPOCH_START - 3 * HOUR + MINUTE)
    world.send("m1")
    world.wait(2 * MINUTE)
    world.note(Kind.EXPIRED, "m1", said=notes.Expired("TimeToLive"))
    world.fail("m1", "unknown", "TimeToLive has passed")


@scenario(replace(PLAIN, transports=("http", "smtp")))
def second_transport(world: World) -> None:
    world.submit("m1")
    world.retry_until_exhausted("m1", way="http")
    world.send("m1", 4, way="smtp")
    world.arrive("m1")
    world.acknowledged("m1")
    world.submit("m2")
    world.retry_until_exhausted("m2", way="http")
    world.retry_until_exhausted("m2", way="smtp")
    world.fail("m2", "unknown", "no acknowledgement after 6 attempts")


@scenario(replace(PLAIN, transports=("http", "smtp"), retries_counted=RetryCount.TOTAL))
def total_retries(world: World) -> None:
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.fail("m1", "unknown", "no acknowledgement after 3 attempts")


@scenario(replace(PLAIN, on_exhausted=OnExhausted.SUSPEND_CHANNEL))
def suspended_and_resumed(world: World) -> None:
    """The operator resumes: the counter is at zero again (RTY-13)."""
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.note(Kind.SUSPENDED, "m1", said=notes.Suspended("no acknowledgement"))
    world.note(Kind.INCIDENT, "m1", said=notes.Incident("1", "no acknowledgement"))
    world.wait(HOUR)
    world.note(Kind.RESUMED, "m1")
    world.note(Kind.RESOLVED, "m1", said=notes.Resolved("1"))
    world.retry_until_exhausted("m1")
    world.note(Kind.SUSPENDED, "m1", said=notes.Suspended("no acknowledgement"))
    world.note(Kind.RESUMED, "m1")
    world.send("m1", 7)
    world.arrive("m1")
    world.acknowledged("m1")


def _number_two(world: World) -> None:
    world.submit("m0")
    world.submit("m1")
    world.number("m0", 0, status="Reset")
    world.number("m1", 1, status="Reset")


@scenario(ORDERED)
def suspended_at_the_end(world: World) -> None:
    """Whatever stands in a suspended channel waits for the operator, not for a timer."""
    world.submit("m0")
    world.submit("m1")
    world.submit("m2")
    world.number("m0", 0, status="Reset")
    world.number("m1", 1, status="Reset")
    world.retry_until_exhausted("m0")
    world.send("m1")
    world.receive("m1")
    world.ack("m1")
    world.acknowledged("m1")
    world.note(Kind.SUSPENDED, "m0", said=notes.Suspended("no acknowledgement"))


@scenario(ORDERED)
def suspended_and_late_ack(world: World) -> None:
    """The acknowledgement comes after all and lifts the suspension that its lack had caused."""
    _number_two(world)
    world.retry_until_exhausted("m0")
    world.note(Kind.SUSPENDED, "m0", said=notes.Suspended("no acknowledgement"))
    world.note(Kind.INCIDENT, "m0", said=notes.Incident("1", "no acknowledgement"))
    world.arrive("m0")
    world.acknowledged("m0")
    world.note(Kind.RESOLVED, "m0", said=notes.Resolved("1"))
    world.send("m1")
    world.arrive("m1")
    world.acknowledged("m1")


@scenario(ORDERED)
def transient(world: World) -> None:
    _number_two(world)
    world.send("m0")
    until = EPOCH_START + world.node("acme").skew + world.time + 30 * SECOND
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(until))
    world.wait(31 * SECOND)
    world.send("m0", 2)
    world.send("m1")
    for message_id in ("m0", "m1"):
        world.arrive(message_id)
        world.acknowledged(message_id)


@scenario(ORDERED)
def paused_twice(world: World) -> None:
    """The receiver asks for a pause, for a longer one while the first lasts, and for a third."""
    _number_two(world)
    world.send("m0")
    now = EPOCH_START + world.node("acme").skew + world.time
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(now + 20 * SECOND))
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(now + 90 * SECOND))
    world.wait(100 * SECOND)
    world.send("m1")
    world.send("m0", 2)
    now = EPOCH_START + world.node("acme").skew + world.time
    world.note(Kind.TRANSIENT, "m0", said=notes.Transient(now + 90 * SECOND))
    world.wait(100 * SECOND)
    world.send("m0", 3)
    for message_id in ("m0", "m1"):
        world.arrive(message_id)
        world.acknowledged(message_id)


@scenario(ORDERED)
def resumed_channel(world: World) -> None:
    """A suspended channel goes on by the operator's word, and so does what stood behind."""
    _number_two(world)
    world.retry_until_exhausted("m0")
    world.note(Kind.SUSPENDED, "m0", said=notes.Suspended("no acknowledgement"))
    world.wait(HOUR)
    world.note(Kind.RESUMED, "m0")
    world.send("m0", 4)
    world.send("m1")
    for message_id in ("m0", "m1"):
        world.arrive(message_id)
        world.acknowledged(message_id)


@scenario(ORDERED)
def window(world: World) -> None:
    """Numbers wrap around, acks come in any order, early arrivals wait for their turn."""
    ids = [f"m{index}" for index in range(24)]
    for index, message_id in enumerate(ids):
        world.submit(message_id)
        world.number(message_id, index % 10, status="Reset" if index < 4 else "Continue")
        world.send(message_id)
        if index % 4 == 3:
            group = ids[index - 3 : index + 1]
            for early in reversed(group):
                world.receive(early)
                world.ack(early)
                world.acknowledged(early)
            for early in group:
                world.hand_over(early)
                world.confirm(early)


@scenario(ORDERED)
def refusal_settles_its_number(world: World) -> None:
    for index in range(3):
        world.submit(f"m{index}")
        world.number(f"m{index}", index, status="Reset")
        world.send(f"m{index}")
    world.receive("m2")
    world.ack("m2")
    world.node("globex").add(Kind.REFUSED, "m1", said=notes.Refused("SecurityFailure"))
    world.arrive("m0")
    world.node("globex").add(
        Kind.SKIPPED,
        "m1",
        channel=CHANNEL,
        epoch=0,
        sequence_number=1,
        said=notes.Skipped("refused"),
    )
    world.hand_over("m2")
    world.confirm("m2")
    world.acknowledged("m0")
    world.note(Kind.REJECTED, "m1", ref_to="error-1", said=notes.Rejected("SecurityFailure"))
    world.fail("m1", "not_delivered", "SecurityFailure")
    world.acknowledged("m2")


@scenario(ORDERED)
def abandon_ends_the_epoch(world: World) -> None:
    """The number given up is skipped at the receiver when the next epoch begins there."""
    _number_two(world)
    world.retry_until_exhausted("m0")
    world.note(Kind.SUSPENDED, "m0", said=notes.Suspended("no acknowledgement"))
    world.send("m1")
    world.receive("m1")
    world.ack("m1")
    world.acknowledged("m1")
    world.note(Kind.ABANDONED, "m0", said=notes.Abandoned("operator"))
    world.fail("m0", "unknown", "abandoned by the operator")
    world.node("acme").add(Kind.EPOCH_ENDED, "m0", channel=CHANNEL, epoch=1)
    world.submit("m2")
    world.number("m2", 0, epoch=2, status="Reset")
    world.send("m2")
    globex = world.node("globex")
    globex.add(
        Kind.SKIPPED, channel=CHANNEL, epoch=0, sequence_number=0, said=notes.Skipped("given up")
    )
    globex.add(Kind.EPOCH_BEGAN, channel=CHANNEL, epoch=1)
    world.receive("m2", epoch=1)
    world.ack("m2")
    for message_id in ("m1", "m2"):
        world.hand_over(message_id)
        world.confirm(message_id)
    world.acknowledged("m2")


@scenario(ORDERED)
def slow_application(world: World) -> None:
    """Three epochs end before the application comes for the first message (K1)."""
    globex = world.node("globex")
    for epoch in (1, 2, 3):
        lost, held = f"lost{epoch}", f"held{epoch}"
        world.submit(lost)
        world.submit(held)
        world.number(lost, 0, epoch, "Reset")
        world.number(held, 1, epoch, "Reset")
        world.retry_until_exhausted(lost)
        world.note(Kind.SUSPENDED, lost, said=notes.Suspended("no acknowledgement"))
        world.send(held)
        world.receive(held, epoch=epoch - 1)
        world.ack(held)
        world.acknowledged(held)
        world.note(Kind.ABANDONED, lost, said=notes.Abandoned("operator"))
        world.fail(lost, "unknown", "abandoned by the operator")
        world.node("acme").add(Kind.EPOCH_ENDED, lost, channel=CHANNEL, epoch=epoch)
        place = {"channel": CHANNEL, "epoch": epoch - 1, "sequence_number": 0}
        globex.add(Kind.SKIPPED, said=notes.Skipped("given up"), **place)
        globex.add(Kind.EPOCH_BEGAN, channel=CHANNEL, epoch=epoch)
    world.submit("last")
    world.number("last", 0, 4, "Reset")
    world.send("last")
    world.receive("last", epoch=3)
    world.ack("last")
    world.acknowledged("last")
    for message_id in ("held1", "held2", "held3", "last"):
        world.hand_over(message_id)
        world.confirm(message_id)


@scenario(ORDERED)
def slow_application_a_lap_behind(world: World) -> None:
    """The numbers have wrapped around, and one of the new lap is refused, before the application
    comes for the old lap."""
    ids = [f"m{index}" for index in range(12)]
    for index, message_id in enumerate(ids):
        world.submit(message_id)
        world.number(message_id, index % 10, status="Reset" if index < 4 else "Continue")
        world.send(message_id)
        if index == 10:
            globex = world.node("globex")
            globex.add(Kind.REFUSED, message_id, said=notes.Refused("SecurityFailure"))
            place = {"channel": CHANNEL, "epoch": 0, "sequence_number": 0}
            globex.add(Kind.SKIPPED, message_id, said=notes.Skipped("refused"), **place)
            said = notes.Rejected("SecurityFailure")
            world.note(Kind.REJECTED, message_id, ref_to="error-1", said=said)
            world.fail(message_id, "not_delivered", "SecurityFailure")
            continue
        world.receive(message_id)
        world.ack(message_id)
        world.acknowledged(message_id)
    for message_id in ids[:10] + ids[11:]:
        world.hand_over(message_id)
        world.confirm(message_id)


@scenario(replace(ORDERED, on_exhausted=OnExhausted.FAIL_MESSAGE))
def numbers_refused(world: World) -> None:
    """Its receiver throws every copy away because of its number (SEQ-9): that is no proof that
    none of them got across, so it ends as unknown."""
    world.submit("m0")
    world.number("m0", 0, status="Reset")
    for attempt in (1, 2, 3):
        world.send("m0", attempt)
        said = notes.SendFailed("discarded", "number 0 came while 5 is missing")
        world.note(Kind.SEND_FAILED, "m0", attempt=attempt, ref_to=f"error-{attempt}", said=said)
        world.wait(PLAIN.timeout if attempt == 1 else PLAIN.retry_interval)
    world.note(Kind.EXHAUSTED, "m0", transport="http")
    world.fail("m0", "unknown", "no acknowledgement after 3 attempts")
    world.node("acme").add(Kind.EPOCH_ENDED, "m0", channel=CHANNEL, epoch=1)


@scenario(replace(ORDERED, ordered=False, on_exhausted=OnExhausted.FAIL_MESSAGE))
def failure_ends_the_epoch(world: World) -> None:
    """Unordered and numbered: the failed message's number is given up at once."""
    world.submit("m0")
    world.number("m0", 0, status="Reset")
    world.retry_until_exhausted("m0")
    world.fail("m0", "unknown", "no acknowledgement after 3 attempts")
    world.node("acme").add(Kind.EPOCH_ENDED, "m0", channel=CHANNEL, epoch=1)
    world.submit("m1")
    world.number("m1", 0, epoch=2, status="Reset")
    world.send("m1")
    world.arrive("m1", epoch=1)
    world.acknowledged("m1")


@scenario(ORDERED)
def reset_after_a_used_window(world: World) -> None:
    for index in range(5):
        world.submit(f"m{index}")
        world.number(f"m{index}", index, status="Reset" if index < 4 else "Continue")
        world.send(f"m{index}")
        world.arrive(f"m{index}")
        world.acknowledged(f"m{index}")
    world.node("acme").add(Kind.EPOCH_ENDED, channel=CHANNEL, epoch=1)
    for index in range(2):
        world.submit(f"n{index}")
        world.number(f"n{index}", index, epoch=2, status="Reset")
        world.send(f"n{index}")
        world.arrive(f"n{index}", epoch=1)
        world.acknowledged(f"n{index}")


@scenario(
    replace(
        ORDERED,
        reset=ResetRule.SILENT,
        flow=FlowMode.STOP_AND_WAIT,
        numbers=SequenceRange(1, 10),
    )
)
def silent_reset(world: World) -> None:
    world.submit("m1")
    world.number("m1", 1, status="silent")
    world.send("m1")
    world.arrive("m1")
    world.acknowledged("m1")


@scenario(replace(ORDERED, reset=ResetRule.FIRST_MESSAGE))
def reset_on_the_first_message(world: World) -> None:
    for index in range(2):
        world.submit(f"m{index}")
        world.number(f"m{index}", index, status="Continue" if index else "Reset")
        world.send(f"m{index}")
        world.arrive(f"m{index}")
        world.acknowledged(f"m{index}")


@scenario(replace(PLAIN, flow=FlowMode.STOP_AND_WAIT))
def stop_and_wait_without_numbers(world: World) -> None:
    """The flow is limited, but nothing on the wire is numbered: failing frees the place."""
    world.submit("m0")
    world.number("m0", 0, status="Reset")
    world.retry_until_exhausted("m0")
    world.fail("m0", "unknown", "no acknowledgement after 3 attempts")
    world.submit("m1")
    world.number("m1", 1, status="Continue")
    world.send("m1")
    world.places.pop("m1")
    world.arrive("m1")
    world.places["m1"] = {"channel": CHANNEL, "epoch": 1, "sequence_number": 1}
    world.acknowledged("m1")


@scenario()
def redelivered_after_a_crash(world: World) -> None:
    world.submit("m1")
    world.send("m1")
    world.receive("m1")
    world.ack("m1")
    world.hand_over("m1")
    world.node("globex").restart()
    world.hand_over("m1", redelivered=True)
    world.confirm("m1")
    world.acknowledged("m1")


@scenario(ORDERED)
def redelivered_in_order(world: World) -> None:
    for index in range(2):
        world.submit(f"m{index}")
        world.number(f"m{index}", index, status="Reset")
        world.send(f"m{index}")
        world.receive(f"m{index}")
        world.ack(f"m{index}")
        world.hand_over(f"m{index}")
        world.acknowledged(f"m{index}")
    world.node("globex").restart()
    for index in range(2):
        world.hand_over(f"m{index}", redelivered=True)
        world.confirm(f"m{index}")


@scenario()
def lease_expired(world: World) -> None:
    world.submit("m1")
    world.send("m1")
    world.receive("m1")
    world.ack("m1")
    world.hand_over("m1")
    world.wait(MINUTE)
    world.hand_over("m1", redelivered=True, lease_expired=True)
    world.hand_over("m1", redelivered=True, given_back=True)
    world.confirm("m1")
    world.acknowledged("m1")


@scenario()
def sender_crashes_between_attempts(world: World) -> None:
    """The gap across two boots is measured on the UTC clock."""
    world.submit("m1")
    world.send("m1")
    world.wait(PLAIN.timeout)
    world.node("acme").restart()
    world.send("m1", 2)
    world.arrive("m1")
    world.acknowledged("m1")


def _through_hub(world: World, message_id: str) -> None:
    """Up to the hub's own first attempt."""
    world.submit(message_id)
    world.send(message_id, to="hub")
    hub = world.node("hub")
    hub.add(
        Kind.RECEIVED,
        message_id,
        terms_id=world.terms.terms_id,
        peer="urn:party:acme",
        digest=digest(message_id),
    )
    hub.add(
        Kind.FORWARDED,
        message_id,
        terms_id=world.terms.terms_id,
        peer="urn:party:globex",
        hop=2,
        said=notes.Forwarded(time_to_live=EPOCH_START + 24 * HOUR),
    )
    world.ack(message_id, at="hub")
    world.acknowledged(message_id, by="hub", hop=True)
    world.send(message_id, at="hub")


@scenario()
def hub(world: World) -> None:
    _through_hub(world, "m1")
    world.arrive("m1")
    world.acknowledged("m1", at="hub")
    world.acknowledged("m1")


@scenario()
def hub_gives_up(world: World) -> None:
    """The hub reports the failure; its notice is a message of its own."""
    _through_hub(world, "m1")
    world.wait(PLAIN.timeout)
    world.send("m1", 2, at="hub")
    world.wait(PLAIN.retry_interval)
    world.send("m1", 3, at="hub")
    world.wait(PLAIN.retry_interval)
    world.note(Kind.EXHAUSTED, "m1", "hub", transport="http")
    world.fail("m1", "unknown", "no acknowledgement after 3 attempts", at="hub")
    world.submit("n1", to="acme", at="hub", notice=True)
    world.send("n1", to="acme", at="hub")
    world.receive("n1", at="acme", of="hub", notice=True)
    world.ack("n1", at="acme", to="hub")
    world.acknowledged("n1", by="acme", at="hub")
    world.note(Kind.REJECTED, "m1", ref_to="n1", said=notes.Rejected("DeliveryFailure", "Warning"))
    world.fail("m1", "unknown", "DeliveryFailure")


@scenario(ORDERED)
def stranded_at_a_hub(world: World) -> None:
    """The hub acknowledged it, its way on is gone, and the hub's operator was called."""
    world.submit("m0")
    world.number("m0", 0, status="Reset")
    world.send("m0", to="hub")
    world.receive("m0", at="hub")
    world.ack("m0", at="hub")
    world.acknowledged("m0", by="hub", hop=True)
    said = notes.Incident("1", "no agreement leads on")
    world.node("hub").add(Kind.INCIDENT, "m0", channel=CHANNEL, said=said)


@scenario()
def withheld(world: World) -> None:
    """The To Party's handler cannot read what it stored: no application is given it, and the
    operator was called."""
    world.submit("m1")
    world.send("m1")
    world.receive("m1")
    world.ack("m1")
    world.acknowledged("m1")
    world.note(Kind.INCIDENT, "m1", "globex", said=notes.Incident("1", "it cannot be read"))


@scenario()
def notice_that_fails(world: World) -> None:
    """A notice that cannot be delivered is an incident and causes no second notice (C33)."""
    world.submit("n1", notice=True)
    world.retry_until_exhausted("n1")
    world.note(Kind.FAILED, "n1", said=notes.Failed("unknown", "exhausted"))
    world.note(Kind.INCIDENT, "n1", said=notes.Incident("1", "a notice failed"))


@scenario(BEST_EFFORT)
def notice_sent_once(world: World) -> None:
    """A notice with best effort, as hubs sent it once under ebMS 2.0; its transport took it."""
    world.submit("n1", to="acme", at="hub", notice=True)
    world.send("n1", to="acme", at="hub")


@scenario()
def notice_that_passes(world: World) -> None:
    """A hub stores a notice that it passes on, and repeats it until somebody took it (C33)."""
    world.submit("n1", to="acme", at="globex", notice=True)
    world.send("n1", to="hub", at="globex")
    world.node("hub").add(Kind.PASSED_ON, "n1", peer="urn:party:acme", hop=2)
    world.node("hub").add(
        Kind.SENT,
        "n1",
        attempt=1,
        transport="http",
        peer="urn:party:acme",
        hop=2,
        terms_id=world.terms.terms_id,
    )
    for node in ("globex", "hub"):
        world.node(node).add(
            Kind.ACKNOWLEDGED, "n1", peer="urn:party:acme", said=notes.Acknowledged("transport")
        )


@scenario(replace(PLAIN, hop_mode=HopMode.TRANSPARENT))
def transparent_hub(world: World) -> None:
    """It takes no responsibility, so it owes neither delivery nor notice."""
    world.submit("m1")
    world.send("m1", to="hub")
    world.node("hub").add(
        Kind.FORWARDED, "m1", terms_id=world.terms.terms_id, peer="urn:party:globex", hop=2
    )
    world.send("m1", at="hub")
    world.arrive("m1")
    world.acknowledged("m1")


@scenario(replace(PLAIN, hop_mode=HopMode.TRANSPARENT))
def hub_that_passes_on(world: World) -> None:
    """It keeps nothing: the To Party's acknowledgement comes back through it (HOP-7)."""
    world.submit("m1")
    world.send("m1", to="hub")
    hub = world.node("hub")
    hub.add(Kind.PASSED_ON, "m1", peer="urn:party:globex", hop=2)
    world.receive("m1", of="hub")
    world.ack("m1", to="hub")
    hub.add(Kind.PASSED_ON, "ack-of-m1-by-globex", ref_to="m1", peer="urn:party:acme")
    # What the sender knows of it is the handler that it sent the message to.
    world.note(Kind.ACKNOWLEDGED, "m1", ref_to="ack-of-m1-by-globex", peer="urn:party:hub")
    world.hand_over("m1")
    world.confirm("m1")


@scenario(ORDERED)
def hub_in_a_stream(world: World) -> None:
    """One stream brings a hub messages for two partners and for its own application, which is
    slow: each uses up its number, by forwarding or by hand-over. The next hop has other terms."""
    hub = world.node("hub")
    world.agree(hub, PLAIN)
    for index in range(8):
        message_id, to = f"m{index}", ("globex", "hub", "initech", "globex")[index % 4]
        world.submit(message_id, to=to)
        world.number(message_id, index, status="Reset" if index < 4 else "Continue")
        world.send(message_id, to="hub")
        world.receive(message_id, at="hub", to_party=f"urn:party:{to}")
        world.ack(message_id, at="hub")
        world.acknowledged(message_id, by="hub", hop=to != "hub")
        if to == "hub":
            continue
        hub.add(
            Kind.FORWARDED,
            message_id,
            terms_id=PLAIN.terms_id,
            peer=f"urn:party:{to}",
            hop=2,
            said=notes.Forwarded(to_party=f"urn:party:{to}", onward=f"hub>{to}"),
            **world.places[f"{message_id}@hub"],
        )
        del world.places[message_id]
        world.send(message_id, to=to, at="hub")
        world.receive(message_id, at=to)
        world.ack(message_id, to="hub", at=to)
        world.hand_over(message_id, at=to)
        world.confirm(message_id, at=to)
        world.acknowledged(message_id, by=to, at="hub")
    for message_id in ("m1", "m5"):
        world.hand_over(message_id, at="hub")
        world.confirm(message_id, at="hub")


@scenario(PLAIN)
def documents(world: World) -> None:
    """Two documents of two parts each, as handlers write them; the second one goes a little ahead,
    and is named by a message of its own (`mid:`)."""
    for name in ("doc", "scan"):
        world.submit(name, split_id=name, split_total=2, document_digest=f"sha-of-{name}")
    for name in ("doc1", "doc2", "scan1", "scan2"):
        facts: dict[str, Any] = {"split_id": name[:-1], "split_number": int(name[-1])}
        world.submit(name, split_total=2, **facts)
        world.send(name)
    for name in ("doc1", "scan1", "scan2", "doc2"):
        number = int(name[-1])
        early = {"split_id": f"mid:{name}", "split_number": 1, "split_total": 2}
        told = {"split_id": "doc", "split_number": number, "split_total": 2}
        world.receive(name, **(told if name[:3] == "doc" else early))
        if name[:3] == "doc":
            world.hand_over(name, split_id="doc")
        world.ack(name)
        world.acknowledged(name)
    globex = world.node("globex")
    globex.add(Kind.JOINED, "doc", digest="sha-of-doc", size=6_000, said=notes.Joined(2))
    by_parts = notes.Acknowledged("parts", split_id="doc")
    world.node("acme").add(Kind.ACKNOWLEDGED, "doc", said=by_parts)
    world.send("scan")
    world.receive("scan", split_id="scan", split_number=3, split_total=3)
    for number in (1, 2):
        world.hand_over(f"scan{number}", split_id="scan", split_number=number)
    globex.add(Kind.JOINED, "scan", digest="sha-of-scan", size=6_000, said=notes.Joined(3))
    world.ack("scan")
    world.acknowledged("scan")
    for name in ("doc", "scan"):
        world.hand_over(name, split_id=name)
        world.confirm(name)


@scenario(ORDERED)
def split(world: World) -> None:
    for number in (1, 2, 3):
        message_id = f"part{number}"
        facts: dict[str, Any] = {"split_id": "doc", "split_number": number, "split_total": 3}
        world.submit(message_id, document_digest="sha-of-doc", **facts)
        world.number(message_id, number - 1, status="Reset")
        world.send(message_id)
    for number in (2, 3, 1):
        message_id = f"part{number}"
        world.receive(message_id, split_id="doc", split_number=number, split_total=3)
        world.ack(message_id)
        world.acknowledged(message_id)
    for number in (1, 2, 3):
        world.hand_over(f"part{number}", split_id="doc")
    globex = world.node("globex")
    globex.add(Kind.JOINED, "doc", digest="sha-of-doc", size=6_000, said=notes.Joined(3))
    world.hand_over("doc", split_id="doc")
    world.confirm("doc")


@scenario(replace(PLAIN, ack_requested=AckRequest.SIGNED))
def signed(world: World) -> None:
    world.submit("m1")
    world.send("m1")
    world.arrive("m1", signature_required=True, signature="verified")
    world.acknowledged("m1", signed=True)


@scenario(replace(PLAIN, ack_requested=AckRequest.SIGNED))
def settled_by_status(world: World) -> None:
    """An unknown message is found at the receiver by asking for its status."""
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.fail("m1", "unknown", "no acknowledgement after 3 attempts")
    world.arrive("m1")
    world.note(
        Kind.ACKNOWLEDGED,
        "m1",
        ref_to="status-1",
        peer="urn:party:globex",
        said=notes.Acknowledged(by="status", late=True),
    )


@scenario()
def one_id_of_two_parties(world: World) -> None:
    """The duplicate key is (From Party, MessageId): both messages are delivered (DRV-6)."""
    world.deliver("m1")
    world.submit("m1", at="initech")
    initech = world.node("initech")
    initech.rows[-1] = initech.rows[-1]._replace(digest="sha-of-the-other")
    world.send("m1", at="initech")
    globex = world.node("globex")
    globex.add(
        Kind.RECEIVED,
        "m1",
        terms_id=world.terms.terms_id,
        peer="urn:party:initech",
        digest="sha-of-the-other",
    )
    world.ack("m1", to="initech")
    globex.add(Kind.HANDED_OVER, "m1", digest="sha-of-the-other")
    world.confirm("m1")
    world.acknowledged("m1", at="initech")

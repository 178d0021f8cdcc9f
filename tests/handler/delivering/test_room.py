"""A taker is given what it can carry: nothing is leased that does not reach it."""

from __future__ import annotations

from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.journal.check import check_journal
from oncewire.journal.predicates.context import Violation
from oncewire.message.instant import SECOND
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import IncomingState
from tests.handler.network import Network


class SmallRoom:
    """Room for so many bytes and so many messages."""

    def __init__(self, left: int, messages: int = 100) -> None:
        self.left, self.messages = left, messages
        self.refused: list[str] = []

    def admit(self, taken: GivenMessage) -> bool:
        size = sum(payload.size for payload in taken.payloads)
        if size > self.left or not self.messages:
            self.refused.append(taken.message_id)
            return False
        self.left, self.messages = self.left - size, self.messages - 1
        return True


def taken(pair: Network, room: SmallRoom, *, confirm: bool = True) -> list[str]:
    given = pair.beta.hand_over(10, 60 * SECOND, room)
    pair.settle("beta")
    if confirm:
        for message in given:
            pair.beta.confirm(message.sender, message.message_id)
        pair.settle("beta")
    return [message.message_id for message in given]


def states(pair: Network, number: int) -> IncomingState:
    with pair.beta.context.store.transition() as tx:
        (stored,) = tx.incoming_by_id(f"order-{number}@alpha")
    return stored.incoming.state


def incidents(pair: Network) -> list[str]:
    return [incident.reason for incident in pair.incidents("beta")]


def without_incident(pair: Network) -> tuple[Violation, ...]:
    """What the journals would show if nobody had been told."""
    rows = []
    for engine in pair.engines.values():
        with engine.context.store.reader() as reader:
            rows += [row for row in reader.journal_since(0, 1000) if row.kind != Kind.INCIDENT]
    return check_journal(rows, healed=True).violations


def test_what_does_not_fit_is_not_leased_and_comes_with_the_next() -> None:
    pair = Network.pair()
    for number in range(1, 5):
        pair.send(number, bytes(400))
    assert taken(pair, SmallRoom(1000)) == ["order-1@alpha", "order-2@alpha"]
    assert states(pair, 3) is IncomingState.READY
    assert taken(pair, SmallRoom(1000)) == ["order-3@alpha", "order-4@alpha"]
    assert incidents(pair) == []
    assert pair.verify().violations == ()


def test_what_is_known_only_when_it_is_read_counts_as_well() -> None:
    pair = Network.pair()
    pair.send_all(range(1, 4))
    room = SmallRoom(1000, messages=2)
    assert taken(pair, room) == ["order-1@alpha", "order-2@alpha"]
    assert room.refused == ["order-3@alpha"]
    assert states(pair, 3) is IncomingState.READY


def test_of_what_does_not_fit_no_byte_is_read() -> None:
    pair = Network.pair()
    pair.send(1, bytes(400))
    pair.send(2, bytes(700))
    room = SmallRoom(1000)
    assert taken(pair, room) == ["order-1@alpha"]
    assert room.refused == []


def test_what_never_fits_waits_with_an_incident_and_delays_nobody_else() -> None:
    pair = Network.pair()
    pair.send(1, bytes(2000))
    for number in range(2, 5):
        pair.send(number, bytes(400))
    assert taken(pair, SmallRoom(1000)) == ["order-2@alpha", "order-3@alpha"]
    assert states(pair, 1) is IncomingState.READY
    assert taken(pair, SmallRoom(1000)) == ["order-4@alpha"]
    (reason,) = incidents(pair)
    assert "2,000 bytes, more than can be taken at once" in reason
    assert "application.way" in reason
    # Whoever can carry it gets it, and the incident ends.
    assert taken(pair, SmallRoom(5000)) == ["order-1@alpha"]
    assert incidents(pair) == []


def test_what_never_fits_holds_up_its_ordered_channel_alone() -> None:
    pair = Network.pair("window")
    pair.send(1, bytes(2000))
    pair.send(2, bytes(400))
    assert taken(pair, SmallRoom(1000)) == []
    assert len(incidents(pair)) == 1
    # The second waits for its turn, and a person was told why it does not come (S4).
    assert pair.verify().violations == ()
    assert [found.message_id for found in without_incident(pair)] == [
        "order-1@alpha",
        "order-2@alpha",
    ]
    assert taken(pair, SmallRoom(5000)) == ["order-1@alpha", "order-2@alpha"]
    assert pair.verify().violations == ()

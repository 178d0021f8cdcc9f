"""A turn of 64: one commit on each side, and at most ten statements a message for both together."""

from __future__ import annotations

import apsw
import pytest

from oncewire.errors import StoreProblem
from oncewire.handler.actions import Post, PostAnswer, Settled, Source, Submission
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import SECOND
from oncewire.store.contract import Store
from oncewire.store.sqlite.store import SqliteStore
from tests.handler.network import Network, Stores

IN_FLIGHT = 64


class Statements:
    """What one store ran, as SQLite itself tells it: one that runs twice counts twice."""

    def __init__(self, store: Store) -> None:
        self.ran: list[str] = []
        assert isinstance(store, SqliteStore)
        assert store._connection is not None
        store._connection.trace_v2(
            apsw.SQLITE_TRACE_STMT, lambda event: self.ran.append(event["sql"])
        )

    @property
    def reading(self) -> list[str]:
        return [one for one in self.ran if one.startswith("SELECT")]


def _exchange(alpha: Engine, beta: Engine) -> int:
    """So many messages in the fewest turns there can be; returns how many turns."""
    for number in range(IN_FLIGHT):
        document = Payload.of(f"order-{number}", "text/plain", b"x" * 2_000)
        service = Service("urn:test:orders")
        alpha.submit(Submission("alpha-beta", service, "New", (document,), conversation_id="talk"))
    posts = [action for action in alpha.commit() if isinstance(action, Post)]
    assert len(posts) == IN_FLIGHT
    source = Source("http", can_answer=True)
    answers = [beta.receive(whole_parcel(alpha.context, post.parcel), source) for post in posts]
    isolated_step = [action for action in beta.commit() if isinstance(action, PostAnswer)]
    for post, answer in zip(posts, answers, strict=True):
        reply = None if answer.parcel is None else whole_parcel(alpha.context, answer.parcel)
        alpha.transmission_over(Transmission(post.message_id, post.attempt, sent=True), reply)
    for left in isolated_step:
        alpha.receive(whole_parcel(beta.context, left.parcel), source)
        beta.answer_left(left, sent=True)
    settled = [action for action in alpha.commit() if isinstance(action, Settled)]
    assert len(settled) == IN_FLIGHT
    given = beta.hand_over(IN_FLIGHT, 60 * SECOND)
    beta.commit()
    for taken in given:
        assert beta.confirm(taken.sender, taken.message_id)
    beta.commit()
    return 5


@pytest.mark.long
@pytest.mark.parametrize("profile", ["ebms2", "window"])
@pytest.mark.parametrize("sync", ["", '[sync]\nmode = "mshSignalsOnly"\n'], ids=["apart", "reply"])
def test_at_most_ten_statements_a_message_and_one_commit_a_turn(
    on_disk: Stores, profile: str, sync: str
) -> None:
    window = f"[flow]\nwindow = {IN_FLIGHT}\n" if profile == "window" else ""
    pair = Network.pair(profile, window + sync, store=on_disk)
    if profile == "window":
        # The first message of an epoch travels alone.
        pair.send(1)
    each = [Statements(engine.context.store) for engine in pair.engines.values()]
    turns = _exchange(pair.alpha, pair.beta)
    assert sum(one.ran.count("COMMIT") for one in each) == turns
    ran = sum(len(one.ran) for one in each)
    print(ran / IN_FLIGHT)
    assert ran <= 10 * IN_FLIGHT
    pair.close()


def test_one_of_64_arrivals_that_cannot_be_kept_is_undone_alone(on_disk: Stores) -> None:
    pair = Network.pair(store=on_disk)
    for number in range(IN_FLIGHT):
        document = Payload.of(f"order-{number}", "text/plain", b"x")
        pair.alpha.submit(Submission("alpha-beta", Service("urn:test:orders"), "New", (document,)))
    posts = [action for action in pair.alpha.commit() if isinstance(action, Post)]
    good = Source("http", can_answer=True)
    # No column of the journal takes such a name of a transport.
    poisoned = Source(7, can_answer=True)  # type: ignore[arg-type]
    sent = [whole_parcel(pair.alpha.context, post.parcel) for post in posts]
    for number, parcel in enumerate(sent):
        if number == 17:
            with pytest.raises(StoreProblem, match="cannot be kept"):
                pair.beta.receive(parcel, poisoned)
        else:
            pair.beta.receive(parcel, good)
    pair.beta.commit()
    given = pair.beta.hand_over(2 * IN_FLIGHT, 60 * SECOND)
    names = [post.message_id for post in posts]
    assert [taken.message_id for taken in given] == names[:17] + names[18:]
    # Nothing of it is left: its next copy is the first one.
    pair.beta.receive(sent[17], good)
    pair.beta.commit()
    (late,) = pair.beta.hand_over(IN_FLIGHT, 60 * SECOND)
    assert late.message_id == names[17]
    pair.close()

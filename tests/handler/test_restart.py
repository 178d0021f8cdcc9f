"""A restart reads no bodies: it is as quick and as small with a full store as with an empty one."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from oncewire.message.envelope import Payload
from oncewire.store.sqlite.store import SqliteStore
from tests.handler.network import Network

BODY = 900_000
"""As large as a body can be that lives in its row."""


def waiting(folder: Path, count: int, extra: str = "") -> Network:
    """So many large orders wait for an application that does not come."""
    pair = Network.pair(
        "ebms2", extra, store=lambda name: SqliteStore(folder / f"{name}.db", node=name)
    )
    for number in range(count):
        pair.send(
            payloads=(Payload.of("order", "text/plain", b"x" * BODY),),
            message_id=f"order-{number}@alpha",
        )
    return pair


# The acknowledgement may wait for a response, or has left: either way a start looks at each.
WAYS = {"acknowledged": "", "rides": '[ack]\nbundling = "piggyback"\nwait = "PT1H"\n'}


def restart(pair: Network) -> tuple[int, float]:
    """The most memory that the restart of beta took, and its seconds."""
    tracemalloc.start()
    try:
        began = time.monotonic()
        pair.crash("beta")
        return tracemalloc.get_traced_memory()[1], time.monotonic() - began
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_restart_loads_no_body(tmp_path: Path, way: str) -> None:
    pair = waiting(tmp_path, 12, WAYS[way])
    memory, _ = restart(pair)
    assert memory < 3 * BODY
    assert len(pair.take()) == 12
    pair.close()


def owe_answers(pair: Network, count: int) -> None:
    """Have beta owe so many answers."""
    pair.send_all(range(count))
    with pair.beta.context.store.transition() as tx:
        for number in range(count):
            answer = tx.answer("urn:test:alpha", f"order-{number}@alpha")
            assert answer is not None
            tx.save_answer(
                "urn:test:alpha", f"order-{number}@alpha",
                type(answer)(answer.answer_id, answer.kind, answer.parcel, owed=True),
            )  # fmt: skip
    pair.settle("beta")
    pair.answers.clear()


def test_answers_that_are_owed_are_posted_a_number_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = waiting(tmp_path, 0)
    pair.lose_answer = lambda attempt: True
    monkeypatch.setattr("oncewire.handler.receiving.receive.REPOSTED", 2)
    owe_answers(pair, 5)
    pair.crash("beta")
    first = len(pair.answers)
    assert pair.beta.next_wake() == pair.beta.context.now(), "the rest is due at once"
    for _ in range(4):
        pair.beta.tick()
        pair.settle("beta")
    assert (first, len(pair.answers)) == (2, 5)
    pair.close()


@pytest.mark.soak
def test_seven_hundred_waiting_bodies(tmp_path: Path) -> None:
    pair = waiting(tmp_path, 700)
    memory, seconds = restart(pair)
    assert memory < 10 * BODY
    assert seconds < 5
    pair.close()

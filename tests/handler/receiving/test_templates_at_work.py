"""Handlers read and sign by templates, and nothing else about them changes by it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.handler.actions import Source
from oncewire.lab.simulation.draw import draw
from oncewire.lab.simulation.world import World
from oncewire.message.form import Dialect
from oncewire.wire import codec
from tests.handler.network import Network
from tests.wire import samples

PROFILES = ("ebms2", "ms-0.9x", "ms-0.9x-typed", "rm-0.78", "window")
COUNT = 12
SEEDS = range(40, 46)
SYNC = '[sync]\nmode = "mshSignalsOnly"\n'


@pytest.mark.parametrize("profile", PROFILES)
def test_messages_and_acknowledgments_are_read_by_templates(profile: str) -> None:
    pair = Network.pair(profile)
    sent = [pair.send(number).message_id for number in range(1, COUNT + 1)]
    assert pair.take() == sent
    # The first of a stream resets its numbers and is of a kind of its own.
    for engine in (pair.alpha, pair.beta):
        assert engine.context.caches.templates.envelopes.hits >= COUNT - 4, profile
    assert pair.verify().clean


def test_replies_on_the_same_connection_are_read_by_templates() -> None:
    pair = Network.pair("ebms2", SYNC)
    pair.send_all(range(1, COUNT + 1))
    assert pair.alpha.context.caches.templates.envelopes.hits >= COUNT - 4


def test_a_stranger_teaches_nothing() -> None:
    pair = Network.pair()
    pair.send()
    learned = len(pair.beta.context.caches.templates.envelopes)
    strange = samples.order_message(Dialect.EBMS2)
    for number in range(COUNT):
        said = replace(strange.header, message_id=f"x-{number}", action=f"Action{number}")
        parcel = codec.write(replace(strange, header=said), samples.form(Dialect.EBMS2))
        assert pair.beta.receive(parcel, Source("http", can_answer=True)).refused
    assert len(pair.beta.context.caches.templates.envelopes) == learned


@pytest.mark.long
def test_wild_worlds_come_to_the_same_without_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    helped = [_history(seed) for seed in SEEDS]
    assert sum(hits for hits, _ in helped) > len(SEEDS)
    monkeypatch.setenv("ONCEWIRE_TEMPLATES", "off")
    assert [_history(seed) for seed in SEEDS] == [(0, history) for _, history in helped]


def _history(seed: int) -> tuple[int, list[tuple[object, ...]]]:
    """How often templates helped in a world, every row of its journals, and what was broken."""
    world = World(draw(seed))
    result = world.run()
    hits = sum(machine.engine.context.caches.templates.envelopes.hits for machine in world.machines)
    rows = [tuple(row) for machine in world.machines for row in machine.rows()]
    return hits, [(result.violations, result.delivered, result.notified), *rows]

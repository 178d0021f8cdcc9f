"""One unreadable stored message is named and set aside; every other message goes on."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from oncewire.errors import OncewireError
from tests.handler.damage import (
    FRESH,
    LAST,
    ORDERS,
    Damage,
    Scene,
    corpus,
    damaged_scene,
    document,
    make_base,
)

PROFILES = ("window", "ebms2")
SAMPLE = 23
"""Every so manieth case is in the default run."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One exchange for each profile, ordered and not, that every case gets a copy of."""
    found = {}
    for profile in PROFILES:
        found[profile] = tmp_path_factory.mktemp(profile)
        make_base(found[profile], profile)
    return found


def endure(scene: Scene, damage: Damage, profile: str) -> None:
    """Everybody goes on with the work; the operator does what the incidents say."""
    orders = {f"order-{number}@alpha": document(number) for number in range(1, 2 * ORDERS + 1)}
    orders |= {f"order-{number}@alpha": document(number) for number in (FRESH, LAST)}
    scene.look(damage.side)
    scene.take()
    first = {message_id for message_id, _ in scene.given}
    named = {message_id for message_id, _, _ in scene.incidents(damage.side)}
    if damage.side == "beta" and damage.table in ("incoming", "incoming_bytes", "spool", "message"):
        missing = {f"order-{number}@alpha" for number in range(1, ORDERS + 1)} - first
        assert not missing or named or damage.vanishes, "what is not given has an incident"
        if profile == "ebms2":
            assert len(missing) <= 1, "without an order the others go on"
    given_up: set[str] = set()
    scene.away = False
    try:
        scene.send(FRESH)
    except OncewireError:
        # The stream itself is damaged: that is said, and nothing was taken.
        assert damage.table == "sending_channel"
        orders.pop(f"order-{FRESH}@alpha")
    for _ in range(3):
        scene.pass_minutes(4)
        scene.take()
        for side in ("alpha", "beta"):
            given_up |= scene.operate(side)
            scene.look(side)
    # What an abandoned number held up goes on with the next epoch.
    scene.send(LAST)
    scene.pass_minutes(2)
    scene.take()
    judge(scene, damage, orders, given_up)


def judge(scene: Scene, damage: Damage, orders: dict[str, bytes], given_up: set[str]) -> None:
    """Nothing changed, nothing twice, nobody forgotten."""
    for message_id, data in scene.given:
        assert data == orders[message_id], "only what was sent is given"
    ids = [message_id for message_id, _ in scene.given]
    assert len(ids) == len(set(ids)), "nothing is given twice"
    forgotten = set(orders) - set(ids) - given_up
    if damage.lies or damage.table == "message":
        # The victim may pass for another one, and its successors wait for it.
        return
    if damage.vanishes and forgotten:
        # Nobody here knows of it any more but the journal.
        assert damage.table.endswith("_channel") or not scene.pair.verify().clean
        return
    assert not forgotten, "whoever is not given was given up by an operator"
    assert len(given_up) <= 1 or damage.table in ("terms", "agreement"), given_up
    in_order = sorted(ids, key=lambda one: int(one[6 : one.index("@")]))
    if scene.profile == "window" and damage.table not in ("terms", "agreement"):
        assert ids == in_order, "order is kept"


def run(bases: dict[str, Path], tmp_path: Path, profile: str, cases: list[Damage]) -> int:
    done = 0
    for number, damage in enumerate(cases):
        scene = damaged_scene(bases[profile], tmp_path / str(number), profile, damage)
        if scene is None:
            continue
        try:
            endure(scene, damage, profile)
        except BaseException as problem:
            problem.add_note(f"damage: {damage}, profile {profile}")
            raise
        finally:
            scene.close()
        done += 1
    return done


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
def test_a_damaged_message_harms_nobody_else(
    bases: dict[str, Path], tmp_path: Path, profile: str
) -> None:
    cases = list(corpus(bases[profile]))
    assert len(cases) > 300
    start = PROFILES.index(profile)
    assert run(bases, tmp_path, profile, list(islice(cases, start, None, SAMPLE))) > 15


@pytest.mark.soak
@pytest.mark.parametrize("profile", PROFILES)
def test_every_damage_to_every_value_harms_nobody_else(
    bases: dict[str, Path], tmp_path: Path, profile: str
) -> None:
    assert run(bases, tmp_path, profile, list(corpus(bases[profile]))) > 250

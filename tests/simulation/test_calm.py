"""Worlds without faults: every message arrives and nobody is told of a failure, everywhere.

A handler that fails each message and says so breaks no other promise. So every dialect runs with
every flow through every kind of hub on a perfect network, and L3 is judged beside all the rest.
"""

from __future__ import annotations

import itertools

import pytest

from oncewire.errors import AgreementProblem
from oncewire.journal.check import check_journal
from oncewire.lab.simulation.plan import Options, plan_of
from oncewire.lab.simulation.world import World
from tests.simulation.given import world_of

CALM = {
    "loss": 0.0,
    "duplicate": 0.0,
    "reorder": 0.0,
    "corrupt": 0.0,
    "crash": 0.0,
    "partition": 0.0,
    "disk_full": 0.0,
}
MESSAGES = 6
IN_ORDER = "[sequence]\nnumbered = true\nordered = true\n"

DIALECTS = {
    "ms-0.9x": ("ms-0.9x", ""),
    "ms-0.9x, in order": ("window", ""),
    "ms-0.9x, typed": ("ms-0.9x-typed", ""),
    "rm-0.78": ("rm-0.78", ""),
    "ebms2": ("ebms2", ""),
    "ebms2, in order": ("ebms2", IN_ORDER),
}
FLOWS = ("window", "unrestricted", "stop-and-wait")
MODES = {
    "by_request": ("by_request", ""),
    "by_request, and asked": ("by_request", '[ack]\nhop_request = "Unsigned"\n'),
    "transparent": ("transparent", ""),
    "store_and_forward": ("store_and_forward", ""),
    "transient_until_forwarded": (
        "transient_until_forwarded",
        '[wire]\nextensions = ["transient_error"]\n',
    ),
}


def is_agreed(dialect: str, flow: str) -> bool:
    """v0-078 rejects gaps and restarts in silence: one message at a time is all it can do."""
    return dialect != "rm-0.78" or flow == "stop-and-wait"


def options(dialect: str, flow: str, hops: int, mode: str) -> Options:
    profile, order = DIALECTS[dialect]
    hop_mode, extra = MODES[mode]
    return Options(
        messages=MESSAGES,
        hops=hops,
        profile=profile,
        flow=flow,
        hop_mode=hop_mode,
        retries=3,
        abandon=1.0,
        agreement=order + extra,
        **CALM,  # type: ignore[arg-type]
    )


def run(world: Options) -> World:
    """All goes well, for everybody and for each node by itself."""
    simulation = world_of(world, seed=1)
    result = simulation.run()
    assert simulation.plan.setting.calm
    assert not result.violations, (result.plan.command, result.violations[:3])
    assert (result.delivered, result.notified) == (MESSAGES, 0)
    for machine in simulation.machines:
        alone = check_journal(machine.rows(), healed=True, calm=False)
        assert alone.clean, (result.plan.command, machine.name, alone.violations[:3])
    return simulation


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_handlers(dialect: str, flow: str) -> None:
    world = options(dialect, flow, 1, "store_and_forward")
    if is_agreed(dialect, flow):
        run(world)
        return
    with pytest.raises(AgreementProblem, match="several messages may be under way at once"):
        world_of(world, seed=1)


AGREED = [pair for pair in itertools.product(DIALECTS, FLOWS) if is_agreed(*pair)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dialect", "flow"), AGREED)
def test_a_hub(dialect: str, flow: str, mode: str) -> None:
    run(options(dialect, flow, 2, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_hubs(dialect: str, mode: str) -> None:
    run(options(dialect, "stop-and-wait", 3, mode))


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dialect", "flow"), AGREED)
def test_three_hubs(dialect: str, flow: str, mode: str) -> None:
    run(options(dialect, flow, 4, mode))


def test_a_world_with_a_fault_is_not_calm() -> None:
    assert not Options(loss=0.5).calm
    assert not plan_of(Options(**CALM | {"crash": 0.1}), 1).setting.calm  # type: ignore[arg-type]
    assert plan_of(Options(**CALM), 1).setting.calm  # type: ignore[arg-type]


def test_the_numbers_of_a_stream_are_used_up_by_forwarding() -> None:
    simulation = run(options("ms-0.9x, in order", "window", 2, "store_and_forward"))
    rows = [row for row in simulation.machine("hub1").rows() if row.kind == "forwarded"]
    assert [row.sequence_number for row in rows] == list(range(MESSAGES))
    assert {row.channel for row in rows} == {"urn:sim:buyer>urn:sim:hub1"}
    assert {row.epoch for row in rows} == {1}

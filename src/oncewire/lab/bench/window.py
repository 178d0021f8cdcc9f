"""Window: an ordered channel over a network that takes its time, against stop-and-wait.

Stop-and-wait is bounded by the way there and back, whatever the machine can do; a window by the
machine. Both go through the same delaying network between real processes, in order. The limit is
what the window could reach if the way were all that it waits for: a window of messages in each
round trip.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from oncewire.lab.bench.child import Child
from oncewire.lab.bench.exchange import open_pair, rate_of
from oncewire.lab.bench.figures import Configuration, Figure, Outcome, Plan
from oncewire.lab.bench.parties import RECEIVER, SENDER

DELAY = "oncewire.lab.bench.delay"
AIM = 40.0


def measure(configuration: Configuration, plan: Plan, round_trip: float) -> Figure:
    """One flow over the network; half of the round trip is in each direction."""
    plan.tell(f"{round_trip * 1e3:.0f} ms, {configuration.words()}")
    with (
        tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name,
        Child(DELAY, round_trip / 2) as network,
    ):
        doors = dict(zip((SENDER, RECEIVER), network.first["doors"], strict=True))
        with open_pair(Path(name), configuration, public=doors) as pair:
            for side, door in doors.items():
                network.ask("lead", door=door, port=pair.ports[side])
            pair.push(plan.warming)
            rates = [rate_of(pair.push(plan.seconds)) for _ in range(plan.repeats)]
    # Over a way that takes no time, nothing but the machine is a limit.
    limit = configuration.window / round_trip if round_trip else 0.0
    what = f"{round_trip * 1e3:.0f} ms, {configuration.words()}"
    return Figure(what, tuple(rates), (limit,) * len(rates))


def run(configuration: Configuration, plan: Plan, round_trip: float = 0.020) -> Outcome:
    """The window, and stop-and-wait, in one run."""
    wide = replace(configuration, ordered=True, window=configuration.in_flight)
    narrow = replace(wide, window=1)
    window, waiting = (measure(each, plan, round_trip) for each in (wide, narrow))
    default = None
    if plan.default:
        default = measure(replace(wide, signed=True, tls=True), plan, round_trip)
    times = window.rate / waiting.rate
    finding = f"window({wide.window}) is {times:.1f} times stop-and-wait (aim >= {AIM:.0f})"
    more = {"times_stop_and_wait": round(times, 2)}
    first = replace(window, more=more)
    return Outcome(
        "window",
        "messages",
        "a window of messages in each round trip",
        (first, waiting),
        default,
        findings=(finding,),
    )

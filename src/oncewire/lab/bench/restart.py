"""Restart: how soon a handler sends again that ended with many messages outstanding.

Its partner waits for the first document. The limit is the same start with a single message: what
Python, the files and the connection take before anything can be sent.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import load_readable
from oncewire.entry.party.settings import load
from oncewire.entry.running.assemble import make_engine
from oncewire.errors import TransportProblem
from oncewire.lab.bench.child import Child
from oncewire.lab.bench.exchange import RECEIVER, SENDER, SIDE, make_pair
from oncewire.lab.bench.figures import Configuration, Figure, Outcome, Plan
from oncewire.message.envelope import Payload

GROUP = 512
PATIENCE = 300.0
AIM_SECONDS = 5.0


def fill(folder: Path, messages: int, size: int) -> None:
    """Submit so many messages to a party whose handler does not run."""
    settings = load(folder, environ={}).settings
    agreement = find_agreement(load_readable(settings), RECEIVER)
    payload = Payload.of("order@bench", "application/xml", b"x" * size)
    submission = submission_of(agreement, [payload], SendOptions(conversation_id="bench"))
    engine = make_engine(settings)
    try:
        for number in range(1, messages + 1):
            engine.submit(submission)
            if number % GROUP == 0:
                engine.commit()
        engine.commit()
    finally:
        engine.context.store.close()


def start(configuration: Configuration, messages: int, seconds: float) -> dict[str, float]:
    """Start a handler with so many outstanding; when the first is there, and what follows."""
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
        folder = Path(name)
        make_pair(folder, configuration)
        fill(folder / SENDER, messages, configuration.size)
        with Child(SIDE, folder / RECEIVER) as receiver:
            receiver.ask("take")
            began = time.monotonic()
            with Child(SIDE, folder / SENDER) as sender:
                ready = time.monotonic() - began
                first = _first(receiver, began) - began
                before = receiver.ask("spent")["taken"]
                time.sleep(seconds)
                taken = receiver.ask("spent")["taken"] - before
                peak = sender.ask("spent")["peak_mb"]
    return {"ready": ready, "first": first, "rate": taken / seconds, "peak_mb": peak}


def _first(receiver: Child, began: float) -> float:
    while time.monotonic() - began < PATIENCE:
        found = receiver.ask("spent")["first_at"]
        if found is not None:
            return float(found)
        time.sleep(0.02)
    raise TransportProblem(f"nothing was sent within {PATIENCE:.0f} seconds of a restart")


def measure(configuration: Configuration, plan: Plan) -> Figure:
    """Starts in a second, with many outstanding and with one."""
    full, single = [], []
    for number in range(plan.repeats):
        plan.tell(f"start {number + 1} of {plan.repeats}, with {plan.messages} outstanding")
        single.append(start(configuration, 1, 0.1))
        full.append(start(configuration, plan.messages, plan.seconds))
    more = {
        "seconds_until_ready": round(max(each["ready"] for each in full), 2),
        "seconds_until_first": round(max(each["first"] for each in full), 2),
        "then_messages_per_second": round(min(each["rate"] for each in full), 1),
        "sender_peak_mb": max(each["peak_mb"] for each in full),
    }
    return Figure(
        f"{plan.messages:,} outstanding, {configuration.words()}",
        tuple(1 / each["first"] for each in full),
        tuple(1 / each["first"] for each in single),
        more,
    )


def run(configuration: Configuration, plan: Plan) -> Outcome:
    """One restart, of which a single one takes long enough."""
    once = replace(plan, repeats=1)
    figure = measure(configuration, once)
    default = measure(configuration.default, once) if plan.default else None
    took = figure.more["seconds_until_first"]
    finding = f"sending again {took} s after its start (aim <= {AIM_SECONDS:.0f} s)"
    return Outcome(
        "restart", "starts", "the same start with one message outstanding", (figure,), default,
        findings=(finding,), messages=figure.more["then_messages_per_second"],
    )  # fmt: skip

"""How many protocol transitions one core makes in a second: `python -m bench.protocol [--json]`.

A transition is one call of a protocol function that hands back new state. Sending counts four per
message (submission with its timestamp, entry into the window, first attempt, acknowledgement) on a
channel with a window of 8; receiving counts one (the judgement of an arrival), with every fourth
pair of messages swapped on the way so that the window holds something. Nothing is stored or sent.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections import deque
from collections.abc import Callable

from oncewire.message.envelope import SequenceNumber, SequenceStatus
from oncewire.protocol import sender
from oncewire.protocol.receiver import Arrival, First, judge
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Outgoing
from oncewire.protocol.terms import FlowMode, Terms

GOAL = 20_000
MESSAGES = 20_000
ROUNDS = 3
TERMS = Terms(numbered=True, ordered=True, flow=FlowMode.WINDOW, window=8)


def send(count: int) -> int:
    """Submit, enter, attempt and acknowledge that many messages; returns the transitions."""
    channel = SendingChannel.open("a>b", TERMS)
    under_way: deque[Outgoing] = deque()
    now = 1_000_000_000
    for index in range(count):
        while channel.places(TERMS) < 1:
            channel = _acknowledge(under_way.popleft(), channel)
        now += 10
        channel, _stamp = channel.stamp(now)
        waiting = Outgoing(f"m{index}", "terms", now, "a>b")
        entered = sender.enter_window(waiting, channel, TERMS, now)
        step = sender.attempt_due(entered.outgoing, entered.channel, TERMS, now)
        under_way.append(step.outgoing)
        channel = _channel_of(step)
    while under_way:
        channel = _acknowledge(under_way.popleft(), channel)
    if channel.unsettled(TERMS):
        raise SystemExit("the bench left numbers unsettled: its figure means nothing")
    return 4 * count


def _acknowledge(outgoing: Outgoing, channel: SendingChannel) -> SendingChannel:
    return _channel_of(sender.ack_arrived(outgoing, channel, TERMS, ack_id="a"))


def _channel_of(step: sender.SenderStep) -> SendingChannel:
    if step.channel is None:
        raise SystemExit("the step lost its channel")
    return step.channel


def receive(count: int) -> int:
    """Judge that many arrivals of one stream; returns the transitions."""
    channel: ReceivingChannel | None = ReceivingChannel.open("a>b", TERMS)
    handed = 0
    for arrival in arrivals(count):
        judged = judge(arrival, None, channel, TERMS, 0)
        if not isinstance(judged, First):
            raise SystemExit(f"the bench sent something odd: {judged}")
        channel = judged.channel
        handed += len(judged.deliver)
    if handed != count:
        raise SystemExit(f"{handed} of {count} were handed over: the figure means nothing")
    return count


@functools.cache
def arrivals(count: int) -> tuple[Arrival, ...]:
    """A stream as its receiver sees it, made before the clock is started."""
    marks = (SequenceStatus.RESET, SequenceStatus.CONTINUE)
    stream = [
        Arrival(f"m{n}", "digest", n, SequenceNumber(n, marks[n >= TERMS.window_size]))
        for n in range(count)
    ]
    for place in range(4, count - 1, 8):
        stream[place], stream[place + 1] = stream[place + 1], stream[place]
    return tuple(stream)


def measure(work: Callable[[int], int]) -> float:
    """Transitions per second, the best of a few rounds: the others only waited longer."""
    best = 0.0
    arrivals(MESSAGES)
    for _ in range(ROUNDS):
        begun = time.process_time()
        transitions = work(MESSAGES)
        best = max(best, transitions / (time.process_time() - begun))
    return best


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; 1 when they miss the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args(arguments)
    figures = {"sending": round(measure(send)), "receiving": round(measure(receive))}
    if options.json:
        print(json.dumps({"unit": "transitions/s", "goal": GOAL, **figures}))
    else:
        for name, figure in figures.items():
            print(f"{name:10} {figure:>10,} transitions/s on one core (goal {GOAL:,})")
    return 0 if min(figures.values()) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())

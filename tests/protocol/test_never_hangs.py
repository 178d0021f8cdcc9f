"""Ordered channels never hang, and what they deliver is in order and delivered once.

After any trouble, once the network has healed and an operator has resolved every incident by
resuming or abandoning (see `world.py` for what the trouble is):

* every number the sender gave is settled, and every message has a final outcome;
* whoever was not told `delivered` was told of the failure;
* an acknowledged message was handed over exactly once, and no message twice;
* hand-overs follow the order of submission, over all epochs: timestamps rise along the stream,
  and the receiver takes no message that is older than what it has passed;
* within an epoch of the receiver, hand-overs and journaled skips leave no gap;
* a message whose number is not settled is never refused because of its number, unless the
  receiver stopped waiting for it or somebody on the way claimed that it was refused;
* where nothing justifies a loss (no lifetimes, refusals, abandons), every message is delivered.

Not promised: that a message called `unknown` was not handed over, and that a message refused on
one copy was not taken from another (a signature that verifies only sometimes).
"""

import os
import random

import pytest

from tests.protocol.world import World

WORLDS = 3_000
SOAK_WORLDS = 200_000


def _first_seed() -> int:
    """Another stretch of worlds on each run; ONCEWIRE_SEED replays one from its first world."""
    named = os.environ.get("ONCEWIRE_SEED")
    if named is not None:
        return int(named)
    return 0 if os.environ.get("CI") == "true" else random.SystemRandom().randrange(10**9)


def _run(count: int) -> None:
    first = _first_seed()
    print(f"worlds {first}..{first + count - 1}; replay one with ONCEWIRE_SEED")
    handed = restarts = 0
    for seed in range(first, first + count):
        world = World(seed).run()
        handed += len(world.seen.order)
        restarts += world.sending.epoch
    # A world in which nothing happens proves nothing.
    assert handed > 3 * count
    assert restarts > count


@pytest.mark.long
@pytest.mark.requirement("SW-10", "SEQ-14", "DUP-10", "RM-2", "OPS-1")
def test_ordered_channels_never_hang() -> None:
    _run(WORLDS)


@pytest.mark.soak
def test_ordered_channels_never_hang_for_long() -> None:
    _run(SOAK_WORLDS)

"""Wake: when a node's timers have something to do next."""

from __future__ import annotations

from oncewire.handler.node import Node
from oncewire.message.instant import SECOND, Instant


def next_wake(node: Node, now: Instant) -> Instant:
    """When the earliest of them has; `now` where there is something already."""
    wake = node.store.next_wake()
    looks = min(node.gaps_due_at, node.sweep_due_at, node.clean_due_at)
    looks = min([looks, *filter(None, node.troubled.values())])
    if node.acks_waiting:
        looks = min(looks, node.acks_waiting[0][0])
    if node.refusals.due_at is not None:
        looks = min(looks, node.refusals.due_at)
    first = looks if wake is None else min(wake, looks)
    if node.timeline.restless or node.repost_after is not None:
        return now
    if first <= now and (node.in_doubt or node.stuck):
        # What is due and may not be served now must not keep the handler busy.
        return max(first, node.ticked_at + SECOND)
    return first

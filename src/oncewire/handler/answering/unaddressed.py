"""Unaddressed: answers that nobody gets, because the agreement has no address for them.

The partner goes on asking until it gives up, and nothing here shows why: what it sent is stored
and delivered. So the operator is called, once for each partner, however many answers there are.
"""

from __future__ import annotations

import logging

from oncewire.handler.node import Node
from oncewire.handler.perform import HANDLER, open_incident
from oncewire.protocol.effects import Raise

logger = logging.getLogger("oncewire.handler")

ANSWERS = f"{HANDLER} answers to "


def call_operator(node: Node) -> None:
    """Open an incident for each partner that could not be told something since the last look."""
    found = dict(node.unaddressed)
    node.unaddressed.clear()
    for peer, what in found.items():
        key = f"{ANSWERS}{peer}"
        logger.error("an answer has no address", extra={"peer": peer, "answer": what})
        reason = (
            f"{what} for {peer} could not leave: the agreement names no address for it; add one, "
            "and this is closed by itself"
        )
        with node.transition() as tx:
            open_incident(node, tx, Raise(reason, channel=key))

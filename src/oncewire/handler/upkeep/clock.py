"""Clock: what a node does when somebody sets the machine's clock.

The timeline says that the clocks differ; here that is written down, the operator is called, and
the time is followed when that is safe or when the operator says so.
"""

from __future__ import annotations

from oncewire.errors import NotAllowed
from oncewire.handler.node import Node
from oncewire.handler.perform import open_incident, resolve_incidents
from oncewire.message.instant import SECOND, Duration
from oncewire.protocol.effects import Note, Raise, Resolve
from oncewire.protocol.notes import CLOCK_VERDICTS, ClockSet
from oncewire.store.contract import Transaction

IN_DOUBT, AGREED, ACCEPTED, CORRECTED = CLOCK_VERDICTS


def begin(node: Node) -> None:
    """Take the time up where the last run left it."""
    with node.store.reader() as reader:
        rows = reader.journal_since(max(0, reader.last_seq() - 1), 1)
        # An incident that names neither message nor channel is the clock's.
        told = any(
            incident.message_id is None and incident.channel is None
            for incident in reader.incidents()
        )
    node.timeline.begin(node.world, rows[-1] if rows else None, told)


def watch(node: Node) -> None:
    """Write down what the clocks did since the last look, if anything."""
    node.now()
    if not node.timeline.restless:
        return
    with node.transition() as tx:
        if node.in_doubt:
            _call_operator(node, tx)
            return
        told = node.timeline.told
        by = node.follow_clock(tx)
        _write(node, tx, by, AGREED if told else CORRECTED)
        if told:
            resolve_incidents(node, tx, Resolve())


def accept(node: Node, tx: Transaction) -> None:
    """The operator says that the machine's clock is right."""
    node.now()
    if not node.in_doubt and not node.timeline.told:
        raise NotAllowed(
            "the clock is not in doubt",
            remedy="there is nothing to accept; `oncewire doctor` looks",
        )
    by = node.follow_clock(tx)
    _write(node, tx, by, ACCEPTED)
    resolve_incidents(node, tx, Resolve())


def _call_operator(node: Node, tx: Transaction) -> None:
    by = node.timeline.ahead
    _write(node, tx, by, IN_DOUBT)
    problem = (
        f"the clock was set by {_signed(by)}: nothing is declared expired or cleared away until it "
        "is set right, or until `oncewire clock accept` says that it is right"
    )
    open_incident(node, tx, Raise(problem))
    node.timeline.doubt()


def _write(node: Node, tx: Transaction, by: Duration, verdict: str) -> None:
    node.write(tx, [Note(ClockSet(by, verdict))])


def _signed(by: Duration) -> str:
    return f"{by / SECOND:+.0f} s"

"""Write docs/explanation/states.md from the state tables:
`python scripts/draw_states.py [--check]`.

The tables in `oncewire.protocol.states` are what the code moves along, so a picture drawn from
them cannot show a step that the code would refuse. `--check` writes nothing and fails when the
page is stale.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from oncewire.protocol.states import (
    CHANNEL,
    FINAL_OUTGOING,
    INCOMING,
    OUTGOING,
    IncomingState,
    OutgoingState,
    Phase,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "states.md"

# Keys are (state, event) of one side; Any, because a Mapping's key type does not vary.
Table = Mapping[tuple[Any, Any], frozenset[Any]]

_OPENING = """\
# The states of a message and of a stream

`scripts/draw_states.py` writes this page from the tables in `src/oncewire/protocol/states.py`; do
not edit it by hand. The code moves along these tables alone: `move` refuses any other step. A state
with a double border is an end.
"""

_OUTGOING = """\
## At its sender

A message *waits* for a place in the window. It is *outstanding* while its timer runs. It ends in
one of four states:

- *delivered*: its receiver acknowledged it;
- *not delivered*: it was never transmitted, or its receiver refused it;
- *unknown*: it was transmitted, and no acknowledgement came;
- *sent*: it was sent with best effort, and nothing more will be known.

Two things lead out of an end. An operator resumes the message, or late news arrives: an
acknowledgement after the failure was told, or an intermediary that takes its word back.
"""

_INCOMING = """\
## At its receiver

The handler stores a message before anything else happens to it. A message that comes early is
*held* until the numbers before it have passed. A *ready* message goes to the application, which
confirms it once.
"""


_CHANNEL = """\
## A stream at its sender

One message opens an epoch and travels alone until it is settled. After that as many messages are
under way as the window has places. The epoch ends when a number is given up, when the partners
agree on another range, or when an operator restarts the numbering. The sender then settles what is
under way, and the next message opens another epoch. A suspended stream lets nothing in, whatever
its phase.
"""


DOT_OPENING = (
    "digraph {",
    '    graph [bgcolor="white", rankdir=TB, nodesep=0.5, ranksep=0.7]',
    '    node [shape=box, style="rounded,filled", fillcolor="#eef2f6", color="#3e4c59",',
    '        fontname="Helvetica", fontsize=13]',
    '    edge [color="#616e7c", fontcolor="#3e4c59", fontname="Helvetica", fontsize=10]',
)
"""How every graph begins: its looks."""


def draw(table: Table, states: Sequence[StrEnum], first: StrEnum, ends: frozenset[Any]) -> str:
    """One graph in Graphviz's language; the events between two states share one arrow."""
    lines = [*DOT_OPENING, '    begin [shape=circle, label="", width=0.2, fillcolor="#3e4c59"]']
    for state in states:
        looks = ', peripheries=2, fillcolor="#dcefe3"' if state in ends else ""
        lines.append(f'    {state.value} [label="{state.value.replace("_", " ")}"{looks}]')
    lines.append(f"    begin -> {first.value}")
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), targets in table.items():
        for target in targets:
            arrows.setdefault((state.value, target.value), []).append(event.value)
    places = {state.value: place for place, state in enumerate(states)}
    for start, end in sorted(arrows, key=lambda arrow: (places[arrow[0]], places[arrow[1]])):
        label = "\\n".join(arrows[start, end])
        lines.append(f'    {start} -> {end} [label="{label}"]')
    return "\n".join([*lines, "}", ""])


def graphs() -> dict[str, str]:
    """The graph of each table; `scripts/diagrams.py` makes pictures of them."""
    # A message stays where no event leads on.
    left = {state for state, _ in INCOMING}
    ends_in = frozenset(state for state in IncomingState if state not in left)
    return {
        "sender": draw(OUTGOING, tuple(OutgoingState), OutgoingState.WAITING, FINAL_OUTGOING),
        "receiver": draw(INCOMING, tuple(IncomingState), IncomingState.ARRIVING, ends_in),
        "stream": draw(CHANNEL, tuple(Phase), Phase.UNBEGUN, frozenset()),
    }


def tabulate(table: Table) -> str:
    """The same as text, for readers and for search."""
    rows = ["| state | event | becomes |", "|---|---|---|"]
    for (state, event), targets in table.items():
        becomes = " or ".join(sorted(target.value for target in targets))
        rows.append(f"| {state.value} | {event.value} | {becomes} |")
    return "\n".join(rows)


def page() -> str:
    """The whole of docs/explanation/states.md."""
    parts = [_OPENING]
    for words, picture, shows, table in (
        (_OUTGOING, "sender", "The states of a message at its sender", OUTGOING),
        (_INCOMING, "receiver", "The states of a message at its receiver", INCOMING),
        (_CHANNEL, "stream", "The phases of a stream at its sender", CHANNEL),
    ):
        parts += [words, f"![{shows}](../img/states-{picture}.svg)", "", tabulate(table), ""]
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or say whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="fail when docs/explanation/states.md is stale"
    )
    options = parser.parse_args(arguments)
    drawn = page()
    if not options.check:
        PAGE.write_text(drawn, encoding="utf-8")
        print(f"drew {PAGE.name}")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != drawn:
        print(
            "docs/explanation/states.md is stale; run: python scripts/draw_states.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Draw docs/explanation/states.md from the state tables: `python scripts/draw_states.py [--check]`.

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

Drawn by `scripts/draw_states.py` from the tables in `src/oncewire/protocol/states.py`; do not edit
it by hand. The code moves along these tables and nowhere else: `move` refuses any other step.
"""

_OUTGOING = """\
## At its sender

A message waits for a place in the window, is outstanding while a timer runs, and ends as delivered
(acknowledged), not delivered (never transmitted, or refused), unknown (transmitted, never
acknowledged) or sent (best effort: nothing more will be known). An arrow out of an end is an
operator's resume, or late news: an acknowledgement after the failure was told, or an intermediary
that takes its word back.
"""

_INCOMING = """\
## At its receiver

A message is stored before anything else happens to it. One that came early is held until the
numbers before it were passed; one that is ready goes to the application, and is confirmed once.
"""


_CHANNEL = """\
## A stream at its sender

An epoch is opened by one message that travels alone until it is settled. Then as many are under way
as the window has places, until a number is given up, another range is agreed on or an operator
restarts the numbering; what is under way is settled, and the next message opens another epoch. A
stream that is suspended lets nothing in, whatever its phase.
"""


def draw(table: Table, states: Sequence[StrEnum], first: StrEnum, ends: frozenset[Any]) -> str:
    """One Mermaid diagram; the events between two states share one arrow."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f'    state "{state.value.replace("_", " ")}" as {state.value}' for state in states]
    lines.append(f"    [*] --> {first.value}")
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), targets in table.items():
        for target in targets:
            arrows.setdefault((state.value, target.value), []).append(event.value)
    places = {state.value: place for place, state in enumerate(states)}
    for start, end in sorted(arrows, key=lambda arrow: (places[arrow[0]], places[arrow[1]])):
        lines.append(f"    {start} --> {end}: {', '.join(arrows[start, end])}")
    lines += [f"    {state.value} --> [*]" for state in states if state in ends]
    return "\n".join([*lines, "```"])


def tabulate(table: Table) -> str:
    """The same as text, for readers and for search."""
    rows = ["| state | event | becomes |", "|---|---|---|"]
    for (state, event), targets in table.items():
        becomes = " or ".join(sorted(target.value for target in targets))
        rows.append(f"| {state.value} | {event.value} | {becomes} |")
    return "\n".join(rows)


def page() -> str:
    """The whole of docs/explanation/states.md."""
    # A message stays where no event leads on.
    left = {state for state, _ in INCOMING}
    ends_in = frozenset(state for state in IncomingState if state not in left)
    parts = [
        _OPENING,
        _OUTGOING,
        draw(OUTGOING, tuple(OutgoingState), OutgoingState.WAITING, FINAL_OUTGOING),
        "",
        tabulate(OUTGOING),
        "",
        _INCOMING,
        draw(INCOMING, tuple(IncomingState), IncomingState.ARRIVING, ends_in),
        "",
        tabulate(INCOMING),
        "",
        _CHANNEL,
        draw(CHANNEL, tuple(Phase), Phase.UNBEGUN, frozenset()),
        "",
        tabulate(CHANNEL),
        "",
    ]
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

"""Draw docs/img/*.svg from the code: `python scripts/diagrams.py [--check]`.

The states come from the protocol's tables and the house from the imports; Graphviz lays both out.
The ladder and the windows come from two handlers that exchange messages in memory, with the luck
that a test gives them. Every picture names the digest of what it shows, so `--check` tells a stale
one without Graphviz.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import draw_states  # noqa: E402

from oncewire.entry.console import rendering  # noqa: E402
from oncewire.entry.messages.story import tell  # noqa: E402
from oncewire.entry.watching.snapshot import ChannelView, channels_of  # noqa: E402
from oncewire.message.instant import MINUTE  # noqa: E402
from oncewire.wire.parcel import Parcel  # noqa: E402
from tests.handler.network import Network  # noqa: E402
from tests.house_map import read_house  # noqa: E402

PICTURES = ROOT / "docs" / "img"
INK, MUTE, LINE = "#1f2933", "#616e7c", "#9aa5b1"
TONES = {
    "good": "#18794e", "odd": "#9a6700", "bad": "#c0282d", "calm": "#3e4c59", "busy": "#1f6feb",
}  # fmt: skip
CELLS = {
    "acknowledged": "#cfe8d8", "received": "#cfe8d8", "in_flight": "#cfe0fb", "held": "#f6e3b5",
    "gap": "#ffffff", "free": "#ffffff", "waiting": "#e4e7eb", "suspended": "#f5c6c6",
    "refused": "#f5c6c6",
}  # fmt: skip
WORDS = {"in_flight": "in flight", "gap": "missing"}
WINDOW = "[sequence]\nrange = [0, 99]\n[flow]\nwindow = 4\n"
TRAVEL = 40_000
"""How long a parcel is on its way, in microseconds."""

LOST_TWICE = '[delivery]\ntimeout = "PT60S"\nretry_interval = "PT60S"\nretries = 3\n'


def house() -> str:
    """The packages and which of them import which, in Graphviz's language; an arrow that others
    make needless is left out."""
    source = ROOT / "src"
    rooms = read_house(source, sorted((source / "oncewire").rglob("*.py"))).rooms("oncewire")
    graph = {name: targets for name, targets in rooms.items() if name != "__main__"}
    lines = [f'    {name} [label="{name}"]' for name in sorted(graph)]
    lines += [
        f"    {name} -> {target}"
        for name, targets in sorted(graph.items())
        for target in sorted(targets)
        if not any(target in _reached(graph, other) for other in targets - {target})
    ]
    return "\n".join([*draw_states.DOT_OPENING, *lines, "}", ""])


def _reached(graph: Mapping[str, set[str]], name: str) -> set[str]:
    """Every room that a room imports, or that one of those does."""
    found: set[str] = set()
    for target in graph[name]:
        found |= {target} | _reached(graph, target)
    return found


def exchange_ladder() -> str:
    """A message whose first attempt and first acknowledgement are lost."""
    pair = Network.pair(
        "ebms2",
        LOST_TWICE,
        lose_request=lambda post: post.attempt == 1,
        lose_answer=lambda count: count == 1,
    )

    def travelling(parcel: Parcel) -> Parcel:
        for name in pair.engines:
            pair.world(name).time += TRAVEL
        return parcel

    pair.change = travelling
    sent = pair.send()
    pair.pass_time(MINUTE, MINUTE, MINUTE, MINUTE)
    pair.take()
    rows = [*pair.rows(of=sent.message_id), *pair.rows(at="beta", of=sent.message_id)]
    story = tell(sent.message_id, rows, lambda party, _: party.rpartition(":")[2], "", ())
    drawn = rendering.draw(story)
    return _svg(drawn.width, drawn.height, _of_ladder(drawn)).replace("urn:test:", "")


def _of_ladder(drawn: rendering.Ladder) -> Iterator[str]:
    for tone, colour in TONES.items():
        yield (
            f'<marker id="to-{tone}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            f'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8Z" fill="{colour}"/></marker>'
        )
    for lane in drawn.lanes:
        yield _text(lane.x, 20, lane.name, size=14, anchor="middle", weight="600")
        yield _line(lane.x, 34, lane.x, drawn.height - 4, LINE)
    for arrow in drawn.arrows:
        dashes = ' stroke-dasharray="5 4"' if arrow.end in {"late", "unknown"} else ""
        head = "" if arrow.end == "lost" else f' marker-end="url(#to-{arrow.tone})"'
        yield _line(arrow.x1, arrow.y1, arrow.x2, arrow.y2, TONES[arrow.tone], dashes + head)
        if arrow.end == "lost":
            cross = f"M{arrow.x2 - 5} {arrow.y2 - 5}l10 10m0-10l-10 10"
            yield f'<path d="{cross}" stroke="{TONES["bad"]}" stroke-width="2" fill="none"/>'
    for rung in drawn.rungs:
        yield f'<circle cx="{rung.x}" cy="{rung.y}" r="3.5" fill="{TONES[rung.tone]}"/>'
        yield _text(rung.text_x, rung.y + 4, rung.text, anchor=rung.anchor)
        yield _text(rung.text_x, rung.y + 17, rung.offset, MUTE, size=11, anchor=rung.anchor)


def windows() -> dict[str, str]:
    """Both windows of a channel on which messages 3 and 5 and the answer to 6 were lost."""
    pair = Network.pair("window", WINDOW)
    pair.send_all(range(3))
    lost = {"3", "5"}
    pair.lose_request = lambda post: "".join(filter(str.isdigit, post.message_id)) in lost
    pair.send_all(range(3, 6))
    pair.lose_answer = lambda count: count > 0
    pair.send_all(range(6, 9))
    return {
        "window-sending": _window(_channel(pair, "alpha"), "first not acknowledged"),
        "window-receiving": _window(_channel(pair, "beta"), "next to hand over"),
    }


def _channel(pair: Network, name: str) -> ChannelView:
    with pair.engines[name].context.store.reader() as reader:
        return next(one for one in channels_of(reader, 10) if one.cells)


def _window(channel: ChannelView, mark: str) -> str:
    cells = [(one.number, one.state) for one in channel.cells]
    cells += [(channel.next + place, "waiting") for place in range(channel.waiting)]
    pieces: list[str] = []
    for place, (number, state) in enumerate(cells):
        x = 16 + place * 92
        dashes = ' stroke-dasharray="4 3"' if state in {"gap", "free", "waiting"} else ""
        looks = f'rx="6" fill="{CELLS[state]}" stroke="{INK}"{dashes}'
        pieces += [
            f'<rect x="{x}" y="20" width="84" height="52" {looks}/>',
            _text(x + 42, 44, str(number), size=16, anchor="middle", weight="600"),
            _text(x + 42, 63, WORDS.get(state, state), size=11, anchor="middle"),
        ]
        if number == channel.first:
            pieces.append(_text(x + 42, 94, f"▲ {mark}", MUTE, anchor="middle"))
    if channel.direction == "out":
        first = [number for number, _ in cells].index(channel.first)
        x, width = 16 + first * 92 - 5, channel.window * 92 + 2
        pieces.append(
            f'<rect x="{x}" y="12" width="{width}" height="68" rx="9" fill="none" '
            f'stroke="{TONES["busy"]}" stroke-width="2.5"/>'
        )
    return _svg(24 + 92 * len(cells), 108, pieces)


def _line(x1: int, y1: int, x2: int, y2: int, colour: str, more: str = "") -> str:
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" '
        f'stroke-width="1.8"{more}/>'
    )


def _text(
    x: int, y: int, text: str, colour: str = INK, *,
    size: float = 12.5, anchor: str = "start", weight: str = "400",
) -> str:  # fmt: skip
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(width: int, height: int, pieces: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, ground, *pieces, "</svg>", ""])


def sources() -> dict[str, str]:
    """What every picture shows: a drawing, or a graph that Graphviz lays out."""
    return {
        **{f"states-{name}": graph for name, graph in draw_states.graphs().items()},
        "house": house(),
        "ladder": exchange_ladder(),
        **windows(),
    }


def mark(source: str) -> str:
    """The last line of a picture: what it was drawn of."""
    return f"<!-- drawn by scripts/diagrams.py of {hashlib.sha256(source.encode()).hexdigest()} -->"


def drawn(source: str) -> str:
    """The picture of a source."""
    if source.startswith("digraph"):
        command = shutil.which("dot")
        if command is None:
            sys.exit("Graphviz is missing; run: make diagrams")
        made = subprocess.run(
            [command, "-Tsvg"], input=source, capture_output=True, text=True, check=True
        ).stdout
        # Its prologue names the version of Graphviz and a DTD of another host.
        made = made[made.index("<svg") :]
    else:
        made = source
    return f"{made.rstrip()}\n{mark(source)}\n"


def stale(folder: Path = PICTURES) -> list[str]:
    """The pictures that show another thing than the code, or are missing."""
    return [
        name
        for name, source in sources().items()
        if not (path := folder / f"{name}.svg").is_file()
        or not path.read_text(encoding="utf-8").endswith(f"{mark(source)}\n")
    ]


def main() -> int:
    """Draw the pictures, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a picture is stale")
    if parser.parse_args().check:
        found = stale()
        if found:
            print(f"stale: {', '.join(found)}; run: make diagrams", file=sys.stderr)
        return bool(found)
    for name, source in sources().items():
        (PICTURES / f"{name}.svg").write_text(drawn(source), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

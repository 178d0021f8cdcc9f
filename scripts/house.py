"""The house in figures: its size, import depth and circles, then every folder's rooms and arrows.

A folder's rooms are its files and its sub-folders, each sub-folder taken as one; an arrow leads
from one room to another. `--rooms FOLDER` lists the arrows of one folder, `--walks` adds how many
files and calls a send and an arrival take. `--map` writes the list of modules into ARCHITECTURE.md.
Ends with status 1 when there is a circle.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.house_figures import figures_of, module_list  # noqa: E402
from tests.house_map import read_house  # noqa: E402

LIST_BEGINS, LIST_ENDS = "<!-- modules -->", "<!-- end of modules -->"


def main() -> int:
    """Print the table, or the rooms of one folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", metavar="FOLDER", help="a folder, as `oncewire.wire`")
    parser.add_argument("--walks", action="store_true", help="send and receive one message")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="another source tree")
    parser.add_argument("--map", action="store_true", help="renew the list of modules")
    asked = parser.parse_args()
    if asked.map:
        page = ROOT / "ARCHITECTURE.md"
        before, mark, after = page.read_text(encoding="utf-8").partition(LIST_BEGINS)
        _, end, rest = after.partition(LIST_ENDS)
        listed = f"\n\n{module_list(asked.source)}\n"
        page.write_text(before + mark + listed + end + rest, encoding="utf-8")
        return 0
    house = read_house(asked.source, sorted((asked.source / "oncewire").rglob("*.py")))
    if asked.rooms:
        for room, targets in sorted(house.rooms(asked.rooms).items()):
            print(f"{room:20} → {' '.join(sorted(targets))}".rstrip())
        return 0
    figures = figures_of(asked.source)
    for field in fields(figures):
        print(f"{field.name.replace('_', ' '):28}{getattr(figures, field.name):>8}")
    if asked.walks:
        _print_walks()
    print(f"\n{'folder':28}{'files':>7}{'rooms':>7}{'arrows':>8}{'imports':>9}")
    for folder in sorted(house.packages):
        rooms = house.rooms(folder)
        files = sum(module.startswith(folder + ".") for module in house.named)
        arrows = sum(map(len, rooms.values()))
        print(f"{folder:28}{files:7}{len(rooms):7}{arrows:8}{house.module_arrows(folder):9}")
    found = house.circles()
    for circle in found:
        print("circle:", *circle)
    print("circles:", len(found))
    return 1 if found else 0


def _print_walks() -> None:
    from scripts.walks import walks

    for walk in walks():
        print(f"{walk.name + ': files, calls':28}{len(set(walk.files)):>8}{walk.calls:>8}")


if __name__ == "__main__":
    sys.exit(main())

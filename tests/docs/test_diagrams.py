"""The pictures of docs/img that the code draws show what the code is today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import diagrams

from tests.parts import ROOT

DRAWN = sorted(diagrams.sources())


def test_every_picture_is_current() -> None:
    assert diagrams.stale() == [], "run: make diagrams"


def test_a_stale_picture_is_seen(tmp_path: Path) -> None:
    for name, source in diagrams.sources().items():
        shown = source.replace("unknown", "lost") if name == "states-sender" else source
        (tmp_path / f"{name}.svg").write_text(f"<svg/>\n{diagrams.mark(shown)}\n")
    (tmp_path / "house.svg").unlink()
    assert diagrams.stale(tmp_path) == ["states-sender", "house"]


def test_a_picture_loads_nothing() -> None:
    for name in DRAWN:
        picture = (ROOT / "docs/img" / f"{name}.svg").read_text(encoding="utf-8")
        assert picture.startswith("<svg")
        assert not re.search(r"(href|src)=|url\((?!#)|<script", picture), name


@pytest.mark.parametrize("name", DRAWN)
def test_a_page_shows_every_picture(name: str) -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "ARCHITECTURE.md"]
    assert any(f"img/{name}.svg" in page.read_text(encoding="utf-8") for page in pages)

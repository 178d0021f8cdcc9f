"""The site: it builds without a warning, asks no other host for anything, and can be searched."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.test_pages import PAGES, steps
from tests.parts import ROOT


class _Loaded(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag in {"script", "img", "iframe", "source"}:
            self.found.append(said.get("src") or "")
        if tag == "link" and said.get("rel") in {"stylesheet", "icon", "preload"}:
            self.found.append(said.get("href") or "")


@pytest.mark.process
def test_the_site_builds_and_needs_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", tmp_path / "trees", "docs", tmp_path / "site"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert not [found for found in loaded.found if re.match(r"(https?:)?//", found)], page
    index = (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")
    assert "persist_dur" in index


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


@pytest.mark.process
def test_every_python_block_is_typed(tmp_path: Path) -> None:
    count = 0
    for page in PAGES:
        for language, text in steps(page.read_text(encoding="utf-8")):
            if language == "python":
                (tmp_path / f"{page.stem}_{count}.py").write_text(text)
                count += 1
    assert count >= 6
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--allow-untyped-defs", tmp_path],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout

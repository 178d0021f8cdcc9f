"""Every command and every Python block of README and of the site, run as it is printed.

A page's blocks run in their order, in one shell and in an empty home. What a reader has made before
(`GIVEN`) the page says, too; no other step is hidden in a comment:

    <!-- given: pair -->           two parties that serve, and an order between them
    <!-- wait for: COMMAND -->     it ends well within a minute
    <!-- not run: REASON -->       the block that follows is only read
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.agreement.keys import KEYS as AGREEMENT_KEYS
from oncewire.entry.party.settings import KEYS as SETTINGS
from tests import java_archive
from tests.parts import ROOT
from tests.ports import free_port

DOCS = ROOT / "docs"
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    if "made" not in page.parts and re.search(r"^```(sh|python)$", page.read_text(), re.MULTILINE)
]

GIVEN = {
    "parties": """
oncewire init acme --port 8601
oncewire init globex --port 8602
printf '\\n[admin]\\nport = 8611\\n' >> acme/oncewire.toml
""",
    "pair": """
oncewire partner add globex --both -c acme
oncewire serve --detach -c acme
oncewire serve --detach -c globex
echo '<order id="1"/>' > order.xml
oncewire send order.xml --to globex --message-id order-1@acme --wait -c acme
oncewire inbox take --output received -c globex
""",
}
GIVEN["pair"] = GIVEN["parties"] + GIVEN["pair"]
"""What a page may take for given, by name."""

_PIECE = re.compile(
    r"<!-- (?P<kind>given|wait for|not run): (?P<said>.*?) ?-->"
    r"|^```(?P<language>sh|python)\n(?P<block>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_PORT = re.compile(r"\b86[0-4]\d\b")


def steps(text: str) -> Iterator[tuple[str, str]]:
    """What is run of a page: (`sh` or `python`, its text), in order."""
    passed_over = False
    for piece in _PIECE.finditer(text):
        kind, said = piece["kind"], piece["said"]
        if kind == "given":
            yield "sh", GIVEN[said]
        elif kind == "wait for":
            yield "sh", f"for try in $(seq 60); do {said} && break; sleep 1; done"
        elif kind == "not run":
            passed_over = True
        else:
            if not passed_over:
                yield piece["language"], piece["block"]
            passed_over = False


def script(page: Path, home: Path) -> str:
    """The page as one script; its ports are ones that are free here."""
    lines = ["set -e"]
    blocks = home.parent / "blocks"
    blocks.mkdir()
    for number, (language, text) in enumerate(steps(page.read_text(encoding="utf-8"))):
        if language == "python":
            (blocks / f"block{number}.py").write_text(text)
            lines.append(f"python {blocks / f'block{number}.py'}")
        else:
            lines.append(text)
    joined = "\n".join(lines)
    ports = sorted(set(_PORT.findall(joined)))
    for printed, free in [(port, free_port()) for port in ports]:
        joined = re.sub(rf"\b{printed}\b", str(free), joined)
        for block in blocks.iterdir():
            block.write_text(re.sub(rf"\b{printed}\b", str(free), block.read_text()))
    return joined


def _marks(page: Path) -> list[pytest.MarkDecorator]:
    spark = "pipeline" in page.read_text(encoding="utf-8")
    return [pytest.mark.process, *([pytest.mark.spark] if spark else [])]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=_marks(page), id=str(page.relative_to(ROOT).with_suffix("")))
        for page in PAGES
    ],
)
def test_the_blocks_of_a_page_run_as_they_are_printed(page: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environ = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    java_archive.use(environ)
    try:
        done = subprocess.run(
            ["bash", "-x", "-c", script(page, home)],
            cwd=home, env=environ, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    finally:
        _stop_what_is_left(home)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    # What curl shows of a refused call, with which it ends well.
    assert "urn:oncewire:problem" not in done.stdout, done.stdout[-4000:]


def test_a_block_that_is_not_run_says_why() -> None:
    reasons = [
        piece["said"]
        for page in PAGES
        for piece in _PIECE.finditer(page.read_text(encoding="utf-8"))
        if piece["kind"] == "not run"
    ]
    assert all(len(reason.split()) > 3 for reason in reasons)


def test_a_page_says_what_it_takes_for_given() -> None:
    for page in PAGES:
        for piece in _PIECE.finditer(text := page.read_text(encoding="utf-8")):
            if piece["kind"] == "given":
                assert text[piece.end() :].startswith("\nThe commands of this page take "), page


def test_no_page_hides_a_step() -> None:
    shown = {"given", "wait for", "not run"}
    for page in PAGES:
        said = re.findall(r"<!-- ([a-z ]+):", page.read_text(encoding="utf-8"))
        assert set(said) <= shown, page


@pytest.mark.parametrize("page", [*DOCS.glob("*/*.md")], ids=lambda page: page.stem)
def test_every_key_that_a_page_names_is_one(page: Path) -> None:
    known = {*SETTINGS, *AGREEMENT_KEYS}
    sections = {name.partition(".")[0] for name in known}
    named = re.findall(r"`([a-z]+)(\.[a-z_]+)(?: = [^`]+)?`", page.read_text(encoding="utf-8"))
    spoken = {section + key for section, key in named if section in sections}
    others = (".md", ".toml", ".py", ".json", ".data")
    assert {name for name in spoken if not name.endswith(others)} <= known


def _stop_what_is_left(home: Path) -> None:
    """End the handlers that a page left running; each wrote its process id."""
    for owner in home.glob("**/data/*.owner"):
        try:
            pid = int(owner.read_text())
            if str(home).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except (ValueError, OSError):
            continue

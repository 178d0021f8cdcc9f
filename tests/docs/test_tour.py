"""The notebook of the tour runs as it is printed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

NOTEBOOK = Path(__file__).parents[2] / "docs/howto/tour.ipynb"

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(1200)]


def cells() -> list[str]:
    """The programs of the notebook, in their order."""
    found = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def test_no_cell_keeps_what_it_printed() -> None:
    found = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell.get("outputs") for cell in found)


def test_the_tour_finds_what_was_sent_twice_and_sends_the_corrections_once(tmp_path: Path) -> None:
    program = "\n\n".join(cells())
    for port in ("8601", "8602"):
        program = program.replace(port, str(free_port()))
    (tmp_path / "tour.py").write_text(program)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | {"PATH": path, "HOME": str(tmp_path)}
    command = [sys.executable, "tour.py"]
    try:
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=1100
        )
    finally:
        for party in ("acme", "globex"):
            stop = [str(Path(sys.executable).with_name("oncewire")), "stop", party]
            subprocess.run(stop, cwd=tmp_path, env=environ, capture_output=True)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert len(list(tmp_path.glob("*.zip"))) == 2

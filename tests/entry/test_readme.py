"""README's first exchange, run as it is printed, in an empty home."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import missing

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def first_exchange() -> list[str]:
    """The commands of the first shell block under its heading."""
    section = README.partition("## The first exchange")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return block.group(1).splitlines()


def test_a_first_exchange_takes_at_most_ten_commands() -> None:
    commands = first_exchange()
    assert 0 < len(commands) <= 10
    assert all(command.strip() and not command.startswith("#") for command in commands)


@pytest.mark.process
def test_the_commands_of_the_readme_work_in_an_empty_home(tmp_path: Path) -> None:
    for port in (8601, 8602):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                missing(f"README uses port {port}, and another program has it")
    home = tmp_path / "home"
    home.mkdir()
    environ = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
    }
    script = "\n".join(first_exchange())
    try:
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=home,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        _stop_what_is_left(home)
    assert "Delivered on attempt 1" in done.stdout
    assert "2 stopped." in done.stdout
    (document,) = (home / "received").glob("*.xml")
    assert document.read_text() == '<order id="1"/>\n'
    assert list((home / "received").glob("*.message.json"))
    # Nothing was put anywhere but where the reader stands.
    assert sorted(path.name for path in home.iterdir()) == [
        "acme", "globex", "order.xml", "received",
    ]  # fmt: skip


def _stop_what_is_left(home: Path) -> None:
    """A failed run must not leave handlers behind; each wrote its process id."""
    for owner in home.glob("*/data/*.owner"):
        try:
            pid = int(owner.read_text())
            if Path(f"/proc/{pid}/cmdline").read_bytes().find(str(home).encode()) >= 0:
                os.kill(pid, signal.SIGKILL)
        except (ValueError, OSError):
            continue

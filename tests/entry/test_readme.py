"""README's first exchange and the page on CPAs, run as they are printed, in an empty home."""

import os
import re
import signal
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from oncewire.entry.party.folder import KeyKind, make_party
from oncewire.handler.world import RealWorld
from tests.entry.served import Served
from tests.entry.terminal import run
from tests.parts import missing

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CPA = (ROOT / "docs" / "howto" / "cpa.md").read_text(encoding="utf-8")


def first_exchange(page: str, blocks: int = 1) -> list[str]:
    """The commands of the first shell blocks of a page."""
    found = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[:blocks]
    assert len(found) == blocks
    return "".join(found).splitlines()


def test_a_first_exchange_takes_at_most_ten_commands() -> None:
    commands = first_exchange(README, 2)
    assert commands[-1] == "oncewire stop acme globex"
    assert 0 < len(commands) <= 10
    assert all(command.strip() and not command.startswith("#") for command in commands)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Commands of the built wheel, in an environment that has nothing but what it needs."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path / "dist", ROOT]
    subprocess.run(built, check=True, timeout=300)
    (file,) = (tmp_path / "dist").glob("oncewire-*.whl")
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    into = [*pip, "--python", python, "install", "-c", ROOT / "constraints.txt", file]
    subprocess.run(into, check=True, timeout=300)
    return python.parent


@pytest.mark.process
def test_the_commands_of_the_readme_work_in_an_empty_home(tmp_path: Path, wheel: Path) -> None:
    """With all that is installed here, and with the core of the wheel alone."""
    found = subprocess.run(
        [wheel / "python", "-c", "import pyspark"], capture_output=True, check=False
    )
    assert found.returncode == 1, "the core needs no Spark"
    for number, commands in enumerate((Path(sys.executable).parent, wheel)):
        _exchange(tmp_path / f"home{number}", commands)


def _exchange(home: Path, commands: Path) -> None:
    for port in (8601, 8602):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                missing(f"README uses port {port}, and another program has it")
    home.mkdir()
    environ = {
        "HOME": str(home),
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
    }
    script = "\n".join(first_exchange(README, 2))
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


def test_a_foreign_cpa_takes_at_most_ten_commands() -> None:
    assert 0 < len(first_exchange(CPA)) <= 10


@pytest.mark.process
def test_the_commands_for_a_foreign_cpa_work_in_an_empty_home(tmp_path: Path, corpus: Path) -> None:
    """The other side of the contract runs here too; to the reader it is anybody's handler."""
    for port in (8088, 8888):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                missing(f"the contract uses port {port}, and another program has it")
    home, theirs = tmp_path / "home", tmp_path / "theirs"
    home.mkdir()
    contract = home / "contract.xml"
    contract.write_bytes(
        (corpus / "ebms-core/cpa/cpaStubEBF.rm.http.unsigned.sync.xml").read_bytes()
    )
    (home / "order.xml").write_text("<order/>")
    make_party(
        theirs / "logius", "logius", now=RealWorld().now(), port=8888, key_kind=KeyKind.EC,
        party_id="0" * 20, party_type="urn:osb:oin",
    )  # fmt: skip
    run("agreement", "import", contract, "-c", theirs / "logius")
    environ = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
    }
    served = Served(theirs)
    try:
        served.start("logius")
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join(first_exchange(CPA))],
            cwd=home, env=environ, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Delivered on attempt 1" in done.stdout
        run("inbox", "take", "--output", tmp_path / "in", "-c", theirs / "logius")
    finally:
        served.close()
        _stop_what_is_left(home)
    (document,) = (tmp_path / "in").glob("*.xml")
    assert document.read_text() == "<order/>"


def _stop_what_is_left(home: Path) -> None:
    """A failed run must not leave handlers behind; each wrote its process id."""
    for owner in home.glob("*/data/*.owner"):
        try:
            pid = int(owner.read_text())
            if Path(f"/proc/{pid}/cmdline").read_bytes().find(str(home).encode()) >= 0:
                os.kill(pid, signal.SIGKILL)
        except (ValueError, OSError):
            continue

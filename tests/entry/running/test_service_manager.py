"""A service manager is told how the handler is; one that does not listen keeps nobody waiting."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.running.serving import keep_told, tell
from tests.entry.terminal import run, run_json
from tests.handler.runtime.test_supervisor import handler

OLD = b"STATUS=of somebody else"


class Busy:
    """A manager that has as many words before it as the kernel keeps for it."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as another:
            another.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    another.sendto(OLD, str(path))
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """It listens at last: what is new in what it was told."""
        words = []
        with suppress(BlockingIOError):
            while True:
                words.append(self._socket.recv(4096))
        return [word.decode() for word in words if word != OLD]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "20000000")
    found = Busy(tmp_path / "notify")
    yield found
    found.close()


def test_nobody_waits_for_a_manager_that_does_not_listen(busy: Busy) -> None:
    said: list[bool] = []
    telling = threading.Thread(target=lambda: said.append(tell("WATCHDOG=1")), daemon=True)
    telling.start()
    telling.join(20)
    assert said == [False]
    assert busy.heard() == []
    assert tell("WATCHDOG=1")
    assert busy.heard() == ["WATCHDOG=1"]


async def test_that_everything_listens_is_said_until_it_is_heard(busy: Busy) -> None:
    one = handler()
    await one.start()
    telling = asyncio.ensure_future(keep_told(one.supervisor))
    # The handler goes on meanwhile.
    for _ in range(3):
        await one.supervisor.probe(20)
    assert not telling.done()
    words: list[str] = []
    async with asyncio.timeout(30):
        while len(words) < 2:
            words += busy.heard()
            await asyncio.sleep(0)
    telling.cancel()
    await one.stop()
    assert words == ["READY=1", "WATCHDOG=1"]


def test_nobody_is_told_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert tell("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    assert tell("READY=1")


# --- the unit ----------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_accepts_the_unit_of_a_party(parties: Path, tmp_path: Path) -> None:
    unit = tmp_path / "acme.service"
    unit.write_text(run("serve", "--systemd").stdout)
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_the_unit_lets_the_handler_write_where_the_settings_say(
    parties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/opt/shop")
    assert "/opt/shop" not in run("serve", "--systemd").stdout
    places = ("--set", f"application.folder={tmp_path / 'in'}", "--set", "http.port=443")
    places += ("--set", "application.function=shop:take")
    lines = run("serve", "--systemd", *places).stdout.splitlines()
    assert f"ReadWritePaths={parties / 'acme'} {tmp_path / 'in'}" in lines
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE" in lines
    assert "Type=notify" in lines
    assert "Environment=PYTHONPATH=/opt/shop" in lines
    hidden = tmp_path.is_relative_to("/tmp")
    assert f"PrivateTmp={'no' if hidden else 'yes'}" in lines


@pytest.mark.parametrize("place", ["/in of acme", "/${HOME}/acme", "/it's/acme"])
def test_a_path_that_systemd_reads_otherwise_is_refused(parties: Path, place: str) -> None:
    words = ("serve", "--systemd", "--set", f"application.folder={place}")
    found = run_json(*words, exit_code=output.BAD_INPUT)
    assert place in found["problems"][0]["problem"]


def test_the_unit_lets_the_admin_port_write_its_log(parties: Path) -> None:
    words = ("serve", "--systemd", "--set", "admin.access_log=/var/log/acme/access.log")
    assert "/var/log/acme" not in run(*words).stdout
    assert "/var/log/acme" in run(*words, "--set", "admin.port=8610").stdout

"""The admin port as a child of `oncewire serve`: what stops or does not come up is told."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from oncewire.entry.admin.server import check_settings
from oncewire.entry.cli import output
from oncewire.entry.party.folder import make_keys
from oncewire.entry.party.settings import load
from oncewire.errors import InvalidValue
from oncewire.handler.world import RealWorld
from tests.entry.terminal import run_json
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.long]


@contextmanager
def _serving(party: Path, said: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A handler with an admin port, as a process; gives it and the port."""
    port = free_port()
    file = party / "oncewire.toml"
    before = file.read_text()
    file.write_text(f"{before}\n[admin]\nport = {port}\n{said}")
    command = [sys.executable, "-m", "oncewire", "serve", "-c", str(party), "--json"]
    with (party / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    assert b'"ready"' in process.stdout.readline()
    try:
        file.write_text(before)
        yield process, port
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()


def _kill_child(parent: int) -> None:
    (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)


def _get(url: str) -> int:
    """The status; 0: there was no answer, -1: the caller was refused."""
    try:
        return httpx.get(url, verify=False, timeout=20).status_code
    except httpx.ConnectError as error:
        return -1 if "refused" in str(error) else 0
    except httpx.TransportError:
        return 0


def test_a_handler_that_stands_still_is_told_within_seconds(pair: Path) -> None:
    with _serving(pair / "acme", "open_health = true\n") as (process, port):
        url = f"http://127.0.0.1:{port}"
        assert _get(f"{url}/readyz") == 200
        process.send_signal(signal.SIGSTOP)
        told = [_get(f"{url}/{word}") for word in ("livez", "readyz", "metrics")]
        assert told == [200, 503, 503]
        found = run_json("doctor", "--timeout", "1", exit_code=output.NOT_RUNNING)
        assert "it does not work" in found["checks"][0]["finding"]


def test_a_port_without_its_store_is_not_ready_and_refuses_callers(pair: Path) -> None:
    store, away = pair / "acme" / "data" / "oncewire.db", pair / "away.db"
    with _serving(pair / "acme", "open_health = true\n") as (process, port):
        url = f"http://127.0.0.1:{port}"
        store.rename(away)
        assert _get(f"{url}/readyz") == 503
        _kill_child(process.pid)
        wait_until(lambda: _get(f"{url}/livez") == -1)
        away.rename(store)
        wait_until(lambda: _get(f"{url}/livez") == 200)


def test_a_port_keeps_its_tls_and_says_why_it_does_not_come_up(pair: Path, tmp_path: Path) -> None:
    ours = make_keys(tmp_path, "admin", now=RealWorld().now())
    said = f'certificate = "{ours.certificate}"\nkey = "{ours.key}"\n'
    with _serving(pair / "acme", said) as (process, port):
        # The file says nothing of TLS any more.
        _kill_child(process.pid)
        wait_until(lambda: _get(f"https://127.0.0.1:{port}/livez") == 200)
        assert _get(f"http://127.0.0.1:{port}/livez") == 0
        ours.certificate.rename(tmp_path / "away.crt")
        _kill_child(process.pid)
        wait_until(lambda: "no file" in run_json("status", exit_code=None).get("admin", ""))
        run_json("status", exit_code=output.WRONG)
        found = run_json("doctor", "--no-partners", exit_code=output.WRONG)
        (told,) = [each for each in found["checks"] if each["what"] == "admin port"]
        assert (told["grade"], "no file" in told["finding"]) == ("bad", True)
        assert "does not come up" in (pair / "acme" / "log").read_text()
        with socket.socket() as caller:
            assert caller.connect_ex(("127.0.0.1", port)) != 0


def test_an_admin_port_that_cannot_work_is_found_before_it_starts(
    pair: Path, tmp_path: Path
) -> None:
    ours, other = (make_keys(tmp_path, name, now=RealWorld().now()) for name in ("admin", "other"))
    flags = {"admin.certificate": str(ours.certificate), "admin.key": str(ours.key)}
    port = free_port()
    for wrong, why in (
        ({"admin.certificate": "keys/nope.crt"}, "no file"),
        ({"admin.key": str(other.key)}, "cannot be used"),
        ({"admin.key": str(ours.certificate)}, "cannot be used"),
        ({"admin.certificate": "", "admin.key": "", "admin.host": "0.0.0.0"}, "without TLS"),
        ({"http.port": str(port)}, "both"),
    ):
        given = {name: value for name, value in (flags | wrong).items() if value}
        words = [word for each in given.items() for word in ("--set", "=".join(each))]
        words += ["--set", f"admin.port={port}"]
        found = run_json("config", "check", *words, exit_code=output.WRONG)
        assert [why in each["problem"] for each in found["problems"]] == [True], wrong
        settings = load(pair / "acme", environ={}, flags=given | {"admin.port": port}).settings
        with pytest.raises(InvalidValue, match=why):
            check_settings(settings)
    check_settings(load(pair / "acme", environ={}, flags=flags).settings)

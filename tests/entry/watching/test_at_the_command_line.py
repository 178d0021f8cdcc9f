"""At the command line: an outage of a partner, an application that refuses, and exit codes."""

from __future__ import annotations

import json
import logging
import signal
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from oncewire.entry.logs import JsonLines
from oncewire.entry.party.partners import with_values
from oncewire.errors import StoreDamaged
from tests.entry.driven import Driven
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.entry.watching.watched import Receiver
from tests.waiting import wait_until

SLOW = {"delivery.timeout": '"PT1H"', "delivery.retry_interval": '"PT1H"'}


def patient(pair: Path) -> None:
    """Between two attempts lies an hour."""
    for file in pair.glob("*/agreements/*.toml"):
        file.write_text(with_values(file.read_text(), SLOW))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.message.startswith("a partner is")]


@pytest.mark.parametrize("way", ["heard", "resumed"])
def test_after_an_outage_messages_do_not_wait_for_their_retry(
    pair: Path, order: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    patient(pair)
    with Served(pair, "acme") as served:
        run("send", order, "--to", "globex", "--message-id", "order-1")
        wait_until(lambda: said(caplog) == ["a partner is silent"], lambda: said(caplog))
        served.start("globex")
        if way == "heard":
            assert run("ping", "acme", "-c", pair / "globex").exit_code == output.OK
        else:
            done = run_json("resume", "--partner", "globex")
            assert done["summary"] == "Resumed."
        wait_until(lambda: run_json("outbox")["messages"][0]["state"] == "delivered")
        wait_until(lambda: said(caplog)[1:] == ["a partner is back"], lambda: said(caplog))
        told = run_json("why", "order-1")
        by = "the handler: the partner answers again" if way == "heard" else "resumed"
        assert by in str(told["ladder"])
        assert run("verify").exit_code == output.OK


def test_a_partner_that_is_unknown_is_not_resumed(served: Served) -> None:
    refused = run_json("resume", "--partner", "nobody", exit_code=output.NOT_FOUND)
    assert "nobody" in refused["problems"][0]["problem"]
    nothing = run_json("resume", exit_code=output.BAD_INPUT)
    assert "--partner" in nothing["problems"][0]["next"]


def test_scripts_tell_a_dead_handler_from_an_open_incident(pair: Path) -> None:
    for command in (("status",), ("doctor", "--no-partners")):
        run(*command, exit_code=output.NOT_RUNNING)
    with Served(pair) as served:
        handler = served.start("acme").handler
        for command in (("status",), ("doctor", "--no-partners")):
            assert run(*command, exit_code=None).exit_code == output.OK
        trouble = StoreDamaged("a row cannot be read", channel="talk")
        served.do(handler.loop.operate(lambda engine: engine.trouble(trouble)))
        for command in (("status",), ("doctor", "--no-partners")):
            assert run(*command, exit_code=None).exit_code == output.WRONG
    for command in (("status",), ("doctor", "--no-partners")):
        run(*command, exit_code=output.NOT_RUNNING)
        help_text = " ".join(run(command[0], "--help").output.split())
        assert "Ends with status 6 if no handler runs" in help_text


def test_the_traceback_of_an_application_is_in_the_log(
    pair: Path,
    order: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    code = "def look_up(number):\n    raise ValueError('no such customer')\n\n\n"
    code += "def take(message):\n    look_up(7)\n"
    (tmp_path / "refuses_and_tells.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("oncewire.handler.runtime.offers.FIRST_PAUSE", 0.01)
    settings = pair / "globex" / "oncewire.toml"
    chosen = {"application.way": '"function"', "application.function": '"refuses_and_tells:take"'}
    settings.write_text(with_values(settings.read_text(), chosen))
    with Served(pair) as served, caplog.at_level(logging.WARNING):
        served.start("globex")
        served.start("acme")
        run("send", order, "--to", "globex", "--message-id", "order-1", "--wait")
        wait_until(lambda: len(refusals(caplog)) >= 6, lambda: refusals(caplog))
    with_trace = [bool(record.exc_info) for record in refusals(caplog)[:6]]
    assert with_trace == [True, True, False, True, False, False]
    line = JsonLines().format(refusals(caplog)[0])
    assert "in look_up" in line
    assert "offers.py" not in line


@pytest.mark.process
def test_a_handler_that_was_killed_is_told_of_by_the_next_one(
    pair: Path, receiver: Receiver
) -> None:
    settings = pair / "acme" / "oncewire.toml"
    hook = f'\n[alerts]\nurl = "{receiver.url}"\nsecret = "hush"\n'
    settings.write_text(settings.read_text() + hook)
    settings.chmod(0o600)
    assert run_json("config", "check")["ok"]
    for sign in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
        driven = Driven(pair / "acme")
        try:
            driven.ready()
            wait_until((pair / "acme" / "data" / "alerts.json").exists)
            if sign is signal.SIGTERM:
                told = len(receiver.calls) + 1
                wait_until(lambda told=told: len(receiver.calls) >= told)  # type: ignore[misc]
            driven.signal(sign)
            driven.ended()
        finally:
            driven.close()
    words = [json.loads(body)["data"]["causes"][0]["what"] for _, body in receiver.calls]
    assert words == [
        "the handler was started again, after it ended without being stopped",
        "the handler was started again, after it was stopped",
    ]


def refusals(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [
        one for one in caplog.records if one.message == "the application did not take a message"
    ]

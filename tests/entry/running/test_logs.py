"""Logs: one JSON line per event, with the message's id and without payloads and secrets."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncewire.entry import logs
from oncewire.entry.logs import LINE_MAX, JsonLines, PlainLines, clean, clean_text, start_logging
from oncewire.errors import InvalidValue


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    root = logging.getLogger("oncewire")
    before = (list(root.handlers), root.level, root.propagate)
    raised = logging.raiseExceptions
    yield
    logging.raiseExceptions = raised
    for handler in list(root.handlers):
        root.removeHandler(handler)
        if handler not in before[0]:
            handler.close()
    for handler in before[0]:
        root.addHandler(handler)
    root.setLevel(before[1])
    root.propagate = before[2]


def line(**extra: Any) -> dict[str, Any]:
    record = logging.makeLogRecord(
        {"name": "oncewire.x", "levelname": "INFO", "msg": "it happened", "created": 1.5} | extra
    )
    found = json.loads(JsonLines().format(record))
    assert isinstance(found, dict)
    return found


def test_a_line_has_time_level_event_and_facts() -> None:
    found = line(message_id="m-1", attempt=2)
    assert found == {
        "at": "1970-01-01T00:00:01.500000Z",
        "level": "info",
        "logger": "oncewire.x",
        "event": "it happened",
        "message_id": "m-1",
        "attempt": 2,
    }


def test_payloads_become_their_length() -> None:
    found = line(payload=b"<order>secret</order>", parts=[b"12", b"345"])
    assert found["payload"] == "21 bytes"
    assert found["parts"] == ["2 bytes", "3 bytes"]


@pytest.mark.parametrize(
    "name",
    ["password", "db_password", "passphrase", "secret", "webhook_secret", "api_token",
     "authorization", "Authorization", "private_key", "credentials"],
)  # fmt: skip
def test_facts_with_secret_names_are_blanked(name: str) -> None:
    assert clean(name, "hush") == "[redacted]"
    assert clean("outer", {name: "hush"}) == {name: "[redacted]"}


@pytest.mark.parametrize(
    "text",
    [
        "connect to https://user:hush@host/x",
        "Authorization: Bearer hushhushhush",
        "Authorization: Basic aHVzaGh1c2g=",
        "password=hush and more",
        "token: hush",
        "secret = hush;",
        "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nhush cut off",
    ],
)
def test_secrets_in_sentences_are_blanked(text: str) -> None:
    cleaned = clean_text(text)
    assert "hush" not in cleaned
    assert "aHVza" not in cleaned
    assert "[redacted]" in cleaned


@pytest.mark.parametrize("text", ["the token ring", "message m-1 sent", "keys are fine", "basic"])
def test_innocent_sentences_stay(text: str) -> None:
    assert clean_text(text) == text
    assert clean("message_id", text) == text


def test_a_line_is_one_line_and_bounded() -> None:
    found = line(name_with_newline="a\nb\r\u2028c")
    assert found["name_with_newline"] == "a b  c"
    many = {f"fact_{number}": "x" * 1000 for number in range(50)}
    record = logging.makeLogRecord({"msg": "many", "message_id": "m-9"} | many)
    text = JsonLines().format(record)
    assert len(text) <= LINE_MAX
    assert json.loads(text)["message_id"] == "m-9"
    assert "characters)" in clean_text("x" * 100_000)


def test_an_error_is_told_without_its_secrets() -> None:
    try:
        raise RuntimeError("cannot log in with password=hush")
    except RuntimeError as error:
        record = logging.makeLogRecord({"msg": "bad", "exc_info": (type(error), error, None)})
    for formatter in (JsonLines(), PlainLines()):
        text = formatter.format(record)
        assert "hush" not in text
        assert "RuntimeError" in text


def test_logging_goes_to_a_file(tmp_path: Path) -> None:
    start_logging("debug", "json", tmp_path / "x.log")
    logging.getLogger("oncewire.handler").debug("sent", extra={"message_id": "m-1"})
    start_logging("warning", "text", tmp_path / "y.log")
    logging.getLogger("oncewire.handler").info("not this one")
    logging.getLogger("oncewire.handler").warning("slow", extra={"message_id": "m-2"})
    assert json.loads((tmp_path / "x.log").read_text())["message_id"] == "m-1"
    text = (tmp_path / "y.log").read_text()
    assert "warning slow message_id=m-2" in text
    assert "not this one" not in text


def test_bad_log_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"log\.level 'loud'"):
        start_logging("loud")
    with pytest.raises(InvalidValue, match=r"log\.file"):
        start_logging("info", "json", tmp_path / "none" / "x.log")


def test_a_log_file_that_has_grown_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ROTATE_BYTES", 1_000)
    start_logging("info", "json", tmp_path / "log")
    for number in range(200):
        logging.getLogger("oncewire.x").info("line %d", number)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["log", *(f"log.{number}" for number in range(1, logs.ROTATED + 1))]
    assert all(path.stat().st_size <= 1_000 for path in tmp_path.iterdir())


def test_a_line_that_cannot_be_written_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where what is wrong with it cannot be told either."""
    gone = io.StringIO()
    monkeypatch.setattr(sys, "stderr", gone)
    start_logging("info", "json")
    gone.close()
    logging.getLogger("oncewire.x").warning("it happened")

"""What a newcomer's mistakes are answered with: the right status, the cause, and the way out."""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncewire import __version__
from oncewire.entry.cli import lake, output
from oncewire.entry.cli.main import PANELS
from oncewire.entry.cli.output import WITHOUT_PARTY, Report
from oncewire.entry.running import background
from tests.entry.served import Served
from tests.entry.terminal import run, run_json, whole_command
from tests.parts import ROOT

# --- config check ------------------------------------------------------------------------------


def function_set(name: str) -> tuple[str, ...]:
    return ("--set", "application.way=function", "--set", f"application.function={name}")


@pytest.mark.parametrize("name", ["shop_not_there:on_order", "json:on_order", "json:__name__"])
def test_config_check_finds_a_function_that_cannot_be_called(parties: Path, name: str) -> None:
    assert run_json("config", "check", *function_set("json:dumps"))["ok"] is True
    found = run_json("config", "check", *function_set(name), exit_code=output.WRONG)
    (problem,) = found["problems"]
    assert problem["where"] == "application.function"
    assert name in problem["problem"]
    assert problem["next"]


def test_a_module_that_breaks_when_it_is_imported_is_said_to(
    parties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_that_breaks.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ("config", "check", *function_set("shop_that_breaks:on_order"))
    (problem,) = run_json(*words, exit_code=output.WRONG)["problems"]
    assert "ZeroDivisionError" in problem["problem"]


# --- serve --detach ----------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "cause", "remedy"),
    [
        (function_set("shop_not_there:on_order"), "cannot be found", "PYTHONPATH"),
        (("--set", "application.way=webhook"), "is no http address", "https://"),
    ],
)
def test_what_keeps_it_from_the_background_is_said_as_in_the_foreground(
    pair: Path, words: tuple[str, ...], cause: str, remedy: str
) -> None:
    found = run_json("serve", "--detach", *words, exit_code=output.BAD_INPUT)
    (problem,) = found["problems"]
    assert "acme did not start" in problem["problem"]
    assert cause in problem["problem"]
    assert remedy in problem["next"]


@pytest.mark.process
def test_a_second_one_in_the_background_is_not_allowed(served: Served) -> None:
    found = run_json("serve", "--detach", exit_code=output.NOT_ALLOWED)
    (problem,) = found["problems"]
    assert "runs already" in problem["problem"]
    assert "oncewire stop" in problem["next"]
    assert "foreground" not in problem["next"]


PRINTING = """
def take(message):
    print("taken:", message.message_id)
"""


@pytest.mark.process
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_application_in_the_background_may_print(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    (tmp_path / "shop_that_prints.py").write_text(PRINTING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "src"), str(tmp_path))))
    words = ("-c", pair / "globex", *function_set("shop_that_prints:take"))
    log = Path(run_json("serve", "--detach", *words)["log"])
    try:
        order = tmp_path / "order.xml"
        order.write_text("<order/>")
        sent = run_json("send", order, "--to", "globex", "--wait")["messages"][0]["message_id"]
        deadline = time.monotonic() + 30
        while f"taken: {sent}" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert f"taken: {sent}" in log.read_text()
    finally:
        run("stop", pair / "globex")
    assert "did not take" not in log.read_text()
    # Whatever it prints, a log of JSON stays one.
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["logger"] for line in lines if "taken:" in line["event"]} == {"oncewire.printed"}


@pytest.mark.process
def test_a_module_of_the_folder_one_stands_in_is_found_in_neither_way(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write there would otherwise choose what the handler runs."""
    (tmp_path / "shop_beside.py").write_text(PRINTING)
    monkeypatch.chdir(tmp_path)
    words = ("-c", pair / "globex", *function_set("shop_beside:take"))
    try:
        found = run_json("serve", "--detach", *words, exit_code=output.BAD_INPUT)
    finally:
        run("stop", pair / "globex")
    assert "cannot be found" in found["problems"][0]["problem"]


# --- stop --------------------------------------------------------------------------------------

SLOW = """
import time

def take(message):
    print("begun", flush=True)
    time.sleep(14)
    print("ended", flush=True)
"""


@pytest.mark.process
def test_one_whose_application_still_works_is_not_called_stopped(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has let go of its store by then: the next handler would call the application again."""
    (tmp_path / "shop_that_is_slow.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "src"), str(tmp_path))))
    words = ("-c", pair / "globex", *function_set("shop_that_is_slow:take"))
    log = Path(run_json("serve", "--detach", *words)["log"])
    try:
        order = tmp_path / "order.xml"
        order.write_text("<order/>")
        run_json("send", order, "--to", "globex", "--wait")
        deadline = time.monotonic() + 30
        while "begun" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        stopped = run_json("stop", pair / "globex")
    assert stopped["parties"][0]["stopped"]
    assert "ended" in log.read_text()


def test_stop_takes_the_party_as_every_command_does(pair: Path) -> None:
    found = run_json("stop", "-c", pair / "globex")
    assert [(row["party"], row["stopped"]) for row in found["parties"]] == [("globex", False)]
    both = run_json("stop", pair / "acme", "--config", pair / "globex")
    assert [row["party"] for row in both["parties"]] == ["acme", "globex"]


def test_stop_says_what_it_stopped_when_it_cannot_stop_all(
    served: Served, pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    # These handlers are of the test's own process, which a signal would end.
    monkeypatch.setattr(
        background, "stop", lambda settings, _pid, **_: stopped.append(settings.party)
    )
    words = ("stop", pair / "globex", pair / "nosuch", pair / "acme")
    found = run_json(*words, exit_code=output.NOT_FOUND)
    assert [(row["party"], row["stopped"]) for row in found["parties"]] == [
        ("globex", True),
        ("acme", True),
    ]
    assert len(stopped) == 2
    assert found["summary"] == "2 stopped."
    (problem,) = found["problems"]
    assert "nosuch" in problem["problem"]
    shown = run(*words, exit_code=output.NOT_FOUND)
    assert "globex" in shown.stdout
    assert "nosuch" in shown.stdout
    # Where there is nothing else to tell, it is an error like any other.
    assert "nosuch" in run("stop", pair / "nosuch", exit_code=output.NOT_FOUND).stderr


# --- tables ------------------------------------------------------------------------------------


def test_a_count_keeps_its_name_even_when_it_is_the_only_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.show(Report({"outcomes": {"delivered": 13}, "party": {"value": "acme", "type": None}}))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["outcomes", "delivered", "13"], ["party", "acme"]]


# --- pipeline ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("run", "--lake", "new", "--store", "nosuch"), "no store, export or lake"),
        (("run", "--lake", "new", "--archive", "nosuch"), "no archive"),
        (("stream", "--lake", "new", "--store", "nosuch"), "no store, export or lake"),
        (("verify", "--lake", "nosuch"), "no lake"),
        (("reconcile", "acme", "nosuch", "--lake", "nosuch"), "no lake"),
        (("reconcile", ".", "nosuch"), "no store, export or lake"),
    ],
)
def test_a_path_that_is_not_there_is_said_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], what: str
) -> None:
    def no_spark(*_words: Any, **_more: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(lake, "session", no_spark)
    monkeypatch.chdir(tmp_path)
    found = run_json("pipeline", *words, exit_code=output.NOT_FOUND)
    (problem,) = found["problems"]
    assert f"there is {what} at nosuch" in problem["problem"]
    assert problem["next"]
    # The same status as the verification without Spark.
    run("verify", "nosuch", exit_code=output.NOT_FOUND)


# --- small words -------------------------------------------------------------------------------


def test_only_a_cpa_is_called_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("order.xml").write_text("<order/>")
    found = run_json("agreement", "check", "order.xml", exit_code=output.WRONG)
    (finding,) = found["findings"]
    assert "the root element is order" in finding["sentence"]
    assert found["summary"] == "1 error, 0 dangers, 0 hints"
    Path("cpa.xml").write_text("<CollaborationProtocolAgreement/>")
    (finding,) = run_json("agreement", "check", "cpa.xml", exit_code=output.WRONG)["findings"]
    assert "--own" in finding["fix"]


def test_a_semicolon_in_a_file_name_is_explained(pair: Path, tmp_path: Path) -> None:
    (tmp_path / "order;2.xml").write_text("<order/>")
    words = ("send", tmp_path / "order;2.xml", "--to", "globex")
    (problem,) = run_json(*words, exit_code=output.NOT_FOUND)["problems"]
    assert "media type" in problem["next"]
    plain = run_json("send", tmp_path / "other.xml", "--to", "globex", exit_code=output.NOT_FOUND)
    assert "media type" not in plain["problems"][0]["next"]


def test_a_decision_names_what_it_can_be_about(pair: Path) -> None:
    for command in ("hold", "release", "abandon", "resend"):
        (problem,) = run_json(command, exit_code=output.BAD_INPUT)["problems"]
        assert "channel" not in problem["next"], command
        assert "message" in problem["next"]
    (problem,) = run_json("resume", exit_code=output.BAD_INPUT)["problems"]
    assert "--channel" in problem["next"]


def test_giving_up_takes_effect_at_once_without_a_handler(pair: Path, tmp_path: Path) -> None:
    (tmp_path / "order.xml").write_text("<order/>")
    sent = run_json("send", tmp_path / "order.xml", "--to", "globex")["messages"][0]["message_id"]
    found = run_json("abandon", sent)
    assert found["summary"] == "Given up."
    assert [row["what"] for row in found["done"]] == [sent]
    assert run_json("outbox")["messages"][0]["state"] == found["done"][0]["state"] != "pending"


def test_the_command_that_an_error_names_finds_the_party_that_was_named(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(served.folder)
    for words, step in (
        (("ask", "nosuch"), "`oncewire outbox -c acme` and `oncewire inbox -c acme` list them"),
        (("serve",), "stop it with `oncewire stop -c acme`"),
    ):
        found = run_json(*words, "-c", "acme", exit_code=None)
        assert step in found["problems"][0]["next"]
    # Where none was named, the command finds the party as this one did.
    monkeypatch.chdir(served.folder / "acme")
    found = run_json("ask", "nosuch", exit_code=output.NOT_FOUND)
    assert "`oncewire outbox` and" in found["problems"][0]["next"]


def test_the_command_that_stands_for_an_empty_table_finds_it_too(
    parties: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(parties)
    assert "`oncewire partner add CARD -c acme`" in run("partner", "list", "-c", "acme").stdout


def test_commands_without_a_party_are_named_without_one() -> None:
    def commands(command: Any, *name: str) -> Iterator[tuple[str, bool]]:
        for word, below in getattr(command, "commands", {}).items():
            yield from commands(below, *name, word)
        if not hasattr(command, "commands"):
            yield " ".join(name), any(one.name == "config" for one in command.params)

    partyless = {name for name, has_party in commands(whole_command()) if not has_party}
    assert partyless - WITHOUT_PARTY == {name for name in partyless if name.startswith("pipeline ")}
    assert WITHOUT_PARTY - partyless == {"pipeline"}


# --- the command itself ------------------------------------------------------------------------


def test_every_command_stands_in_one_group_of_the_help() -> None:
    page = run("--help").stdout
    assert [panel for panel in PANELS if f"─ {panel} ─" in page] == list(PANELS)
    named = [name for names in PANELS.values() for name in names]
    assert sorted(named) == sorted(whole_command().commands)


def test_the_version_is_an_option_too() -> None:
    assert run("--version").stdout.strip() == f"oncewire {__version__}"


def test_the_party_may_be_named_before_the_command(
    parties: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    status = ("status", "--json")
    found = run("-c", parties / "acme", *status, exit_code=None).stdout
    assert json.loads(found)["party"] == "acme"
    words = ("-c", parties / "acme", *status, "-c", parties / "globex")
    again = run(*words, exit_code=None).stdout
    assert json.loads(again)["party"] == "globex"


@pytest.mark.parametrize(
    ("words", "problem"), [(("nonsense",), "nonsense"), (("send", "--nope"), "--nope")]
)
def test_wrong_usage_is_told_as_json_to_those_who_ask_for_it(
    words: tuple[str, ...], problem: str
) -> None:
    (told,) = run_json(*words, exit_code=output.BAD_INPUT)["problems"]
    assert problem in told["problem"]
    assert "--help" in told["next"]


def test_one_option_names_the_file_that_is_written() -> None:
    """Every command that writes one calls it -o and --output."""

    def options(command: Any) -> Iterator[list[str]]:
        for each in getattr(command, "commands", {}).values():
            yield from options(each)
        yield from (each.opts for each in command.params if {"-o", "--out"} & set(each.opts))

    assert {tuple(sorted(each)) for each in options(whole_command())} == {("--output", "-o")}


# --- addresses ---------------------------------------------------------------------------------


def test_an_address_that_partners_cannot_reach_is_told_of(tmp_path: Path) -> None:
    folder = tmp_path / "acme"
    wrong = "cannot reach https://127.0.0.1:8500/msh"
    assert wrong in run("init", folder, "--host", "0.0.0.0").stdout
    assert wrong in run("partner", "card", "-o", tmp_path / "card", "-c", folder).stdout
    assert wrong in run("partner", "invite", "-o", tmp_path / "invitation", "-c", folder).stdout
    found = run_json("doctor", "-c", folder, exit_code=None)["checks"]
    assert [each["grade"] for each in found if each["what"] == "address"] == ["warning"]


def test_it_can_be_said_from_the_beginning(tmp_path: Path) -> None:
    folder, url = tmp_path / "acme", "https://acme.example:9500/msh"
    made = run_json("init", folder, "--host", "0.0.0.0", "--url", url)
    assert made["url"] == url
    assert not any("cannot reach" in hint for hint in made["next"])
    assert url in run("partner", "card", "-c", folder).stdout
    found = run_json("init", tmp_path / "b", "--url", "acme:9", exit_code=output.BAD_INPUT)
    assert "no address" in found["problems"][0]["problem"]


def test_a_port_in_use_names_the_process_that_has_it(pair: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = run_json("serve", "--set", f"http.port={port}", exit_code=output.TROUBLE)
    assert f"by process {os.getpid()}" in found["problems"][0]["problem"]


def test_a_partner_that_refuses_connections_is_told_of_at_once(pair: Path) -> None:
    with Served(pair, "acme"):
        began = time.monotonic()
        found = run_json("partner", "test", "globex", "--timeout", "600", exit_code=None)
    assert "not reached" in found["tried"][0]["finding"]
    assert time.monotonic() - began < 300

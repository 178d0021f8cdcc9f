"""The container files: what they run exists, as no root, and writes to the party's folder alone."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from oncewire.entry.party.partners import with_values
from tests import parts
from tests.entry.terminal import run, run_json, whole_command
from tests.parts import ROOT
from tests.ports import free_port
from tests.postgres import Server
from tests.waiting import wait_until

CONTAINER = (ROOT / "packaging" / "Containerfile").read_text()
COMPOSE = (ROOT / "packaging" / "compose.yaml").read_text()
BESIDE = (ROOT / "packaging" / "compose-postgresql.yaml").read_text()
BALANCER = (ROOT / "packaging" / "haproxy.cfg").read_text()


def instruction(name: str) -> str:
    (found,) = re.findall(rf"^{name} (.*(?:\\\n.*)*)$", CONTAINER, re.MULTILINE)
    return str(found)


def check_usage(words: list[str]) -> None:
    """Parse a command of ours as its parser does; wrong usage raises."""
    command = whole_command().commands[words[0]]
    command.make_context(words[0], words[1:], resilient_parsing=False)


def test_the_container_runs_commands_that_there_are() -> None:
    assert json.loads(instruction("ENTRYPOINT")) == ["oncewire"]
    check_usage(json.loads(instruction("CMD")))
    program, *words = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert program == "oncewire"
    check_usage(words)


def test_the_container_is_no_root_and_keeps_the_party_outside() -> None:
    assert int(instruction("USER")) > 0
    assert instruction("VOLUME") == instruction("WORKDIR") == "/party"
    assert "-c /install/constraints.txt" in instruction("RUN")


def test_both_parties_of_the_compose_file_are_read_only() -> None:
    services = yaml.safe_load(COMPOSE)["services"]
    assert sorted(services) == ["acme", "globex"]
    for name, service in services.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["volumes"] == [f"../{name}:/party"]
        assert (ROOT / "packaging" / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("text", [CONTAINER, COMPOSE, BESIDE])
def test_the_commands_in_their_comments_are_understood(text: str) -> None:
    for line in re.findall(r"^#   (oncewire .*)$", text, re.MULTILINE):
        for words in " ".join(shlex.split(line)).split(" && "):
            _, group, *rest = words.split()
            command = whole_command().commands[group]
            if hasattr(command, "commands"):
                command, rest = command.commands[rest[0]], rest[1:]
            command.make_context(group, rest, resilient_parsing=False)


def test_each_handler_beside_the_others_has_a_folder_of_its_own() -> None:
    services = yaml.safe_load(BESIDE)["services"]
    handlers = {name: services[name] for name in ("one", "two", "three")}
    assert sorted(services) == sorted(["acme", "database", *handlers])
    for name, service in handlers.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["volumes"] == [f"../acme-{name}:/party", "../spool:/spool"]
        assert service["build"]["args"] == {"EXTRAS": "[postgres]"}
        check_usage(service["command"])
    assert set(services["acme"]["depends_on"]) == set(handlers)
    assert "${EXTRAS}" in instruction("RUN")


@pytest.mark.process
@pytest.mark.long
def test_three_handlers_behind_the_balancer_survive_the_death_of_one(
    tmp_path: Path, postgres: Server
) -> None:
    """What the compose file runs, as plain processes: its names are ports of this machine."""
    services = yaml.safe_load(BESIDE)["services"]
    ports = {name: free_port() for name in ("acme", "one", "two", "three", "globex")}
    acme, globex = tmp_path / "acme", tmp_path / "globex"
    public = f"https://127.0.0.1:{ports['acme']}/msh"
    run("init", acme, "--url", public, "--store", postgres.new_schema())
    run("init", globex, "--port", str(ports["globex"]))
    run("partner", "add", globex, "-c", acme)
    run("partner", "add", acme, "-c", globex)
    change(acme, "store.spool", f'"{tmp_path / "spool"}"')
    (tmp_path / "spool").mkdir()
    config = BALANCER.replace("bind :8500", f"bind 127.0.0.1:{ports['acme']}")
    folders = {}
    for name in ("one", "two", "three"):
        folders[name] = shutil.copytree(acme, tmp_path / f"acme-{name}")
        change(folders[name], "http.port", str(ports[name]))
        config = config.replace(f"{name}:8500", f"127.0.0.1:{ports[name]}")
    (tmp_path / "haproxy.cfg").write_text(config)
    order = tmp_path / "order.xml"
    order.write_text("<order/>")
    with ExitStack() as stack:
        begun = {}
        for name, folder in folders.items():
            words = [word.replace("/party", str(folder)) for word in services[name]["command"]]
            begun[name] = start(stack, sys.executable, "-m", "oncewire", *words)
        start(stack, sys.executable, "-m", "oncewire", "serve", "--config", str(globex))
        program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
        if program is None:
            parts.missing("no HAProxy; `make setup` says how to install it")
        _, *words = services["acme"]["command"]
        place = str(tmp_path / "haproxy.cfg")
        start(stack, program, *[word.replace("/etc/haproxy.cfg", place) for word in words])
        for folder in (*folders.values(), globex):
            wait_until(lambda f=folder: run_json("status", "-c", f, exit_code=None)["running"])
        assert len(run_json("status", "-c", folders["one"])["handlers"]) == 3
        for killed in (None, "one", "two"):
            if killed is not None:
                begun[killed].kill()
                begun[killed].wait()
            for _ in range(3):
                sent = run_json("send", order, "--to", "acme", "-c", globex)["messages"][0]
                wait_until(lambda s=sent: state_of(globex, s["message_id"]) == "delivered")
        back = run_json("send", order, "--to", "globex", "-c", folders["three"])["messages"][0]
        wait_until(lambda: state_of(folders["three"], back["message_id"]) == "delivered")
        assert len(run_json("inbox", "-c", folders["three"])["messages"]) == 9


def change(party: Path, setting: str, value: str) -> None:
    file = party / "oncewire.toml"
    file.write_text(with_values(file.read_text(), {setting: value}))


def state_of(party: Path, message_id: str) -> str:
    return str(run_json("show", message_id, "-c", party)["state"])


def start(stack: ExitStack, *words: str) -> subprocess.Popen[bytes]:
    """Run a program until the end of the test."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process

"""The container files: what they run exists, as no root, and writes to the party's folder alone."""

import json
import re
import shlex

import pytest
import yaml

from tests.entry.terminal import whole_command
from tests.parts import ROOT

CONTAINER = (ROOT / "packaging" / "Containerfile").read_text()
COMPOSE = (ROOT / "packaging" / "compose.yaml").read_text()


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


@pytest.mark.parametrize("text", [CONTAINER, COMPOSE])
def test_the_commands_in_their_comments_are_understood(text: str) -> None:
    for line in re.findall(r"^#   (oncewire .*)$", text, re.MULTILINE):
        for words in " ".join(shlex.split(line)).split(" && "):
            _, group, *rest = words.split()
            command = whole_command().commands[group]
            if hasattr(command, "commands"):
                command, rest = command.commands[rest[0]], rest[1:]
            command.make_context(group, rest, resilient_parsing=False)

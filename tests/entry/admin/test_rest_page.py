"""docs/reference/rest.md: its commands and its program, run as they are printed."""

import asyncio
import re
import shlex
import shutil
import subprocess
import textwrap

import pytest

import oncewire
from oncewire.entry.party.settings import KEYS
from tests.entry.admin.conftest import READ_TAKE_SUBMIT, Rest
from tests.entry.terminal import run
from tests.parts import ROOT

pytestmark = pytest.mark.process

TEXT = (ROOT / "docs" / "reference" / "rest.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_every_setting_of_the_page_is_one() -> None:
    assert set(re.findall(r"`(admin\.\w+)`", TEXT)) <= set(KEYS)


def test_its_commands_and_its_program_do_what_it_says(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = rest.settings.folder
    monkeypatch.chdir(acme)
    tokens, calls = _blocks("sh")
    for line in tokens.splitlines():
        run(*shlex.split(line)[1:])
    secret = rest.token("reader", READ_TAKE_SUBMIT)
    (acme / "order.xml").write_text("<order/>")
    if shutil.which("curl"):
        for line in calls.replace("8610", str(rest.settings.admin.port)).splitlines():
            # One that listens for ever is given up after a moment.
            line = line.replace("curl", "curl -sS --max-time 3", 1)
            done = subprocess.run(
                ["/bin/sh", "-c", line], env={"TOKEN": secret, "PATH": "/usr/bin:/bin"},
                capture_output=True, text=True, cwd=acme, check=False,
            )  # fmt: skip
            assert done.returncode == (28 if "/events" in line else 0), done.stderr
            assert "problem" not in done.stdout, done.stdout
    (program,) = _blocks("python")
    program = program.replace("8610", str(rest.settings.admin.port))
    space: dict[str, object] = {"oncewire": oncewire, "token": secret}
    exec("async def work():\n" + textwrap.indent(program, "    "), space)
    asyncio.run(space["work"]())  # type: ignore[operator]

"""Running the command line in tests: in this process, or as a real one."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer.testing
from typer.testing import CliRunner, Result

from oncewire.entry.cli import output
from oncewire.entry.cli.main import build

# Making the parser of every command takes twenty times as long as running one.
typer.testing._get_command = functools.cache(typer.testing._get_command)
command_line = functools.cache(build)


def whole_command() -> Any:
    """`oncewire` as the parser knows it, with every command below it."""
    return typer.testing._get_command(command_line())


def run(*words: str | Path, exit_code: int | None = 0) -> Result:
    """Run a command in this process; `exit_code` None leaves the judgement to the caller. That no
    handler runs is no fault of `status` and `doctor`, unless a test says that it is."""
    result = CliRunner().invoke(command_line(), [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    at_rest = exit_code == output.OK and words[0] in ("status", "doctor")
    if exit_code is not None and not (at_rest and result.exit_code == output.NOT_RUNNING):
        assert result.exit_code == exit_code, result.output + result.stderr
    return result


def run_json(*words: str | Path, exit_code: int | None = 0) -> dict[str, Any]:
    """The same with --json, read."""
    found = json.loads(run(*words, "--json", exit_code=exit_code).stdout)
    assert isinstance(found, dict)
    return found


def process(
    *words: str | Path, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m oncewire` as a user would, with an empty home."""
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("ONCEWIRE_")
    }
    home = str(cwd or Path.cwd())
    return subprocess.run(
        [sys.executable, "-m", "oncewire", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environ | {"HOME": home} | variables,
        check=False,
        timeout=120,
    )

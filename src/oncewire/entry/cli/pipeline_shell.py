"""`oncewire pipeline shell`: commands of the pipeline line by line, in one session of Spark."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator

import typer

from oncewire.entry.cli import output
from oncewire.errors import InvalidValue, NotAllowed, OncewireError

PROMPT = "pipeline> "
ENDS = ("exit", "quit")

Run = Callable[[list[str]], None]


def read_commands(run: Run) -> None:
    """Run what stands on stdin, line by line; a command that fails does not keep the next from
    running. Ends with the status of the first one that did not end well."""
    ended = output.OK
    for line in _lines():
        if line.split(maxsplit=1)[:1] in [[word] for word in ENDS]:
            break
        status = _status(line, run)
        ended = ended or status
    raise typer.Exit(ended)


def _lines() -> Iterator[str]:
    """Each line as it comes: whoever pipes sees the answer before the next one is written."""
    prompts = sys.stdin.isatty()
    while True:
        if prompts:
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        yield line


def _status(line: str, run: Run) -> int:
    """What the command of a line would have ended with by itself."""
    try:
        words = _words(line)
        if words:
            run(words)
    except OncewireError as error:
        try:
            output.fail(error)
        except typer.Exit as ended:
            return ended.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else output.OK
    return output.OK


def _words(line: str) -> list[str]:
    """The words of a line, without what it would begin with elsewhere; a comment has none."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        problem = f"{line.strip()!r} cannot be read: {error}"
        raise InvalidValue(problem, remedy="close what is quoted") from None
    for word in ("oncewire", "pipeline"):
        if words and words[0] == word:
            words = words[1:]
    if words and words[0] == "shell":
        raise NotAllowed("this is a shell already", remedy="give one of its commands; --help")
    return words

"""How a command answers: one model, shown as tables for people or as JSON for programs.

A command builds a `Report` and hands it to `answer`. Both forms come from that one value, so
nothing can be in the table that is not in the JSON. Every error says what is wrong, where, and
what to do next, and ends the process with a documented exit code:

    0  done, and all is well
    1  done, and something is wrong: a violation, a failed check, an undelivered message
    2  the input cannot be used: bad options, a bad file, a message with a fault
    3  no such file, party, agreement or message
    4  refused in the present state, or no permission
    5  the store or a transport cannot be used now
    130  interrupted
"""

from __future__ import annotations

import enum
import json as jsonlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from oncewire import errors
from oncewire.entry.cli.place import forget_place
from oncewire.entry.cli.placed import problem_placed, report_placed

if TYPE_CHECKING:
    from rich.console import Console

OK, WRONG, BAD_INPUT, NOT_FOUND, NOT_ALLOWED, TROUBLE = range(6)
INTERRUPTED = 130
_DOCUMENTED = range(BAD_INPUT, TROUBLE + 1)

_CODES: tuple[tuple[type[errors.OncewireError], int], ...] = (
    (errors.NotHere, NOT_FOUND),
    (errors.UnknownMessage, NOT_FOUND),
    (errors.NotAllowed, NOT_ALLOWED),
    (errors.StoreProblem, TROUBLE),
    (errors.TransportProblem, TROUBLE),
    (errors.HandlerFailed, errors.HandlerFailed.exit_code),
)

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys instead of showing it: control characters, and those that turn the order
of letters. Partners and files may hold them."""

Json = Annotated[bool, typer.Option("--json", help="Answer with JSON instead of tables.")]
"""The option that every command has."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where, and what to do next."""

    problem: str
    where: str = ""
    next: str = ""
    # The ebXML code it would be answered with on the wire, if it has one.
    code: str = ""

    def as_dict(self) -> dict[str, str]:
        """Without the parts that are empty."""
        pairs = (
            ("problem", self.problem),
            ("where", self.where),
            ("next", self.next),
            ("code", self.code),
        )
        return {name: value for name, value in pairs if value}


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of one kind: a table for people, a list of objects for programs."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    # What to say instead of an empty table.
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a command answers."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    listings: tuple[Listing, ...] = ()
    problems: tuple[Problem, ...] = ()
    # One sentence for people, after everything else; JSON has it as `summary`.
    summary: str = ""
    # What to run next, as commands; JSON has them as `next`.
    hints: tuple[str, ...] = ()
    exit_code: int = OK
    # Text that is the answer itself (a file's content): printed bare, `text` in JSON.
    text: str = ""
    # Reports of the same kind inside this one, under a name.
    parts: tuple[str, tuple[Report, ...]] = ("", ())
    # Whether the table leaves out facts that are empty; JSON always has them.
    sparse: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        found: dict[str, Any] = {"ok": self.exit_code == OK}
        found |= {name: plain(value) for name, value in self.facts.items()}
        for listing in self.listings:
            found[listing.name] = [
                dict(zip(listing.columns, map(plain, row), strict=True)) for row in listing.rows
            ]
        if self.parts[0]:
            found[self.parts[0]] = [part.as_dict() for part in self.parts[1]]
        if self.text:
            found["text"] = self.text
        if self.problems:
            found["problems"] = [problem.as_dict() for problem in self.problems]
        if self.summary:
            found["summary"] = self.summary
        if self.hints:
            found["next"] = list(self.hints)
        return found


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else str(value)


# --- answering ---------------------------------------------------------------------------------


def answer(work: Callable[[], Report], *, json: bool = False) -> None:
    """Do a command's work, show its report and end with its exit code."""
    forget_place()
    try:
        report = report_placed(work())
    except errors.OncewireError as error:
        fail(error, json=json)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    show(report, json=json)
    if report.exit_code != OK:
        raise typer.Exit(report.exit_code)


def show(report: Report, *, json: bool = False) -> None:
    """Print a report."""
    try:
        if json:
            _write_json(report.as_dict())
        else:
            _show_tables(report)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough; what is left has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_json(body: Mapping[str, Any]) -> None:
    text = jsonlib.dumps(body, indent=2, ensure_ascii=False)
    sys.stdout.write(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def fail(error: errors.OncewireError, *, json: bool = False) -> NoReturn:
    """Print an error and end with its exit code."""
    problem = problem_placed(problem_of(error))
    if json:
        _write_json({"ok": False, "problems": [problem.as_dict()]})
    else:
        _show_problem(console(sys.stderr), problem)
    raise typer.Exit(exit_code_of(error))


def exit_code_of(error: errors.OncewireError) -> int:
    """The documented exit code of an error: its own, where a process of ours ended with it."""
    own = getattr(error, "exit_code", None)
    if isinstance(own, int) and own in _DOCUMENTED:
        return own
    return next((code for kind, code in _CODES if isinstance(error, kind)), BAD_INPUT)


def problem_of(error: errors.OncewireError, where: str = "") -> Problem:
    """An error as a problem: its place is the ebXML location, the key, or what is given."""
    place = getattr(error, "location", "") or getattr(error, "key", "") or where
    code = getattr(error, "code", "") or getattr(error, "faultcode", "")
    return Problem(error.problem, place, error.remedy, code)


# --- for people --------------------------------------------------------------------------------


def console(stream: TextIO | None = None) -> Console:
    """A Rich console; NO_COLOR, a pipe or a dumb terminal gives plain text."""
    from rich.console import Console

    target = stream or sys.stdout
    width = None if target.isatty() else _wide(os.environ.get("COLUMNS"))
    return Console(file=target, width=width, highlight=False, soft_wrap=False, emoji=False)


def _wide(columns: str | None) -> int:
    # A pipe has no width: whoever reads it wants whole lines, not wrapped ones.
    return int(columns) if columns and columns.isdigit() else 200


def _show_tables(report: Report) -> None:
    if report.text:
        sys.stdout.write(report.text if report.text.endswith("\n") else report.text + "\n")
    out = console()
    facts = report.facts
    if report.sparse:
        facts = {name: value for name, value in facts.items() if not _empty(value)}
    if facts:
        _show_facts(out, facts)
    for part in report.parts[1]:
        out.rule(style="dim")
        _show_tables(part)
    for listing in report.listings:
        _show_listing(out, listing)
    for problem in report.problems:
        _show_problem(out, problem)
    if report.summary:
        style = "bold" if report.exit_code == OK else "bold red"
        # A summary may quote a partner, or a system's error with its number in brackets.
        out.print(_shown(report.summary), style=style, markup=False)
    for hint in report.hints:
        out.print(f"  next: {_shown(hint)}", style="dim", markup=False)


def _show_facts(out: Console, facts: Mapping[str, Any]) -> None:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(name.replace("_", " "), _cell(value))
    out.print(grid)


_NARROWEST = 6
"""Characters that a column of a table should have at least, beside ids."""


def _show_listing(out: Console, listing: Listing) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    if not listing.rows:
        if listing.empty:
            out.print(listing.empty, style="dim")
        return
    if _too_narrow(out, listing):
        _show_one_by_one(out, listing)
        return
    table = Table(
        box=SIMPLE_HEAD, title=_shown(listing.title) or None, title_justify="left", pad_edge=False
    )
    for column in listing.columns:
        # Ids are copied: no line ends within one.
        whole = column.endswith("_id")
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=whole)
    for row in listing.rows:
        table.add_row(*(_cell(value) for value in row))
    out.print(table)


def _too_narrow(out: Console, listing: Listing) -> bool:
    """Whether ids would not stay whole beside the other columns."""
    ids = [place for place, column in enumerate(listing.columns) if column.endswith("_id")]
    if not ids:
        return False
    needed = sum(max(len(_cell(row[place])) for row in listing.rows) for place in ids)
    others = len(listing.columns) - len(ids)
    return needed + others * _NARROWEST + 2 * len(listing.columns) > out.width


def _show_one_by_one(out: Console, listing: Listing) -> None:
    """A line for each value: for terminals that a table does not fit into."""
    wide = max(map(len, listing.columns))
    for row in listing.rows:
        for column, value in zip(listing.columns, row, strict=True):
            shown = column.replace("_", " ").ljust(wide)
            # The terminal breaks it where it must, and copies it as one line.
            out.print(f"{shown}  {_cell(value)}", soft_wrap=True, markup=False)
        out.print()


def _cell(value: Any) -> Any:
    from rich.text import Text

    # `Text` and not a string: what partners write must not be read as markup.
    found = plain(value)
    if found is None or found == "":
        return Text("-", style="dim")
    if isinstance(found, bool):
        return Text("yes" if found else "no")
    return Text(_shown(_one_line(found)) or "-")


def _shown(text: str) -> str:
    return _OBEYED.sub("?", text)


def _empty(value: Any) -> bool:
    return value is None or value is False or value in ("", [], (), {})


def _one_line(value: Any) -> str:
    """A nested value in one line: what is empty is left out, single words lose their name.

    A number keeps it: of what there are 13 is all that it says.
    """
    if isinstance(value, list):
        return ", ".join(_one_line(item) for item in value)
    if isinstance(value, dict):
        filled = {name: item for name, item in value.items() if not _empty(item)}
        if len(filled) == 1:
            only = next(iter(filled.values()))
            if not isinstance(only, int | float):
                return _one_line(only)
        return ", ".join(f"{name} {_one_line(item)}" for name, item in filled.items())
    return str(value)


def _show_problem(out: Console, problem: Problem) -> None:
    code = f" [{_shown(problem.code)}]" if problem.code else ""
    out.print(f"error{code}: {_shown(problem.problem)}", style="red", markup=False)
    if problem.where:
        out.print(f"  where: {_shown(problem.where)}", markup=False)
    if problem.next:
        out.print(f"  next:  {_shown(problem.next)}", markup=False)


SHOWN_ABOVE = 32 * 1024 * 1024
"""Bytes that take long enough to be told of."""


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Advance]:
    """A progress bar on stderr while something takes time; silent when nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, **_more: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console(sys.stderr)) as bar:
        task = bar.add_task(what, total=total)

        def advance(done: int, **more: Any) -> None:
            bar.update(task, advance=done, **more)

        yield advance


@contextmanager
def stages(what: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """The stages of a long work on stderr: a line that changes where somebody watches, else a line
    for each, with the seconds since the beginning."""
    if quiet or sys.stderr.isatty():
        with progress(what, quiet=quiet) as advance:
            yield lambda step: advance(1, description=step)
        return
    begun = time.monotonic()

    def tell(step: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - begun:6.1f} s] {step}\n")
        sys.stderr.flush()

    tell(what)
    yield tell
    tell("done")


@contextmanager
def bytes_progress(what: str, total: int, *, quiet: bool = False) -> Iterator[Advance]:
    """The same for bytes that are carried; where no terminal is there, a line now and then, and
    for what is small nothing at all."""
    if quiet or total < SHOWN_ABOVE:
        yield lambda _done, **_more: None
        return
    if not sys.stderr.isatty():
        yield _Lines(what, total)
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    more = (TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, *more, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, **_more: bar.update(task, advance=done)


class _Lines:
    """A line on stderr for each tenth of what is carried."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._done = self._told = 0

    def __call__(self, done: int, **_more: Any) -> None:
        self._done += done
        tenth = min(10, 10 * self._done // self._total)
        if tenth > self._told:
            self._told = tenth
            print(
                f"{self._what}: {self._done:,} of {self._total:,} bytes",
                file=sys.stderr,
                flush=True,
            )


Advance = Callable[..., None]
"""What `progress` yields: call it with how many more are done."""


def typed(path: Path | str) -> str:
    """A path as a word of a command that is typed here, whatever is in it."""
    return quote(here(Path(path)))


def here(path: Path) -> str:
    """A path as the reader would type it: relative where that is shorter."""
    try:
        relative = str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
    return relative if relative != "." else str(path)

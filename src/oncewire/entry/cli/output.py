"""How a command answers: one model, shown as tables for people or as JSON for programs.

A command builds a `Report` and hands it to `answer`. Both forms come from that one value, so
nothing can be in the table that is not in the JSON. Every error says what is wrong, where, and
what to do next, and ends the process with an exit code of the one table, `EXIT_CODES`.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json as jsonlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TextIO, TypeVar

import typer

from oncewire import errors
from oncewire.message.instant import Instant, moment

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

    from oncewire.entry.party.settings import Loaded, Settings


# Which party a command is about: the options that find its settings, and the clock.


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The party's folder or its oncewire.toml; without it the one here or above.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting for this run only, as name=value.", show_default=False),
]

P = ParamSpec("P")
R = TypeVar("R")

_GIVEN: ContextVar[Path | None] = ContextVar("given", default=None)
"""What the command that runs was told with `-c`."""

_BEFORE: ContextVar[Path | None] = ContextVar("before", default=None)
"""What `oncewire` was told with `-c` before the name of the command."""


def loaded(config: Path | None, given: list[str] | None = None) -> Loaded:
    """The settings in force for a command."""
    from oncewire.entry.party import settings

    config = config or _BEFORE.get()
    _GIVEN.set(config)
    return settings.load(config, flags=settings.flags_of(given or ()))


def set_place(config: Path | None) -> None:
    """`oncewire` begins, and was told of this party; a command's own `-c` counts before it."""
    _BEFORE.set(config)


def forget_place() -> None:
    """Another command begins, which was not told of any party yet."""
    _GIVEN.set(None)


def given_place() -> str:
    """What another command needs to find the party of this one; empty where it was not told."""
    config = _GIVEN.get()
    return "" if config is None else f" -c {quote(str(config))}"


def now() -> Instant:
    """This moment, from the one module that reads the clock."""
    from oncewire.handler.world import RealWorld

    return RealWorld().now()


# Commands that a sentence names, so that they find the party from here when they are pasted.
#
# Errors come from code that knows neither how the party was named nor of a command line.
# What a partner is to run is named without the quotes.


WITHOUT_PARTY = frozenset(
    {"init", "demo", "bench", "replay", "simulate", "version", "pipeline", "message decode",
     "message build", "agreement profiles"}
)  # fmt: skip
"""Commands that are about no party, or about those that are named otherwise."""

_COMMAND = re.compile(r"`oncewire ([^`]+)`")


def placed(sentence: str) -> str:
    """The sentence; a command in it gets the `-c` that this command was given."""
    place = given_place()
    return _COMMAND.sub(lambda found: _placed(found, place), sentence) if place else sentence


def _placed(found: re.Match[str], place: str) -> str:
    words = found[1].split()
    named = {words[0], " ".join(words[:2])}
    if named & WITHOUT_PARTY or {"-c", "--config", "..."} & set(words):
        return found[0]
    return f"`oncewire {found[1]}{place}`"


def problem_placed(problem: Problem) -> Problem:
    """The problem, its next step as it can be pasted."""
    return replace(problem, problem=placed(problem.problem), next=placed(problem.next))


def report_placed(report: Report) -> Report:
    """The report, its sentence and problems likewise; hints are made where the party is known."""
    problems = tuple(map(problem_placed, report.problems))
    listings = tuple(replace(each, empty=placed(each.empty)) for each in report.listings)
    return replace(report, summary=placed(report.summary), problems=problems, listings=listings)


OK, WRONG, BAD_INPUT, NOT_FOUND, NOT_ALLOWED, TROUBLE, NOT_RUNNING = range(7)
INTERRUPTED = 130

EXIT_CODES = {
    OK: "done, and all is well",
    WRONG: "done, and something is wrong: a violation, a failed check, an open incident, an "
    "undelivered message, evidence that proves nothing",
    BAD_INPUT: "the input cannot be used: bad options, a bad file, a message with a fault",
    NOT_FOUND: "no such file, party, agreement or message; `evidence`: no signature of the "
    "receiver, only that of a hub which took the message over",
    NOT_ALLOWED: "refused in the present state, or no permission",
    TROUBLE: "the store or a transport cannot be used now",
    NOT_RUNNING: "`status` and `doctor`: no handler runs, or it does not work",
    errors.HandlerFailed.exit_code: "a fault of Oncewire itself; `serve`: the handler failed, and "
    "is to be started again",
    INTERRUPTED: "interrupted",
}
"""With what a command ends, and what that means; `docs/howto/watching.md` has the same table."""

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

Csv = Annotated[bool, typer.Option("--csv", help="Answer with CSV: the list alone.")]
"""The option of commands whose answer is a list."""

Replace = Annotated[bool, typer.Option("--replace", help="Write an existing agreement anew.")]
"""The option of commands that write an agreement."""


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

    @classmethod
    def of(
        cls, name: str, columns: str, items: Iterable[Any], *, title: str = "", empty: str = ""
    ) -> Listing:
        """A row for each item. `columns` are the names of its attributes, with blanks between them;
        `column=attribute` where they differ, and `column=attribute@` where it is an instant."""
        told = _columns(columns)
        rows = [
            [moment(read(item)) if is_instant else read(item) for _, read, is_instant in told]
            for item in items
        ]
        return cls(name, [column for column, *_ in told], rows, title, empty)


def facts_of(item: object, names: str) -> dict[str, Any]:
    """Attributes of an item by their names, which are written as the columns of a listing."""
    return {
        name: moment(read(item)) if is_instant else read(item)
        for name, read, is_instant in _columns(names)
    }


def _columns(words: str) -> list[tuple[str, Callable[[Any], Any], bool]]:
    """Each name, what reads it of an item, and whether that is an instant."""
    return [
        (name or place, attrgetter(place.rstrip("@")), place.endswith("@"))
        for name, _, place in (word.rpartition("=") for word in words.split())
    ]


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
    # What people are shown in place of facts, listings and parts, within `BRIEF_WIDTH` columns;
    # JSON has all of them.
    brief: Listing | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        found: dict[str, Any] = {"ok": self.exit_code == OK}
        found |= {name: plain(value) for name, value in self.facts.items()}
        for listing in (*self.listings, *([self.brief] if self.brief else [])):
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


@dataclass(frozen=True, slots=True)
class Given:
    """Marks a parameter whose value is made from options of the command; `answers` adds them."""

    options: tuple[inspect.Parameter, ...]
    # Makes it of the values of the options; `json`: whether programs are to read the answer.
    make: Callable[..., Any]


def parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    """A parameter of a command, as Typer reads it."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


Party = Annotated[
    "Settings",
    Given((parameter("config", Config, None),), lambda *, config, json: loaded(config).settings),  # noqa: ARG005
]
"""The settings of the party that a command is about, which --config names."""


# --- answering ---------------------------------------------------------------------------------


def answer(work: Callable[[], Report], *, json: bool = False, csv: bool = False) -> None:
    """Do a command's work, show its report and end with its exit code. As CSV its first list is
    shown alone."""
    if json and csv:
        error = errors.InvalidValue("--json and --csv are two forms", remedy="choose one of them")
        fail(error, json=json)
    forget_place()
    try:
        report = report_placed(work())
    except errors.OncewireError as error:
        fail(error, json=json)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    show(report, json=json, csv=csv)
    if report.exit_code != OK:
        raise typer.Exit(report.exit_code)


def answers(command: Callable[P, Report]) -> Callable[P, None]:
    """Decorate a command that makes a report: show it, and end with its exit code.

    A command that does not take `json` itself gets that option here, as it gets those of which a
    parameter that is `Given` is made.
    """
    return _answering(command, {"json": Json})


def lists(command: Callable[P, Report]) -> Callable[P, None]:
    """Like `answers`, for a command whose answer is a list: it can be had as CSV, too."""
    return _answering(command, {"json": Json, "csv": Csv})


def _answering(command: Callable[P, Report], forms: dict[str, Any]) -> Callable[P, None]:
    signature = inspect.signature(command, eval_str=True)
    made: dict[str, Given] = {}
    parameters = []
    for each in signature.parameters.values():
        for mark in getattr(each.annotation, "__metadata__", ()):
            if isinstance(mark, Given):
                made[each.name] = mark
        if each.name not in made:
            parameters.append(each)
    # The forms of the answer come last.
    end = len(parameters) - ("json" in signature.parameters)
    parameters[end:end] = [option for mark in made.values() for option in mark.options]
    added = {name: kind for name, kind in forms.items() if name not in signature.parameters}
    parameters += [parameter(name, kind, False) for name, kind in added.items()]

    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        given: dict[str, Any] = dict(options)
        chosen = {name: bool(given.get(name)) for name in forms}
        for name in added:
            given.pop(name, None)

        def work() -> Report:
            for name, mark in made.items():
                values = {each.name: given.pop(each.name, each.default) for each in mark.options}
                given[name] = mark.make(**values, json=chosen["json"])
            return command(*args, **given)

        answer(work, **chosen)

    return with_parameters(run, parameters)


def unless_named(command: Callable[..., None]) -> Callable[..., None]:
    """The command of a group itself: it runs where no subcommand is given."""

    def run(context: typer.Context, **options: Any) -> None:
        if context.invoked_subcommand is None:
            command(**options)

    run.__doc__ = command.__doc__
    parameters = inspect.signature(command).parameters.values()
    return with_parameters(run, [parameter("context", typer.Context), *parameters])


def add_group(
    app: typer.Typer,
    name: str,
    says: str,
    commands: Mapping[str, Callable[..., None]],
    itself: Callable[..., None] | None = None,
) -> None:
    """Add a group of commands; `itself`: what it does where none of them is named."""
    group = typer.Typer(help=says, no_args_is_help=itself is None)
    if itself is not None:
        group.callback(invoke_without_command=True)(unless_named(itself))
    for word, command in commands.items():
        group.command(word)(command)
    app.add_typer(group, name=name)


def with_parameters(run: Callable[P, R], parameters: Iterable[inspect.Parameter]) -> Callable[P, R]:
    """A function that Typer takes to have these parameters."""
    listed = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in listed}
    return run


def show(report: Report, *, json: bool = False, csv: bool = False) -> None:
    """Print a report."""
    try:
        if json:
            _write_json(report.as_dict())
        elif csv:
            _write_csv(report.listings[0])
        else:
            _show_tables(report)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough; what is left has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_json(body: Mapping[str, Any]) -> None:
    text = jsonlib.dumps(body, indent=2, ensure_ascii=False)
    sys.stdout.write(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _write_csv(listing: Listing) -> None:
    """A list as a spreadsheet reads it. What a partner wrote is no formula of ours: a text that
    would be one gets an apostrophe before it."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(listing.columns)
    for row in listing.rows:
        cells = [_one_line(plain(value)) if value is not None else "" for value in row]
        writer.writerow(
            f"'{cell}" if isinstance(value, str) and cell.startswith(_FORMULA) else _shown(cell)
            for value, cell in zip(row, cells, strict=True)
        )


def fail(error: errors.OncewireError, *, json: bool = False) -> NoReturn:
    """Print an error and end with its exit code."""
    show_failure(problem_of(error), json=json)
    raise typer.Exit(exit_code_of(error))


def show_failure(problem: Problem, *, json: bool = False) -> None:
    """Print what is wrong."""
    problem = problem_placed(problem)
    if json:
        _write_json({"ok": False, "problems": [problem.as_dict()]})
    else:
        _show_problem(console(sys.stderr), problem)


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
    # A pipe has no width: its reader wants whole lines, not wrapped ones.
    columns = os.environ.get("COLUMNS")
    width = None if target.isatty() else (int(columns) if columns and columns.isdigit() else 200)
    return Console(file=target, width=width, highlight=False, soft_wrap=False, emoji=False)


def _show_tables(report: Report) -> None:
    if report.text:
        sys.stdout.write(report.text if report.text.endswith("\n") else report.text + "\n")
    out = console()
    if report.brief is not None:
        out.width = min(out.width, BRIEF_WIDTH)
        _show_listing(out, report.brief)
        report = replace(report, facts={}, listings=(), parts=("", ()))
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
    from rich.text import Text

    wide = max(map(len, facts))
    for name, value in facts.items():
        # Ids and fingerprints are copied: the terminal breaks a line where it must, and nothing
        # is put into it.
        shown = Text(name.replace("_", " ").ljust(wide), style="cyan")
        out.print(shown + "  " + _cell(value), soft_wrap=True)


BRIEF_WIDTH = 80
"""Columns of a terminal as it opens."""


def _show_listing(out: Console, listing: Listing) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    if not listing.rows:
        if listing.empty:
            out.print(listing.empty, style="dim")
        return
    # The length of the longest word of each column.
    columns = zip(listing.columns, zip(*listing.rows, strict=True), strict=True)
    longest = [
        max(
            len(word)
            for cell in (column.replace("_", " "), *map(_cell, cells))
            for word in (str(cell).split() or "")
        )
        for column, cells in columns
    ]
    if sum(longest) + 3 * len(longest) > out.width:
        # Words would break inside their cells.
        # A line for each value: for terminals that a table does not fit into.
        wide = max(map(len, listing.columns))
        for row in listing.rows:
            for column, value in zip(listing.columns, row, strict=True):
                shown = column.replace("_", " ").ljust(wide)
                # The terminal breaks it where it must, and copies it as one line.
                out.print(f"{shown}  {_cell(value)}", soft_wrap=True, markup=False)
            out.print()
        return
    table = Table(
        box=SIMPLE_HEAD, title=_shown(listing.title) or None, title_justify="left", pad_edge=False
    )
    for column, width in zip(listing.columns, _widths(out, listing, longest), strict=True):
        table.add_column(column.replace("_", " "), overflow="fold", width=width)
    for row in listing.rows:
        table.add_row(*(_cell(value) for value in row))
    out.print(table)


def _widths(out: Console, listing: Listing, longest: list[int]) -> list[int]:
    """The width of each column: its longest word at least, and what is left shared out."""
    cells = zip(listing.columns, zip(*listing.rows, strict=True), strict=True)
    wanted = [max(len(str(_cell(value))) for value in (name, *values)) for name, values in cells]
    widths, left = list(longest), out.width - sum(longest) - 3 * len(longest)
    by_need = sorted(range(len(widths)), key=lambda place: wanted[place] - longest[place])
    for others, place in zip(range(len(widths), 0, -1), by_need, strict=True):
        more = min(wanted[place] - longest[place], left // others)
        widths[place] += more
        left -= more
    return widths


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


def _silent(_done: int, **_more: Any) -> None:
    """The progress of what nobody watches."""


@contextmanager
def _bar(what: str, total: int | None, *columns: ProgressColumn, **looks: Any) -> Iterator[Advance]:
    from rich.progress import BarColumn, Progress, TextColumn

    first = (TextColumn("{task.description}"), BarColumn())
    with Progress(*first, *columns, console=console(sys.stderr), **looks) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, **more: bar.update(task, advance=done, **more)


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Advance]:
    """A progress bar on stderr while something takes time; silent where there is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield _silent
        return
    from rich.progress import MofNCompleteColumn, TimeElapsedColumn

    with _bar(what, total, MofNCompleteColumn(), TimeElapsedColumn()) as advance:
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
        print(f"[{time.monotonic() - begun:6.1f} s] {step}", file=sys.stderr, flush=True)

    tell(what)
    yield tell
    tell("done")


@contextmanager
def bytes_progress(what: str, total: int, *, quiet: bool = False) -> Iterator[Advance]:
    """How far bytes are carried: a bar or, where no terminal is there, a line for each tenth; for
    what is small nothing at all."""
    if quiet or total < SHOWN_ABOVE:
        yield _silent
        return
    if sys.stderr.isatty():
        from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

        columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with _bar(what, total, *columns, transient=True) as advance:
            yield advance
        return
    carried = told = 0

    def line(done: int, **_more: Any) -> None:
        nonlocal carried, told
        carried += done
        if (tenth := min(10, 10 * carried // total)) > told:
            told = tenth
            print(f"{what}: {carried:,} of {total:,} bytes", file=sys.stderr, flush=True)

    yield line


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


# Which party a command of a hint is about, and whether it has a store.


def at_party(settings: Settings) -> str:
    """What to add to a command so that it finds this party from here."""
    here_already = Path.cwd() == settings.folder
    return "" if here_already else f" -c {typed(settings.folder)}"


def has_store(settings: Settings) -> bool:
    """Whether the party ever sent or received anything, as far as its folder knows."""
    from oncewire.entry.party.store import read_record

    return read_record(settings) is not None or settings.path(settings.store.path).is_file()

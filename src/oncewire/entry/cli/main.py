"""The `oncewire` command: gathers the groups of commands and keeps surprises from the user.

Each module of `GROUPS` has a `register(app)` that adds its commands. `oncewire --help` imports all
of them, so they import nothing heavy at their top: what a command needs is imported inside it. A
start that begins with the name of a command imports only the module that brings it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from oncewire import __version__
from oncewire.entry.cli import output

GROUPS: dict[str, tuple[str, ...]] = {
    "entry.cli.partners": ("init", "partner", "keys"),
    "entry.cli.serve": ("serve", "stop"),
    "entry.cli.config": ("config", "console", "token"),
    "entry.cli.outbox_inbox": ("send", "find", "outbox", "inbox"),
    "entry.cli.history": ("show", "why", "evidence", "verify"),
    "entry.cli.operator": (
        "status", "incidents", "resend", "notices", "ask", "resume", "pause", "restart", "abandon",
        "hold", "release", "clock",
    ),
    "entry.cli.doctor": ("upgrade", "doctor", "ping", "backup", "store"),
    "lab.cli.demo": ("demo",),
    "lab.cli.bench": ("bench",),
    "entry.cli.agreements": ("agreement",),
    "entry.cli.message": ("replay", "message"),
    "lab.cli.simulate": ("simulate",),
    "entry.cli.pipeline": ("pipeline",),
    "lab.cli.generate": ("pipeline",),
}  # fmt: skip
"""The modules that bring commands, and the first words of those. Those of `lab` are the
laboratory's: nothing else of the product names them."""

PANELS = {
    "Start": ("init", "serve", "console", "stop", "upgrade", "store", "demo", "version"),
    "Messages": ("send", "find", "outbox", "show", "why", "resend", "inbox", "notices", "message"),
    "Trouble": (
        "status", "incidents", "doctor", "ask", "resume", "pause", "restart", "abandon", "clock",
    ),
    "Partners and keys": ("ping", "partner", "keys", "token", "agreement", "config"),
    "Audit": ("verify", "evidence", "hold", "release", "backup", "pipeline"),
    "Lab": ("simulate", "replay", "bench"),
}  # fmt: skip
"""The groups of `oncewire --help`, each with its commands in their order."""

INTERNAL_ERROR = 70
DEBUG_VARIABLE = "ONCEWIRE_DEBUG"

_EPILOG = (
    f"Exit status: {'; '.join(f'{code} {said}' for code, said in output.EXIT_CODES.items())}. "
    "Settings: oncewire.toml, then ONCEWIRE_* variables, then flags. NO_COLOR turns colours off."
)


def build(word: str = "") -> typer.Typer:
    """The command line: what brings the command that begins with the word, or the whole."""
    app = typer.Typer(
        name="oncewire",
        cls=_Root,
        help="Business documents between companies: once and only once, or someone is told; in "
        "order where the agreement asks for it. Begin with `oncewire init`.",
        epilog=_EPILOG,
        no_args_is_help=True,
        # Rich tracebacks show local variables, and those may be payloads or keys.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    bringing = [name for name, words in GROUPS.items() if word in words]
    for name in bringing or GROUPS:
        importlib.import_module(f"oncewire.{name}").register(app)
    app.command("version")(version)
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    order = list(panels)
    for command in app.registered_commands:
        command.rich_help_panel = panels[command.name or ""]
    for group in app.registered_groups:
        group.rich_help_panel = panels[group.name or ""]
    app.registered_commands.sort(key=lambda command: order.index(command.name or ""))
    app.registered_groups.sort(key=lambda group: order.index(group.name or ""))
    return app


_WRONG_USAGE: Any = typer.BadParameter.__base__
"""Click's UsageError; Typer brings a Click of its own, and says so by no public name."""


class _Root(typer.core.TyperGroup):
    """`oncewire` itself: a program that asks for JSON gets it of wrong usage too."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        """Run a command."""
        words = list(sys.argv[1:] if args is None else args)
        if "--json" not in words or options.get("standalone_mode") is False:
            return super().main(args, *more, **options)
        try:
            code = super().main(args, *more, **options | {"standalone_mode": False})
        except _WRONG_USAGE as error:
            context = getattr(error, "ctx", None)
            command = "oncewire" if context is None else context.command_path
            told = output.Problem(str(error), next=f"see `{command} --help`")
            output.show_failure(told, json=True)
            sys.exit(output.BAD_INPUT)
        except typer.Abort:
            sys.exit(output.WRONG)
        sys.exit(code or 0)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"oncewire {__version__}")
        raise typer.Exit


def _root(
    config: output.Config = None,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Business documents between companies: once and only once, or someone is told.

    They arrive in order where the agreement asks for it. Begin with `oncewire init`.
    """
    output.set_place(config)


@output.answers
def version() -> output.Report:
    """Show the version of Oncewire and of what it stands on."""

    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    facts = {"oncewire": __version__, "python": platform.python_version()}
    for name in ("aiohttp", "apsw", "cryptography", "lxml", "pyspark"):
        try:
            facts[name] = installed(name)
        except PackageNotFoundError:
            facts[name] = ""
    return output.Report(facts)


def main() -> None:
    """Run the command line; whatever goes wrong ends in words and an exit status."""
    try:
        build(next(iter(sys.argv[1:]), ""))()
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        name = type(error).__name__
        sys.stderr.write(
            f"error: a fault in Oncewire itself ({name}): {str(error)[:300]}\n"
            f"  next:  run it again with {DEBUG_VARIABLE}=1 and report what it prints\n"
        )
        sys.exit(INTERNAL_ERROR)

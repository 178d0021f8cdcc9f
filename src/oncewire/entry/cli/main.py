"""The `oncewire` command: gathers the groups of commands and keeps surprises from the user.

Each module of `GROUPS` has a `register(app)` that adds its commands. It is imported at every
start, so it imports nothing heavy at its top: what a command needs is imported inside it.
"""

from __future__ import annotations

import importlib
import os
import sys

import typer

from oncewire import __version__
from oncewire.entry.cli import output

GROUPS = (
    "entry.cli.partners",
    "entry.cli.serve",
    "entry.cli.send",
    "entry.cli.outbox_inbox",
    "entry.cli.history",
    "entry.cli.verify",
    "entry.cli.operator",
    "entry.cli.verbs",
    "entry.cli.doctor",
    "lab.cli.demo",
    "lab.cli.bench",
    "entry.cli.agreements",
    "entry.cli.message",
    "entry.cli.config",
    "entry.cli.tokens",
    "lab.cli.simulate",
    "entry.cli.pipeline",
    "lab.cli.generate",
)
"""The modules that bring commands, in the order of `oncewire --help`. Those of `lab` are the
laboratory's: nothing else of the product names them."""

INTERNAL_ERROR = 70
DEBUG_VARIABLE = "ONCEWIRE_DEBUG"

_EPILOG = (
    "Exit status: 0 all is well; 1 done, but something is wrong; 2 the input cannot be used; "
    "3 not found; 4 not allowed now; 5 store or transport trouble; 70 a fault of Oncewire itself; "
    "130 interrupted. "
    "Settings: oncewire.toml, then ONCEWIRE_* variables, then flags. NO_COLOR turns colours off."
)


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="oncewire",
        help="Business documents between companies: once and only once, or someone is told; in "
        "order where the agreement asks for it. Begin with `oncewire init`.",
        epilog=_EPILOG,
        no_args_is_help=True,
        # Rich tracebacks show local variables, and those may be payloads or keys.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for group in GROUPS:
        name = f"oncewire.{group}"
        importlib.import_module(name).register(app)
    app.command("version")(version)
    return app


def _root() -> None:
    """Business documents between companies: once and only once, or someone is told.

    They arrive in order where the agreement asks for it. Begin with `oncewire init`.
    """


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
        build()()
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        name = type(error).__name__
        sys.stderr.write(
            f"error: a fault in Oncewire itself ({name}): {str(error)[:300]}\n"
            f"  next:  run it again with {DEBUG_VARIABLE}=1 and report what it prints\n"
        )
        sys.exit(INTERNAL_ERROR)

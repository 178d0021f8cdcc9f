"""`oncewire token ...`: who may call the admin port, and in which roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Config, Listing, Report, loaded
from oncewire.entry.control.verb import Permission

if TYPE_CHECKING:
    from pathlib import Path

    from oncewire.entry.admin.tokens import TokenFile

Name = Annotated[str, typer.Argument(help="Whose token it is; the journal names it as `by`.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Tokens of the admin port (REST).", no_args_is_help=True)
    group.command("add")(add)
    group.command("list")(listed)
    group.command("remove")(remove)
    app.add_typer(group, name="token")


@output.answers
def add(
    name: Name,
    role: Annotated[
        list[Permission], typer.Option("--role", help="What it may do; several are given apart.")
    ],
    config: Config = None,
) -> Report:
    """Make a token. Its secret is shown this once: only its hash is kept."""
    secret = _file(config).add(name, role)
    return Report(
        {"name": name, "roles": sorted(role), "token": secret},
        summary="Keep the token where only its owner can read it; it is not shown again.",
    )


@output.answers
def listed(config: Config = None) -> Report:
    """List the tokens and their roles."""
    rows = [(token.name, ", ".join(sorted(token.roles))) for token in _file(config).tokens()]
    listing = Listing("tokens", ("name", "roles"), rows, empty="There is no token.")
    return Report(listings=(listing,))


@output.answers
def remove(name: Name, config: Config = None) -> Report:
    """Remove a token: who has it is refused from now on."""
    _file(config).remove(name)
    return Report({"name": name}, summary="Removed.")


def _file(config: Path | None) -> TokenFile:
    from oncewire.entry.admin.tokens import TokenFile

    settings = loaded(config).settings
    return TokenFile(settings.path(settings.admin.tokens))

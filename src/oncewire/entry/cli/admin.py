"""`oncewire token ...` and `oncewire console`: who may call the admin port, by a program or in a
browser, and in which roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Config, Listing, Report, loaded, now
from oncewire.entry.control.verb import Permission
from oncewire.entry.control.verbs import user_name
from oncewire.errors import NotAllowed
from oncewire.message.instant import format_duration

if TYPE_CHECKING:
    from pathlib import Path

    from oncewire.entry.admin.tokens import TokenFile
    from oncewire.entry.party.settings import Settings

Name = Annotated[str, typer.Argument(help="Whose token it is; the journal names it as `by`.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Tokens of the admin port (REST).", no_args_is_help=True)
    group.command("add")(add)
    group.command("list")(listed)
    group.command("remove")(remove)
    app.add_typer(group, name="token")
    app.command("console")(console)


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


@output.answers
def console(
    role: Annotated[
        list[Permission] | None,
        typer.Option("--role", help="What it may do besides looking; several are given apart."),
    ] = None,
    by: Annotated[
        str, typer.Option(help="Who signs in; without it, your user name in the operating system.")
    ] = "",
    config: Config = None,
) -> Report:
    """Make a link that signs a browser in to the console, once and within minutes.

    Without --role the pages can only be looked at. `--role operate` lets the browser resend,
    resume, pause, abandon and hold, take partners and change our key; `--role take` shows
    documents and gives out evidence.
    """
    settings = loaded(config).settings
    link = link_to(settings, role or (), by or user_name())
    until = format_duration(settings.console.link_for)
    return Report(
        {"console": link, "roles": sorted({Permission.LOOK, *(role or ())})},
        summary=f"Open it in a browser; it can be used once, within {until}.",
    )


def link_to(settings: Settings, roles: list[Permission] | tuple[Permission, ...], by: str) -> str:
    """A new link to the console of a party."""
    from oncewire.entry.console.sign_in import SignIns

    admin, said = settings.admin, settings.console
    if not admin.port:
        raise NotAllowed(
            "the party has no admin port, and the console is served there",
            remedy="set port in [admin] of oncewire.toml, as in `port = 8610`, and start it anew",
        )
    path = settings.path(said.sign_ins)
    secret = SignIns(path, said.link_for, said.session_for).add_link(by, roles, now())
    host = f"[{admin.host}]" if ":" in admin.host else admin.host
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104
    name = admin.names[0] if admin.names and admin.certificate else host
    scheme = "https" if admin.certificate else "http"
    # Behind #, so that it stands in no log and no Referer.
    return f"{scheme}://{name}:{admin.port}/console/sign-in#{secret}"

"""`oncewire console`: a link by which a browser signs in to the pages of a running party."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Config, Report, loaded, now
from oncewire.entry.control.verb import Permission
from oncewire.entry.control.verbs import user_name

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("console")(console)


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
    from oncewire.message.instant import format_duration

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
    from oncewire.errors import NotAllowed

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

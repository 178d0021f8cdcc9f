"""`oncewire keys ...`: a party's own key, and how it is changed without a gap."""

from __future__ import annotations

from shlex import quote

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.listing import at_party
from oncewire.entry.cli.output import Json, Report, here
from oncewire.entry.cli.party import taken_over
from oncewire.entry.cli.place import Config, loaded, now


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    keys = typer.Typer(help="Our own key: look at it, or change it.", no_args_is_help=True)
    keys.command("show")(show)
    keys.command("next")(make_next)
    keys.command("switch")(switch)
    app.add_typer(keys, name="keys")


def show(config: Config = None, json: Json = False) -> None:
    """Show our certificate: its fingerprint, and how long it is valid."""

    def work() -> Report:
        from oncewire.entry.party.keys import describe_keys
        from oncewire.message.instant import format_instant

        settings = loaded(config).settings
        pair = describe_keys(
            settings.path(settings.keys.certificate), settings.path(settings.keys.key)
        )
        return Report(
            {
                "certificate": str(pair.certificate),
                "fingerprint": pair.fingerprint,
                "subject": pair.subject,
                "valid_until": format_instant(pair.not_after)[:10],
            }
        )

    output.answer(work, json=json)


def make_next(config: Config = None, json: Json = False) -> None:
    """Make the key that will follow ours. Nothing changes yet but our card.

    The card then carries both certificates. Send it to every partner, who runs `oncewire
    partner add CARD --roll-over` and believes both; then `oncewire keys switch`.
    """

    def work() -> Report:
        from oncewire.entry.party.rolling import make_next_keys

        settings = loaded(config).settings
        made = make_next_keys(settings, now())
        return Report(
            {"certificate": str(made.certificate), "fingerprint": made.fingerprint},
            summary="The next key is made; partners do not know it yet.",
            hints=(
                f"oncewire partner card -o CARD{at_party(settings)}",
                "every partner runs: oncewire partner add CARD --roll-over",
                f"then: oncewire keys switch{at_party(settings)}",
            ),
        )

    output.answer(work, json=json)


def switch(config: Config = None, json: Json = False) -> None:
    """Use the next key from now on; a handler that runs takes it over at once."""

    def work() -> Report:
        from oncewire.entry.party.rolling import switch_keys

        settings = loaded(config).settings
        used = switch_keys(settings)
        taken_over(settings)
        drop = f"oncewire partner revoke {quote(settings.party.name)} --all-but-newest"
        return Report(
            {"certificate": str(used.certificate), "fingerprint": used.fingerprint},
            summary=f"{here(used.certificate)} is our certificate now.",
            hints=(f"partners may drop the old one: {drop}",),
        )

    output.answer(work, json=json)

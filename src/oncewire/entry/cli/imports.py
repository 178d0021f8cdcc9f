"""`oncewire agreement import`: a partner's CPA becomes an agreement of the party."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.listing import at_party
from oncewire.entry.cli.output import Json, Listing, Report, typed
from oncewire.entry.cli.place import Config, loaded, now

if TYPE_CHECKING:
    from oncewire.entry.party.importing import Understood
    from oncewire.entry.party.settings import Settings


def import_cpa(
    file: Annotated[Path, typer.Argument(help="The CPA: CPPA 2.0 XML, as partners exchange it.")],
    own: Annotated[
        str,
        typer.Option(
            "--own",
            help="Which party of it we are: its PartyId. Without it, the one with our PartyId, "
            "name or certificate.",
        ),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Install nothing; print all that was understood.")
    ] = False,
    name: Annotated[
        str, typer.Option("--name", help="How we call the partner; without it, as the CPA does.")
    ] = "",
    profile: Annotated[
        str, typer.Option(help="What holds where the CPA is silent, as `agreement profiles` lists.")
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Write an existing agreement anew.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Take a CPA that a partner gave us: from then on messages are exchanged under it.

    The CPA's certificates are believed, its addresses used, its dates kept. What it asks for and
    is not built is named, and the CPA refused if nothing could be exchanged without it. With
    --check nothing is written, and every value is printed with the place where the CPA says it.
    """

    def work() -> Report:
        from oncewire.entry.party.importing import understand

        settings = _settings(config, needed=not check)
        found = understand(file, settings, now(), own=own, profile=profile)
        if check or settings is None:
            return _looked_at(file, found)
        return _installed(settings, found, name=name, profile=profile, replace=replace)

    output.answer(work, json=json)


def _settings(config: Path | None, *, needed: bool) -> Settings | None:
    """The party's settings; a CPA can be looked at without any."""
    from oncewire.errors import NotHere

    try:
        return loaded(config).settings
    except NotHere:
        if needed:
            raise
        return None


def _facts(found: Understood) -> dict[str, object]:
    agreement = found.agreement
    return {
        "cpa_id": agreement.cpa_id,
        "own": found.own.spelled,
        "own_found_by": found.because,
        "partner": agreement.partner.party.ids[0].spelled,
        "profile": agreement.profile,
    }


def _findings(found: Understood) -> Listing:
    columns = ("severity", "key", "sentence", "fix", "scopes")
    rows = [
        (finding.severity, finding.key, finding.sentence, finding.fix, finding.scopes)
        for finding in found.findings
    ]
    return Listing("findings", columns, rows, empty="Nothing to say against it.")


def _looked_at(file: Path, found: Understood) -> Report:
    from oncewire.agreement.show import rows

    columns = ("scope", "key", "value", "origin", "where", "says")
    values = [
        (row.scope, row.key, row.value, row.origin, row.where, row.says)
        for row in rows(found.agreement)
    ]
    return Report(
        {"file": str(file), **_facts(found)},
        (Listing("values", columns, values), _findings(found)),
        summary="Nothing was written.",
    )


def _installed(
    settings: Settings, found: Understood, *, name: str, profile: str, replace: bool
) -> Report:
    from oncewire.entry.cli.party import taken_over
    from oncewire.entry.party.folder import check_name
    from oncewire.entry.party.importing import install

    if name:
        check_name(name)
    made = install(settings, found, name=name, profile=profile, anew=replace)
    taken_over(settings)
    place = at_party(settings)
    return Report(
        {**_facts(found), "name": made.partner, "agreement": str(made.agreement)},
        (_findings(found),),
        summary=f"{made.partner} is a partner now, under the CPA {found.agreement.cpa_id}.",
        hints=(
            f"oncewire agreement show {typed(made.agreement)}",
            f"oncewire ping {quote(made.partner)}{place}",
        ),
    )

"""`oncewire config ...`: which settings are in force, who said so, and whether they can work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Config, Json, Listing, Problem, Report, Set, here, loaded, now
from oncewire.errors import OncewireError

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings

# A certificate that ends sooner is worth a word now: partners need time to take a new one.
_SOON_DAYS = 30


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    config = typer.Typer(help="Settings: show them, check them.", no_args_is_help=True)
    config.command("show")(show)
    config.command("check")(check)
    app.add_typer(config, name="config")


@output.answers
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Say who set each value.")] = False,
    meaning: Annotated[bool, typer.Option("--meaning", help="Say what each one means.")] = False,
    config: Config = None,
    settings: Set = None,
    json: Json = False,
) -> Report:
    """Show every setting in force. Secrets stay hidden.

    Later ones win: default, oncewire.toml, ONCEWIRE_* variable, flag.
    """

    found = loaded(config, settings)
    columns = ["setting", "value"]
    columns += ["origin"] * origin + ["meaning"] * (meaning or json)
    columns += ["variable"] * json
    rows = []
    for said in found.said:
        row = [said.key.name, said.shown]
        row += [(here(found.file) if said.origin == str(found.file) else said.origin)] * origin
        row += [said.key.says] * (meaning or json) + [said.key.variable] * json
        rows.append(row)
    return Report({"file": str(found.file)}, (Listing("settings", columns, rows),))


@output.answers
def check(config: Config = None, settings: Set = None) -> Report:
    """Check that the settings can work: files, keys, certificates, agreements, addresses.

    Ends with status 1 if something would keep the party from working.
    """

    found = loaded(config, settings)
    problems = tuple(problems_of(found.settings))
    count = len(problems)
    return Report(
        {"file": str(found.file), "url": found.settings.endpoint_url},
        problems=problems,
        summary="The settings are good." if not count else f"{count} to correct.",
        exit_code=output.WRONG if count else output.OK,
    )


def problems_of(settings: Settings) -> Iterator[Problem]:
    """What would keep a party from working."""
    from oncewire.entry.delivery.function import check_choice

    if not settings.party.name or not settings.party.party_id:
        yield Problem(
            "the party has no name or no id", "party", "set party.name and party.party_id"
        )
    if not settings.http.path.startswith("/"):
        yield Problem("the path does not begin with /", "http.path", 'write path = "/msh"')
    yield from _key_problems(settings)
    yield from _agreement_problems(settings)
    try:
        from oncewire.transport.http.address import AddressRule

        AddressRule.of(settings.http.allow)
    except OncewireError as error:
        yield output.problem_of(error, "http.allow")
    for name, wrong in check_choice(settings):
        yield output.problem_of(wrong, name)
    try:
        from oncewire.entry.running.alerting import ways_of

        ways_of(settings)
    except OncewireError as error:
        yield output.problem_of(error, "alerts")
    if settings.admin.port:
        try:
            from oncewire.entry.admin.server import check_settings

            check_settings(settings)
        except OncewireError as error:
            yield output.problem_of(error, "admin")
    data = settings.path(settings.store.path).parent
    if not data.is_dir():
        yield Problem(f"there is no folder {data}", "store.path", "make it, or correct store.path")


def _key_problems(settings: Settings) -> Iterator[Problem]:
    from oncewire.entry.party.keys import describe_keys, is_private
    from oncewire.message.instant import DAY, format_instant

    certificate = settings.path(settings.keys.certificate)
    key = settings.path(settings.keys.key)
    try:
        pair = describe_keys(certificate, key)
    except OncewireError as error:
        yield output.problem_of(error, "keys")
        return
    if not is_private(key):
        yield Problem(f"others can read the private key {key}", "keys.key", f"chmod 600 {key}")
    left = (pair.not_after - now()) // DAY
    if left < _SOON_DAYS:
        when = format_instant(pair.not_after)
        said = f"our certificate ended at {when}" if left < 0 else f"our certificate ends at {when}"
        yield Problem(said, str(certificate), "make another with `oncewire keys next`")


def _agreement_problems(settings: Settings) -> Iterator[Problem]:
    from oncewire.agreement.agreement import Origin
    from oncewire.agreement.check.checks import check_all
    from oncewire.agreement.check.finding import Severity
    from oncewire.entry.party.agreements import able, load_all
    from oncewire.entry.party.importing import other_certificate

    try:
        kept = load_all(settings)
    except OncewireError as error:
        yield output.problem_of(error, "agreements")
        return
    own = settings.party.party_id
    for known in kept:
        for other in other_certificate(settings, known.agreement):
            yield Problem(other.sentence, str(known.file), other.fix)
        if any(value.origin is Origin.CPA for value in known.agreement.values):
            # There we go by the name that the CPA gives us.
            continue
        if own not in {party_id.value for party_id in known.agreement.own.party.ids}:
            yield Problem(
                f"{known.file.name} is an agreement of {known.agreement.own.party}, not of {own}",
                str(known.file),
                "correct [own] party_id, or remove the file",
            )
    for finding in check_all(
        [known.agreement for known in kept], now=now(), abilities=able(settings)
    ):
        if finding.severity is Severity.ERROR:
            yield Problem(finding.sentence, f"{finding.cpa_id} {finding.key}", finding.fix)

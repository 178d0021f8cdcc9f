"""`oncewire config`, `token` and `console`: which settings are in force, whether they can
work, and who may call the admin port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Config, Json, Listing, Party, Report
from oncewire.entry.control.verb import Permission
from oncewire.entry.control.verbs import user_name
from oncewire.errors import NotAllowed, OncewireError
from oncewire.message.instant import DAY, format_duration, format_instant

if TYPE_CHECKING:
    from oncewire.entry.admin.tokens import TokenFile
    from oncewire.entry.party.settings import Settings

# A certificate that ends sooner is worth a word now: partners need time to take a new one.
_SOON_DAYS = 30


@output.answers
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Say who set each value.")] = False,
    meaning: Annotated[bool, typer.Option("--meaning", help="Say what each one means.")] = False,
    config: Config = None,
    settings: output.Set = None,
    json: Json = False,
) -> Report:
    """Show every setting in force. Secrets stay hidden.

    Later ones win: default, oncewire.toml, ONCEWIRE_* variable, flag.
    """

    found = output.loaded(config, settings)
    columns = ["setting", "value"]
    columns += ["origin"] * origin + ["meaning"] * (meaning or json)
    columns += ["variable"] * json
    rows = []
    for said in found.said:
        row = [said.key.name, said.shown]
        row += [
            (output.here(found.file) if said.origin == str(found.file) else said.origin)
        ] * origin
        row += [said.key.says] * (meaning or json) + [said.key.variable] * json
        rows.append(row)
    return Report({"file": str(found.file)}, (Listing("settings", columns, rows),))


@output.answers
def check(config: Config = None, settings: output.Set = None) -> Report:
    """Check that the settings can work: files, keys, certificates, agreements, addresses.

    Ends with status 1 if something would keep the party from working.
    """

    found = output.loaded(config, settings)
    problems = tuple(problems_of(found.settings))
    count = len(problems)
    return Report(
        {"file": str(found.file), "url": found.settings.endpoint_url},
        problems=problems,
        summary="The settings are good." if not count else f"{count} to correct.",
        exit_code=output.WRONG if count else output.OK,
    )


def problems_of(settings: Settings) -> Iterator[output.Problem]:
    """What would keep a party from working."""
    from oncewire.entry.delivery.function import check_choice

    if not settings.party.name or not settings.party.party_id:
        yield output.Problem(
            "the party has no name or no id", "party", "set party.name and party.party_id"
        )
    if not settings.http.path.startswith("/"):
        yield output.Problem("the path does not begin with /", "http.path", 'write path = "/msh"')
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
        yield output.Problem(
            f"there is no folder {data}", "store.path", "make it, or correct store.path"
        )


def _key_problems(settings: Settings) -> Iterator[output.Problem]:
    from oncewire.entry.party.folder import describe_keys, is_private

    certificate, key = settings.key_files
    try:
        pair = describe_keys(certificate, key)
    except OncewireError as error:
        yield output.problem_of(error, "keys")
        return
    if not is_private(key):
        yield output.Problem(
            f"others can read the private key {key}", "keys.key", f"chmod 600 {key}"
        )
    left = (pair.not_after - output.now()) // DAY
    if left < _SOON_DAYS:
        when = format_instant(pair.not_after)
        said = f"our certificate ended at {when}" if left < 0 else f"our certificate ends at {when}"
        yield output.Problem(said, str(certificate), "make another with `oncewire keys next`")


def _agreement_problems(settings: Settings) -> Iterator[output.Problem]:
    from oncewire.agreement.agreement import Origin
    from oncewire.agreement.check import Severity
    from oncewire.agreement.check.dangers import check_all
    from oncewire.entry.party.agreements import able, load_all, other_certificate

    try:
        kept = load_all(settings)
    except OncewireError as error:
        yield output.problem_of(error, "agreements")
        return
    own = settings.party.party_id
    for known in kept:
        for other in other_certificate(settings, known.agreement):
            yield output.Problem(other.sentence, str(known.file), other.fix)
        if any(value.origin is Origin.CPA for value in known.agreement.values):
            # There we go by the name that the CPA gives us.
            continue
        if own not in {party_id.value for party_id in known.agreement.own.party.ids}:
            yield output.Problem(
                f"{known.file.name} is an agreement of {known.agreement.own.party}, not of {own}",
                str(known.file),
                "correct [own] party_id, or remove the file",
            )
    for finding in check_all(
        [known.agreement for known in kept], now=output.now(), abilities=able(settings)
    ):
        if finding.severity is Severity.ERROR:
            yield output.Problem(finding.sentence, f"{finding.cpa_id} {finding.key}", finding.fix)


# `oncewire token ...` and `oncewire console`: who may call the admin port, by a program or in a
# browser, and in which roles.

Name = Annotated[str, typer.Argument(help="Whose token it is; the journal names it as `by`.")]


@output.answers
def add(
    settings: Party,
    name: Name,
    role: Annotated[
        list[Permission], typer.Option("--role", help="What it may do; several are given apart.")
    ],
) -> Report:
    """Make a token. Its secret is shown this once: only its hash is kept."""
    secret = _file(settings).add(name, role)
    return Report(
        {"name": name, "roles": sorted(role), "token": secret},
        summary="Keep the token where only its owner can read it; it is not shown again.",
    )


@output.answers
def listed(settings: Party) -> Report:
    """List the tokens and their roles."""
    rows = [(token.name, ", ".join(sorted(token.roles))) for token in _file(settings).tokens()]
    listing = Listing("tokens", ("name", "roles"), rows, empty="There is no token.")
    return Report(listings=(listing,))


@output.answers
def remove(settings: Party, name: Name) -> Report:
    """Remove a token: who has it is refused from now on."""
    _file(settings).remove(name)
    return Report({"name": name}, summary="Removed.")


def _file(settings: Settings) -> TokenFile:
    from oncewire.entry.admin.tokens import TokenFile

    return TokenFile(settings.path(settings.admin.tokens))


@output.answers
def console(
    settings: Party,
    role: Annotated[
        list[Permission] | None,
        typer.Option("--role", help="What it may do besides looking; several are given apart."),
    ] = None,
    by: Annotated[
        str, typer.Option(help="Who signs in; without it, your user name in the operating system.")
    ] = "",
) -> Report:
    """Make a link that signs a browser in to the console, once and within minutes.

    Without --role the pages can only be looked at. `--role operate` lets the browser resend,
    resume, pause, abandon and hold, take partners and change our key; `--role take` shows
    documents and gives out evidence.
    """
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
    secret = SignIns(path, said.link_for, said.session_for).add_link(by, roles, output.now())
    host = f"[{admin.host}]" if ":" in admin.host else admin.host
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104
    name = admin.names[0] if admin.names and admin.certificate else host
    scheme = "https" if admin.certificate else "http"
    # Behind #, so that it stands in no log and no Referer.
    return f"{scheme}://{name}:{admin.port}/console/sign-in#{secret}"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    says = "Settings: show them, check them."
    output.add_group(app, "config", says, {"show": show, "check": check})
    says = "Tokens of the admin port (REST)."
    output.add_group(app, "token", says, {"add": add, "list": listed, "remove": remove})
    app.command("console")(console)

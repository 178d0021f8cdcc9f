"""`oncewire agreement ...`: look for dangers in an agreement, show it whole, begin a new one,
import a partner's CPA."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Config, Json, Listing, Report
from oncewire.errors import AgreementProblem, NotHere, OncewireError

if TYPE_CHECKING:
    from oncewire.agreement.agreement import Agreement
    from oncewire.agreement.check import Finding
    from oncewire.entry.party.agreements import Understood
    from oncewire.entry.party.settings import Settings


# `oncewire agreement import`: a partner's CPA becomes an agreement of the party.


@output.answers
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
        bool, typer.Option("--check", help="Install nothing; print what the CPA says.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --check: what follows from the profile, too.")
    ] = False,
    name: Annotated[
        str, typer.Option("--name", help="How we call the partner; without it, as the CPA does.")
    ] = "",
    profile: Annotated[
        str, typer.Option(help="What holds where the CPA is silent, as `agreement profiles` lists.")
    ] = "",
    replace: output.Replace = False,
    config: Config = None,
) -> Report:
    """Take a CPA that a partner gave us: from then on messages are exchanged under it.

    The CPA's certificates are believed, its addresses used, its dates kept. What it asks for and
    is not built is named, and the CPA refused if nothing could be exchanged without it. With
    --check nothing is written, and what the CPA says is printed with the place where it does.
    """

    from oncewire.entry.party.agreements import understand

    settings = _settings_of(config) if check else output.loaded(config).settings
    found = understand(file, settings, output.now(), own=own, profile=profile)
    if check or settings is None:
        from oncewire.agreement.agreement import Origin
        from oncewire.agreement.keys import rows

        followed = () if everything else (Origin.DEFAULT, Origin.PROFILE)
        known = rows(found.agreement)
        told = [row for row in known if row.origin not in followed]
        rest = len(known) - len(told)
        return Report(
            {"file": str(file), **_facts(found)},
            (_findings(found), Listing.of("values", _VALUES, told)),
            summary="Nothing was written."
            + (f" {rest} other values follow from the profile: --all shows them." if rest else ""),
        )
    from oncewire.entry.cli.partners import taken_over
    from oncewire.entry.party.agreements import install
    from oncewire.entry.party.folder import check_name

    if name:
        check_name(name)
    made = install(settings, found, name=name, profile=profile, anew=replace)
    taken_over(settings)
    place = output.at_party(settings)
    return Report(
        {**_facts(found), "name": made.partner, "agreement": str(made.agreement)},
        (_findings(found),),
        summary=f"{made.partner} is a partner now, under the CPA {found.agreement.cpa_id}.",
        hints=(
            f"oncewire agreement show {output.typed(made.agreement)}",
            f"oncewire ping {quote(made.partner)}{place}",
        ),
    )


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
    columns = "severity key sentence fix scopes"
    return Listing.of("findings", columns, found.findings, empty="Nothing to say against it.")


_VALUES = "scope key value origin where says"

Named = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files (.toml, CPA .xml), or names of partners or agreements; none: all of the party."
    ),
]
NamedOne = Annotated[str, typer.Argument(help="A file, or the name of a partner or agreement.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.")]
Own = Annotated[str, typer.Option("--own", help="Which party of a CPA we are: its PartyId.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    output.add_group(
        app,
        "agreement",
        "Agreements: what is agreed with a partner, checked and explained.",
        {"check": check, "show": show, "import": import_cpa, "export": export, "new": new,
         "profiles": profiles},
    )  # fmt: skip


@output.answers
def check(
    named: Named = None,
    own: Own = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="End with status 1 for dangers too, not only errors.")
    ] = False,
    config: Config = None,
) -> Report:
    """Find what is wrong or dangerous in agreements, before it costs a message.

    error: cannot work. danger: works until it loses, doubles or exposes a message.
    hint: worth a thought. Ends with status 1 if there is an error.
    """

    from oncewire.agreement.check import Finding, Severity
    from oncewire.agreement.check.dangers import check_all
    from oncewire.entry.party.agreements import able

    found: list[tuple[str, Agreement]] = []
    findings: list[tuple[str, Finding]] = []
    files = _files(named, own, config)
    for path, party in files:
        try:
            found.append((output.here(path), _read(path, party)))
        except AgreementProblem as error:
            findings += [
                (output.here(path), Finding(Severity.ERROR, fault.key, fault.problem, fault.remedy))
                for fault in (error, *error.others)
            ]
    by_id = {agreement.cpa_id: name for name, agreement in found}
    here_able = able(_settings_of(config))
    judged = check_all([agreement for _, agreement in found], now=output.now(), abilities=here_able)
    findings += [(by_id.get(each_finding.cpa_id, ""), each_finding) for each_finding in judged]
    worst = {finding.severity for _, finding in findings}
    bad_ones = {Severity.ERROR, Severity.DANGER} if strict else {Severity.ERROR}
    columns = ("severity", "file", "key", "sentence", "fix", "scopes")
    rows = [
        (each.severity, name, each.key, each.sentence, each.fix, each.scopes)
        for name, each in findings
    ]
    words = [finding.severity.value for _, finding in findings]
    counts = ((words.count(word), word) for word in ("error", "danger", "hint"))
    return Report(
        {"checked": len(files)},
        (Listing("findings", columns, rows, empty="Nothing to say against it."),),
        summary=", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts),
        exit_code=output.WRONG if worst & bad_ones else output.OK,
    )


@output.answers
def show(
    named: NamedOne,
    own: Own = "",
    only: Annotated[
        str, typer.Option("--only", help="Only keys that begin so, for example delivery.")
    ] = "",
    toml: Annotated[
        bool, typer.Option("--toml", help="Write it as TOML, whole, instead of a table.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> Report:
    """Show every value of an agreement, where it came from and what it means."""

    from oncewire.agreement.keys import rows
    from oncewire.agreement.toml import write_toml

    path, party = _files([named], own, config)[0]
    agreement = _read(path, party)
    if toml:
        return Report({"file": str(path)} if json else {}, text=write_toml(agreement))
    listed = [row for row in rows(agreement) if row.key.startswith(only)]
    return Report(
        {"file": str(path), "cpa_id": agreement.cpa_id, "profile": agreement.profile},
        (Listing.of("values", _VALUES, listed),),
    )


@output.answers
def export(
    named: NamedOne,
    cpa: Annotated[
        bool, typer.Option("--cpa", help="As a CPA (CPPA 2.0 XML) instead of TOML.")
    ] = False,
    own: Own = "",
    to: Output = None,
    config: Config = None,
    json: Json = False,
) -> Report:
    """Write an agreement for the partner: its handler imports the CPA.

    What came as a CPA is written as it came, unless our file says otherwise. In another one our
    certificate stands where messages are signed or travel over TLS; Service, action and both roles
    have to be said in the agreement, for a CPA names them. What CPPA has no word for follows in a
    Comment that other handlers pass over; how messages are routed here is left out. `oncewire
    agreement import` of it gives the same terms.
    """

    from oncewire.agreement.toml import write_toml
    from oncewire.entry.files import write_new
    from oncewire.entry.party.agreements import export_cpa

    path, party = _files([named], own, config)[0]
    agreement = _read(path, party)
    if cpa:
        text = export_cpa(output.loaded(config).settings, agreement, path)
    else:
        text = write_toml(agreement).encode()
    if to is None:
        shown = text.decode(errors="replace")
        return Report({"cpa_id": agreement.cpa_id} if json else {}, text=shown)
    write_new(to, text)
    hint = f"the partner runs: oncewire agreement import {output.typed(to)}"
    facts = {"file": str(to), "cpa_id": agreement.cpa_id}
    return Report(facts, summary=f"Written to {output.here(to)}.", hints=(hint,) if cpa else ())


@output.answers
def new(
    partner: Annotated[str, typer.Option(help="The partner's PartyId.")],
    address: Annotated[
        str, typer.Option(help="Where the partner takes messages: https://... or mailto:...")
    ],
    own: Annotated[
        str, typer.Option("--own", help="Our PartyId; without it that of oncewire.toml.")
    ] = "",
    own_address: Annotated[str, typer.Option(help="Where we are reached.")] = "",
    cpa_id: Annotated[str, typer.Option(help="The agreement's CPAId.")] = "",
    profile: Annotated[str, typer.Option(help="What it is based on.")] = "ebms2",
    party_type: Annotated[str, typer.Option(help="Type of both PartyIds.")] = "",
    to: Output = None,
    config: Config = None,
) -> Report:
    """Begin an agreement: a short commented file to read and change.

    For a party that also runs Oncewire, `oncewire partner add` is easier.
    """

    from oncewire.agreement.toml import new as new_text
    from oncewire.agreement.toml import read_toml
    from oncewire.entry.files import write_new
    from oncewire.entry.party.partners import patience, with_values

    us, where = own, own_address
    if not us:
        settings = output.loaded(config).settings
        us, where = settings.party.party_id, own_address or settings.endpoint_url
    text = new_text(
        cpa_id=cpa_id or f"{us}-{partner}"[:255],
        own=us,
        partner=partner,
        address=address,
        profile=profile,
        own_address=where or None,
        party_type=party_type or None,
    )
    text = with_values(text, patience(profile))
    # Whatever the options were, a file that cannot be read must not be handed out.
    read_toml(text)
    if to is None:
        return Report(text=text)
    write_new(to, text)
    hint = f"oncewire agreement check {output.typed(to)}"
    return Report({"file": str(to)}, summary=f"Written to {output.here(to)}.", hints=(hint,))


@output.answers
def profiles() -> Report:
    """List the profiles an agreement can be based on."""

    from oncewire.agreement.compose import PROFILES

    rows = [(profile.name, profile.extends or "", profile.says) for profile in PROFILES.values()]
    return Report(listings=(Listing("profiles", ("profile", "extends", "says"), rows),))


# --- which files are meant ---------------------------------------------------------------------


def _files(named: list[str] | None, own: str, config: Path | None) -> list[tuple[Path, str | None]]:
    """Each file with the party that we are in it, where we know."""
    from oncewire.entry.party.agreements import files_in

    if named and all(Path(name).is_file() for name in named):
        here = None if own else _settings_of(config)
        party = own or (here and here.party.party_id) or None
        return [(Path(name), party) for name in named]
    settings = output.loaded(config).settings
    party = own or settings.party.party_id or None
    everything = files_in(settings.path(settings.agreements.folder))
    if not named:
        return [(path, party) for path in everything]
    return [(_find(name, everything, party), party) for name in named]


def _settings_of(config: Path | None) -> Settings | None:
    """The settings, if there are any here; a file can be looked at without them."""
    try:
        return output.loaded(config).settings
    except NotHere:
        return None


def _find(name: str, files: tuple[Path, ...], own: str | None) -> Path:
    if Path(name).is_file():
        return Path(name)
    for path in files:
        if path.stem == name:
            return path
    for path in files:
        try:
            if _read(path, own).cpa_id == name:
                return path
        except OncewireError:
            # One bad file must not hide the good one that was asked for.
            continue
    known = ", ".join(path.stem for path in files) or "none"
    raise NotHere(f"there is no file, partner or agreement {name!r}", remedy=f"there are: {known}")


def _read(path: Path, own: str | None) -> Agreement:
    from oncewire.entry.party.agreements import read_file

    return read_file(path, own=own)

"""`oncewire init` and `oncewire partner ...`: a party's folder, and how two of them meet."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.finding import Partner
from oncewire.entry.cli.output import Json, Listing, Party, Report
from oncewire.errors import InvalidValue, OncewireError
from oncewire.message.instant import format_instant

if TYPE_CHECKING:
    from oncewire.entry.party.folder import Card
    from oncewire.entry.party.partners import PartnerOptions
    from oncewire.entry.party.settings import Settings


# What an agreement with a partner should say, written at once or proposed in an invitation.

CpaId = Annotated[str, typer.Option(help="The agreement's CPAId; without it both names, joined.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Agree on neither TLS nor signatures: for tests.")
]
Sign = Annotated[
    bool, typer.Option("--sign", help="Sign, and insist on signatures, although --insecure.")
]
Ordered = Annotated[bool, typer.Option("--ordered", help="Deliver in the order of sending.")]
Transports = Annotated[
    list[str] | None,
    typer.Option(
        "--transport", help="Send over these, in this order; without it, over all both have."
    ),
]


@output.answers
def init(
    folder: Annotated[
        Path, typer.Argument(help="The folder to make; its last part is the name of the party.")
    ],
    name: Annotated[str, typer.Option(help="Another name than the folder's.")] = "",
    party_id: Annotated[
        str, typer.Option(help="Our PartyId as agreed with partners, for example urn:duns:1234.")
    ] = "",
    party_type: Annotated[
        str, typer.Option(help="What kind of id that is, if it is not a URI.")
    ] = "",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.", min=0, max=65535)] = 8500,
    url: Annotated[
        str, typer.Option(help="The address partners use, if it is not host and port.")
    ] = "",
    store: Annotated[
        str, typer.Option(help="Keep messages in this PostgreSQL database, postgresql://...")
    ] = "",
    transport: Annotated[
        list[str] | None,
        typer.Option(help="Also smtp, sftp, ftp or broker: begins its section of the settings."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen without TLS: for tests on one machine.")
    ] = False,
    rsa: Annotated[
        bool,
        typer.Option("--rsa", help="An RSA key: slower; older software, and encryption, want it."),
    ] = False,
) -> Report:
    """Make a party: settings, keys, a place for agreements and data, in one folder.

    It listens with TLS and believes no connection that shows no partner's certificate.

    Example: oncewire init acme --port 8601
    """

    from oncewire.entry.party.folder import KeyKind, make_party

    transports = tuple(dict.fromkeys(transport or ()))
    made = make_party(
        folder,
        name or folder.resolve().name,
        now=output.now(),
        party_id=party_id or None,
        party_type=party_type or None,
        host=host,
        port=port,
        url=url,
        store=store,
        tls=not insecure,
        key_kind=KeyKind.RSA if rsa else KeyKind.EC,
        transports=transports,
    )
    place = output.here(made.folder)
    return Report(
        {
            **output.facts_of(made, "party=name party_id"),
            "folder": str(made.folder.resolve()),
            "url": made.settings.endpoint_url,
            "certificate": str(made.keys.certificate),
            "fingerprint": made.keys.fingerprint,
        },
        summary=f"The party {made.name} is ready in {place}.",
        hints=(
            *_to_finish(made.folder, transports),
            *unreachable_hint(made.settings),
            f"oncewire partner add OTHER_FOLDER_OR_CARD -c {output.typed(made.folder)}",
            f"oncewire partner card -c {output.typed(made.folder)}",
        ),
    )


def unreachable_hint(settings: Settings) -> tuple[str, ...]:
    """What to do about an address that only this machine can reach, though others may send."""
    if not settings.is_told_wrongly:
        return ()
    file = output.typed(settings.folder / "oncewire.toml")
    wrong = f"a partner elsewhere cannot reach {settings.endpoint_url}"
    return (f"{wrong}: set http.public_url in {file} to the address that it can",)


def _to_finish(folder: Path, transports: tuple[str, ...]) -> tuple[str, ...]:
    """What was begun names a server of this machine, which is seldom the one that is meant."""
    if not transports:
        return ()
    sections = " and ".join(f"[{name}]" for name in transports)
    return (
        f"say in {output.typed(folder / 'oncewire.toml')} which server is meant: {sections}",
        f"oncewire doctor -c {output.typed(folder)}",
    )


@output.answers
def card(
    settings: Party,
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write it to this file instead of showing it."),
    ] = None,
    json: Json = False,
) -> Report:
    """Show our card: who we are, where we listen, which certificate we use. Nothing secret.

    Send it to a partner, who runs `oncewire partner add CARD`.
    """

    from oncewire.entry.files import write_new
    from oncewire.entry.party.folder import card_of

    own = card_of(settings)
    facts = output.facts_of(own, "party=name party_id url addresses fingerprint")
    facts["addresses"] = dict(own.addresses)
    if to is None:
        return Report(facts if json else {}, text=own.to_toml())
    write_new(to, own.to_toml())
    # A card with a next key is for partners that have the one we use.
    rolls = " --roll-over" if len(own.fingerprints) > 1 else ""
    return Report(
        {**facts, "file": str(to)},
        summary=f"The card of {own.name} is in {output.here(to)}.",
        hints=(
            *unreachable_hint(settings),
            f"on the partner's machine: oncewire partner add {quote(to.name)}{rolls}",
        ),
    )


@output.answers
def add(
    settings: Party,
    who: Annotated[
        Path, typer.Argument(help="The partner's card, or its folder if it is on this machine.")
    ],
    profile: Annotated[
        str, typer.Option(help="What the agreement is based on; both sides need the same.")
    ] = "ebms2",
    cpa_id: CpaId = "",
    insecure: Insecure = False,
    sign: Sign = False,
    roll_over: Annotated[
        bool, typer.Option("--roll-over", help="Believe its new certificate beside the old one.")
    ] = False,
    ordered: Ordered = False,
    transport: Transports = None,
    role: Annotated[
        str, typer.Option(help="Our role, where messages name one: a CPA has to.")
    ] = "",
    partner_role: Annotated[str, typer.Option(help="The partner's role.")] = "",
    both: Annotated[
        bool, typer.Option("--both", help="Write the other folder's agreement too.")
    ] = False,
    replace: output.Replace = False,
) -> Report:
    """Add a partner: keep its certificate and write an agreement with it.

    Messages are signed and travel over TLS, and both sides insist on it, unless --insecure is
    said. Compare the fingerprint with the partner over another channel, such as the telephone.

    Example, two parties on one machine: oncewire partner add ../globex --both
    """

    from oncewire.entry.party.folder import card_of, read_card
    from oncewire.entry.party.partners import PartnerOptions, add_partner, check_card
    from oncewire.entry.party.settings import load

    if both and not who.is_dir():
        raise InvalidValue(
            "--both needs the partner's folder, and this is a card",
            remedy="leave --both out, and let the partner add our card",
        )
    if roll_over:
        return _rolled_over(settings, read_card(who))
    options = PartnerOptions(
        profile, cpa_id, sign or not insecure, ordered, insecure, tuple(transport or ()),
        role, partner_role,
    )  # fmt: skip
    card = read_card(who)
    check_card(settings, card, output.now())
    anew = (settings.path(settings.agreements.folder) / f"{card.name}.toml").exists()
    added = [add_partner(settings, card, options, replace=replace)]
    taken_over(settings)
    if both:
        theirs = load(who, environ={}).settings
        added.append(add_partner(theirs, card_of(settings), options.mirrored, replace=replace))
        taken_over(theirs)
    first = added[0]
    hints = [f"oncewire agreement check {output.typed(first.agreement)}"]
    if not both:
        flags = f" --profile {options.profile}" if options.profile != "ebms2" else ""
        flags += " --insecure" if options.insecure else ""
        flags += " --sign" if options.insecure and options.sign else ""
        flags += " --ordered" if options.ordered else ""
        flags += f" --cpa-id {quote(options.cpa_id)}" if options.cpa_id else ""
        flags += "".join(f" --transport {quote(name)}" for name in options.transports)
        there = options.mirrored
        flags += f" --role {quote(there.role)}" if there.role else ""
        flags += f" --partner-role {quote(there.partner_role)}" if there.partner_role else ""
        flags += " --replace" if anew else ""
        told = (*by_telephone(card), f"the partner runs: oncewire partner add OUR_CARD{flags}")
        hints[:0] = told
    columns = ("partner", "cpa_id", "profile", "agreement", "fingerprint")
    rows = [
        (each.partner, each.cpa_id, each.profile, output.here(each.agreement), each.fingerprint)
        for each in added
    ]
    left = "" if both else " What is exchanged may be refused until its file says the same."
    written = f"The agreement with {first.partner} was written anew.{left}"
    summary = written if anew else f"{first.partner} is a partner now."
    return Report(listings=(Listing("added", columns, rows),), summary=summary, hints=tuple(hints))


def _rolled_over(settings: Settings, card: Card) -> Report:
    from oncewire.agreement.certificates import read_certificates
    from oncewire.entry.files import read_text
    from oncewire.entry.party.partners import known_partner, partner_file, revoked_of, roll_over

    file = roll_over(settings, card, output.now())
    taken_over(settings)
    known = read_certificates(read_text(file, "partner's certificate"))
    believed = set(known).difference(revoked_of(settings, card.name))
    summary = f"{card.name} is believed with its new certificate alone."
    hints = [*by_telephone(card)]
    if len(believed) > 1:
        summary = f"{card.name} may use either certificate now."
        revoke = f"oncewire partner revoke {quote(card.name)} --all-but-newest"
        hints.append(f"when it uses the new one: {revoke}")
    if card.url not in (
        endpoint.address for endpoint in known_partner(settings, card.name).endpoints
    ):
        agreement = output.here(partner_file(settings, card.name))
        hints.append(f"its card names another address, {card.url}: write it into {agreement}")
    return Report(
        {"partner": card.name, "certificate": str(file), "fingerprint": card.fingerprint},
        summary=summary,
        hints=tuple(hints),
    )


def by_telephone(card: Card) -> tuple[str, ...]:
    """What to ask the partner of each certificate that its card makes us believe."""
    return tuple(f"by telephone: is {one} your fingerprint?" for one in card.fingerprints)


def taken_over(settings: Settings) -> None:
    """Let a handler that runs take over what was changed, at once."""
    import asyncio

    from oncewire.entry.control.client import tell_running

    asyncio.run(tell_running(settings))


@output.answers
def revoke(
    settings: Party,
    name: Annotated[str, typer.Argument(help="The partner, as `oncewire partner list` names it.")],
    all_but_newest: Annotated[
        bool, typer.Option("--all-but-newest", help="After a roll-over: the old ones only.")
    ] = False,
) -> Report:
    """Believe a partner's certificates no more, from this moment on.

    What it signs and what comes over its connections is refused, also on connections that are
    open, and whatever was agreed before; nothing is sent to whoever shows them. Its agreement
    stays, so that it can be given new ones.
    """

    from oncewire.entry.party.partners import revoke as revoke_certificates

    count = revoke_certificates(settings, name, all_but_newest=all_but_newest)
    taken_over(settings)
    hint = f"to take its new card: oncewire partner add CARD --roll-over{output.at_party(settings)}"
    return Report(
        {"partner": name, "revoked": count},
        summary=f"{name}: {count} revoked.",
        hints=() if all_but_newest else (hint,),
    )


@output.answers
def listed(settings: Party) -> Report:
    """List the partners and the agreements with them."""

    from oncewire.entry.party.agreements import load_all

    rows = [
        (
            kept.file.stem,
            kept.agreement.partner.party.ids[0].spelled,
            kept.agreement.cpa_id,
            kept.agreement.profile,
            ", ".join(dict.fromkeys(e.address for e in kept.agreement.partner.endpoints)),
        )
        for kept in load_all(settings)
    ]
    columns = ("partner", "party_id", "cpa_id", "profile", "address")
    empty = "No partners yet: `oncewire partner add CARD` adds one."
    return Report(listings=(Listing("partners", columns, rows, empty=empty),))


# `oncewire partner invite`, `accept`, `test`: how two parties meet, and whether they can talk.


_WORDS = {True: "works", False: "does not work", None: "not tried"}


@output.answers
def invite(
    settings: Party,
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file; otherwise NAME-NUMBER.invitation.toml"),
    ] = None,
    profile: Annotated[str, typer.Option(help="What the agreement is based on.")] = "ebms2",
    cpa_id: CpaId = "",
    insecure: Insecure = False,
    sign: Sign = False,
    ordered: Ordered = False,
    transport: Transports = None,
) -> Report:
    """Write an invitation: one file with our certificate and addresses, and what to agree.

    The partner runs `oncewire partner accept` with it, which writes the file that we accept in
    turn. Nothing in either is secret; compare the fingerprints by another way.

    Example: oncewire partner invite -o acme.invitation.toml
    """

    from oncewire.entry.files import write_new
    from oncewire.entry.party.invitation import invite as invitation_of
    from oncewire.entry.party.invitation import keep
    from oncewire.entry.party.partners import PartnerOptions

    options = PartnerOptions(
        profile, cpa_id, sign or not insecure, ordered, insecure, tuple(transport or ())
    )
    made = invitation_of(settings, options)
    file = to or Path(made.file_name)
    write_new(file, made.to_toml())
    keep(settings, made)
    return Report(
        {"file": str(file), "profile": profile, "fingerprint": made.card.fingerprint},
        summary=f"The invitation of {made.card.name} is in {output.here(file)}.",
        hints=(*unreachable_hint(settings), _accept_there(file, made.options)),
    )


@output.answers
def accept(
    settings: Party,
    file: Annotated[Path, typer.Argument(help="The partner's invitation, or its acceptance.")],
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Of an invitation: the acceptance to write."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Also one without TLS or without signatures: for tests."),
    ] = False,
    replace: output.Replace = False,
) -> Report:
    """Accept an invitation, or the acceptance of ours: keep the certificate, write the agreement.

    Of an invitation it also writes the acceptance, for the partner to accept. An acceptance that
    says anything else than our invitation is refused. A handler that runs takes the agreement over
    at once.
    """

    from oncewire.entry.files import write_new
    from oncewire.entry.party.invitation import accept as accepted
    from oncewire.entry.party.invitation import read_invitation

    told = read_invitation(file)
    proposed = accepted(settings, told, output.now(), insecure=insecure, replace_it=replace)
    planned, answer = proposed.planned, proposed.answer
    added, hints = planned.added, [*by_telephone(told.card)]
    place = ""
    if answer is not None:
        reply = to or Path(proposed.file_name)
        # Before the agreement: who cannot answer has not agreed.
        write_new(reply, answer.to_toml(), replace=replace)
        place = str(reply)
        hints.append(_accept_there(reply, answer.options))
    else:
        hints.append(f"oncewire partner test {quote(added.partner)}{output.at_party(settings)}")
    try:
        planned.write()
    except OncewireError:
        if place:
            Path(place).unlink(missing_ok=True)
        raise
    taken_over(settings)
    return Report(
        {
            "partner": added.partner,
            **output.facts_of(told.card, "party_id address=url"),
            **output.facts_of(added, "cpa_id profile agreement fingerprint"),
            "acceptance": place,
        },
        summary=f"{added.partner} is a partner now.",
        hints=tuple(hints),
        sparse=True,
    )


def _accept_there(file: Path, options: PartnerOptions) -> str:
    weak = "" if options.sign and not options.insecure else " --insecure"
    return f"on the partner's machine: oncewire partner accept {quote(file.name)}{weak}"


@output.answers
def try_out(
    settings: Party,
    partner: Partner,
    timeout: Annotated[float, typer.Option(help="Wait no longer for each answer.")] = 30.0,
    json: Json = False,
) -> Report:
    """Try out what works with a partner, and say it in words. Nothing of it counts.

    A ping, a message, a copy of it, a lost acknowledgement, signatures, a large message, a late
    copy. All have a service of their own: they reach no application and no count, here and at a
    partner that runs Oncewire. Another handler may refuse them; then only what may be asked of any
    handler is tried. Ends with status 1 if something does not work.
    """

    from oncewire.entry.cli.operator import ask
    from oncewire.entry.messages.submitting import find_kept
    from oncewire.entry.party.agreements import load_readable

    kept = find_kept(load_readable(settings), partner)
    cpa_id = kept.agreement.cpa_id
    said = f"trying out {kept.file.stem}: up to {timeout:g} s for each answer"
    with output.stages(said, quiet=json):
        found, _ = ask(settings, lambda verbs: verbs.try_partner(cpa_id, timeout), running=True)
    broken = [each for each in found if each.works is False]
    rows = [(each.what, _WORDS[each.works], each.finding) for each in found]
    summary = f"Everything that was tried works with {kept.file.stem}."
    hints: tuple[str, ...] = ()
    silent = any(each.what in ("ping", "ping again") for each in broken)
    if broken:
        do_not = "does not" if len(broken) == 1 else "do not"
        summary = f"{len(broken)} of {len(found)} {do_not} work with {kept.file.stem}."
    if silent:
        summary = f"No Pong comes from {kept.file.stem}, so what it can do is not known."
        # That command says at once how far our words get.
        place = f"{quote(kept.file.stem)}{output.at_party(settings)}"
        hints = (f"oncewire ping {place}", "ask the partner whether its handler runs")
    return Report(
        {"partner": kept.file.stem, "cpa_id": cpa_id},
        (Listing("tried", ("what", "works", "finding"), rows),),
        summary=summary,
        hints=hints,
        exit_code=output.WRONG if broken else output.OK,
    )


# `oncewire keys ...`: a party's own key, and how it is changed without a gap.


@output.answers
def show(settings: Party) -> Report:
    """Show our certificate: its fingerprint, and how long it is valid."""

    from oncewire.entry.party.folder import describe_keys

    pair = describe_keys(*settings.key_files)
    return Report(
        {
            "certificate": str(pair.certificate),
            "fingerprint": pair.fingerprint,
            "subject": pair.subject,
            "valid_until": format_instant(pair.not_after)[:10],
        }
    )


@output.answers
def make_next(settings: Party) -> Report:
    """Make the key that will follow ours. Nothing changes yet but our card.

    The card then carries both certificates. Send it to every partner, who runs `oncewire
    partner add CARD --roll-over` and believes both; then `oncewire keys switch`.
    """

    from oncewire.entry.party.partners import make_next_keys

    made = make_next_keys(settings, output.now())
    return Report(
        {"certificate": str(made.certificate), "fingerprint": made.fingerprint},
        summary="The next key is made; partners do not know it yet.",
        hints=(
            f"oncewire partner card -o CARD{output.at_party(settings)}",
            "every partner runs: oncewire partner add CARD --roll-over",
            f"then: oncewire keys switch{output.at_party(settings)}",
        ),
    )


@output.answers
def switch(settings: Party) -> Report:
    """Use the next key from now on; a handler that runs takes it over at once."""

    from oncewire.entry.party.agreements import load_readable
    from oncewire.entry.party.partners import switch_keys

    used = switch_keys(settings)
    taken_over(settings)
    partners = ", ".join(kept.file.stem for kept in load_readable(settings).kept)
    unsure = f"whether {partners} believe it is not known here: oncewire doctor"
    drop = f"oncewire partner revoke {quote(settings.party.name)} --all-but-newest"
    return Report(
        {"certificate": str(used.certificate), "fingerprint": used.fingerprint},
        summary=f"{output.here(used.certificate)} is our certificate now.",
        hints=(
            *((f"{unsure}{output.at_party(settings)}",) if partners else ()),
            f"partners may drop the old one when what it signed is acknowledged: {drop}",
        ),
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("init")(init)
    output.add_group(
        app,
        "partner",
        "Partners: give them our card, take theirs.",
        {"card": card, "add": add, "revoke": revoke, "list": listed, "invite": invite,
         "accept": accept, "test": try_out},
    )  # fmt: skip
    says = "Our own key: look at it, or change it."
    output.add_group(app, "keys", says, {"show": show, "next": make_next, "switch": switch})

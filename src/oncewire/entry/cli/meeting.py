"""`oncewire partner invite`, `accept`, `test`: how two parties meet, and whether they can talk."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.listing import at_party, complete_partner
from oncewire.entry.cli.output import Json, Listing, Report, here
from oncewire.entry.cli.party import by_telephone, taken_over
from oncewire.entry.cli.place import Config, loaded, now

if TYPE_CHECKING:
    from oncewire.entry.party.partners import PartnerOptions
    from oncewire.handler.trial import Tried

INVITATION_ENDING, ACCEPTANCE_ENDING = ".invitation.toml", ".acceptance.toml"
_WORDS = {True: "works", False: "does not work", None: "not tried"}


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the group that `party` has made."""
    group = next(each.typer_instance for each in app.registered_groups if each.name == "partner")
    if group is not None:
        group.command("invite")(invite)
        group.command("accept")(accept)
        group.command("test")(try_out)


def invite(
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file; otherwise NAME-NUMBER" + INVITATION_ENDING),
    ] = None,
    profile: Annotated[str, typer.Option(help="What the agreement is based on.")] = "ebms2",
    cpa_id: Annotated[
        str, typer.Option(help="The agreement's CPAId; without it both names, joined.")
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Agree on neither TLS nor signatures: for tests.")
    ] = False,
    sign: Annotated[
        bool, typer.Option("--sign", help="Sign, and insist on signatures, although --insecure.")
    ] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Deliver in the order of sending.")
    ] = False,
    transport: Annotated[
        list[str] | None,
        typer.Option(
            "--transport", help="Send over these, in this order; without it, over all both have."
        ),
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Write an invitation: one file with our certificate and addresses, and what to agree.

    The partner runs `oncewire partner accept` with it, which writes the file that we accept in
    turn. Nothing in either is secret; compare the fingerprints by another way.

    Example: oncewire partner invite -o acme.invitation.toml
    """

    def work() -> Report:
        from oncewire.entry.files import write_new
        from oncewire.entry.party.invitation import invite as invitation_of
        from oncewire.entry.party.invitation import keep
        from oncewire.entry.party.partners import PartnerOptions

        settings = loaded(config).settings
        options = PartnerOptions(
            profile, cpa_id, sign or not insecure, ordered, insecure, tuple(transport or ())
        )
        made = invitation_of(settings, options)
        file = to or Path(f"{made.card.name}-{made.id}{INVITATION_ENDING}")
        write_new(file, made.to_toml())
        keep(settings, made)
        return Report(
            {"file": str(file), "profile": profile, "fingerprint": made.card.fingerprint},
            summary=f"The invitation of {made.card.name} is in {here(file)}.",
            hints=(_accept_there(file, made.options),),
        )

    output.answer(work, json=json)


def accept(
    file: Annotated[Path, typer.Argument(help="The partner's invitation, or its acceptance.")],
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Of an invitation: the acceptance to write."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Also one without TLS or without signatures: for tests."),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write an existing agreement anew.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Accept an invitation, or the acceptance of ours: keep the certificate, write the agreement.

    Of an invitation it also writes the acceptance, for the partner to accept. An acceptance that
    says anything else than our invitation is refused. A handler that runs takes the agreement over
    at once.
    """

    def work() -> Report:
        from oncewire.entry.files import write_new
        from oncewire.entry.party.invitation import accept as accepted
        from oncewire.entry.party.invitation import read_invitation
        from oncewire.entry.party.partners import check_card
        from oncewire.errors import OncewireError

        settings = loaded(config).settings
        told = read_invitation(file)
        check_card(settings, told.card, now())
        planned, answer = accepted(settings, told, insecure=insecure, replace_it=replace)
        added, hints = planned.added, [*by_telephone(told.card)]
        place = ""
        if answer is not None:
            reply = to or Path(f"{answer.card.name}-{told.card.name}{ACCEPTANCE_ENDING}")
            # Before the agreement: who cannot answer has not agreed.
            write_new(reply, answer.to_toml(), replace=replace)
            place = str(reply)
            hints.append(_accept_there(reply, answer.options))
        else:
            hints.append(f"oncewire partner test {quote(added.partner)}{at_party(settings)}")
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
                "party_id": told.card.party_id,
                "address": told.card.url,
                "cpa_id": added.cpa_id,
                "profile": added.profile,
                "agreement": str(added.agreement),
                "fingerprint": added.fingerprint,
                "acceptance": place,
            },
            summary=f"{added.partner} is a partner now.",
            hints=tuple(hints),
            sparse=True,
        )

    output.answer(work, json=json)


def _accept_there(file: Path, options: PartnerOptions) -> str:
    weak = "" if options.sign and not options.insecure else " --insecure"
    return f"on the partner's machine: oncewire partner accept {quote(file.name)}{weak}"


def try_out(
    partner: Annotated[
        str,
        typer.Argument(help="The partner's name or PartyId.", autocompletion=complete_partner),
    ],
    timeout: Annotated[float, typer.Option(help="Wait no longer for each answer.")] = 30.0,
    config: Config = None,
    json: Json = False,
) -> None:
    """Try out what works with a partner, and say it in words. Nothing of it counts.

    A ping, a message, a copy of it, a lost acknowledgement, signatures, a large message, a late
    copy. All have a service of their own: they reach no application and no count, here and at a
    partner that runs Oncewire. Another handler may refuse them; then only what may be asked of any
    handler is tried. Ends with status 1 if something does not work.
    """

    def work() -> Report:
        import asyncio

        from oncewire.entry.messages.submitting import find_kept
        from oncewire.entry.party.agreements import load_readable
        from oncewire.entry.running.reach import reach_running

        settings = loaded(config).settings
        kept = find_kept(load_readable(settings), partner)

        async def tried() -> list[Tried]:
            async with reach_running(settings) as verbs:
                return await verbs.try_partner(kept.agreement.cpa_id, timeout)

        said = f"trying out {kept.file.stem}: up to {timeout:g} s for each answer"
        with output.stages(said, quiet=json):
            found = asyncio.run(tried())
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
            place = f"{quote(kept.file.stem)}{at_party(settings)}"
            hints = (f"oncewire ping {place}", "ask the partner whether its handler runs")
        return Report(
            {"partner": kept.file.stem, "cpa_id": kept.agreement.cpa_id},
            (Listing("tried", ("what", "works", "finding"), rows),),
            summary=summary,
            hints=hints,
            exit_code=output.WRONG if broken else output.OK,
        )

    output.answer(work, json=json)

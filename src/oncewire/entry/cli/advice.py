"""`oncewire pipeline advise`: what agreements should say of waiting and resending, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Config, Json, Listing, Report, loaded, now
from oncewire.entry.cli.pipeline import LakePath, lake_at, need_lake
from oncewire.entry.cli.spark import Master, Settings, session, settings_of
from oncewire.entry.files import number_of
from oncewire.message.instant import SECOND

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings as PartySettings
    from oncewire.pipeline.reports.advise import Advice


def register(app: typer.Typer) -> None:
    """Add the command to the group `pipeline`."""
    for group in app.registered_groups:
        if group.name == "pipeline" and group.typer_instance is not None:
            group.typer_instance.command("advise")(advise)


@output.answers
def advise(
    lake: LakePath,
    partner: Annotated[str, typer.Option(help="Only the party that rows name so.")] = "",
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="A page with a picture of each partner.")
    ] = None,
    config: Config = None,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> Report:
    """Say which timeout, interval, retries and window agreements should have, and why.

    From the latency, the losses and the copies that the journals show of each partner. With
    --config the values are also held against `agreement check`, with that party's agreements.
    """

    need_lake(lake)
    settings = None if config is None else loaded(config).settings
    with session(master, settings_of(conf), json=json) as (spark, tell):
        from oncewire.pipeline.reports import advise as advising

        found = advising.advise_lake(spark, lake_at(lake), partner=partner, tell=tell)
    if out is not None:
        from oncewire.pipeline.lake.version import write_forced

        write_forced(out, advising.render(found))
    return _report(found, settings, out)


def _report(found: Sequence[Advice], settings: PartySettings | None, page: Path | None) -> Report:
    """What agreements should say, and what `agreement check` says of that."""
    columns = ("node", "partner", "key", "today", "advised", "reason")
    values = [
        (each.measured.node, each.measured.partner, *value)
        for each in found
        for value in each.values
    ]
    measured = [
        (
            each.measured.node,
            each.measured.partner,
            each.measured.messages,
            each.measured.first_time,
            round(each.measured.loss, 4),
            each.measured.duplicates,
            *(_in_seconds(wait) for wait in each.waits or (None, None)),
            each.problem,
        )
        for each in found
    ]
    checked = [] if settings is None else _held_against_check(found, settings)
    changes = sum(value.changes for each in found for value in each.values)
    return Report(
        facts={
            "partners": len(found),
            "changes": changes,
            "page": str(page or ""),
            "toml": {each.measured.partner: each.as_toml() for each in found if each.values},
        },
        listings=(
            Listing(
                "measured",
                (
                    "node",
                    "partner",
                    "messages",
                    "first_time",
                    "loss",
                    "duplicates",
                    "wait_seconds",
                    "expected_wait_seconds",
                    "problem",
                ),
                measured,
                "Measured",
            ),
            Listing("values", columns, values, "Advice"),
            Listing(
                "findings",
                ("partner", "severity", "key", "sentence", "fix"),
                checked,
                empty="`agreement check` has nothing to say against the new values.",
            ),
        )[: 3 if settings is not None else 2],
        summary=f"{number_of(changes, 'value')} of {number_of(len(found), 'partner')} should be "
        "another one",
    )


def _in_seconds(duration: int | None) -> float | None:
    return None if duration is None else round(duration / SECOND, 3)


def _held_against_check(found: Sequence[Advice], settings: PartySettings) -> list[tuple[str, ...]]:
    """What `agreement check` says of agreements with the new values, and not of today's."""
    from msgspec.structs import replace as with_values

    from oncewire.agreement.check.checks import check
    from oncewire.entry.party.agreements import able, load_all

    abilities = able(settings)
    told: list[tuple[str, ...]] = []
    for kept in load_all(settings):
        agreement = kept.agreement
        names = {str(party_id) for party_id in agreement.partner.party.ids}
        for each in found:
            if each.measured.partner not in names or not each.values:
                continue
            keys = ("timeout", "retry_interval", "retries", "window")
            terms = with_values(
                agreement.sending.terms, **{key: getattr(each.terms, key) for key in keys}
            )
            # The agreement then says them itself.
            sending = replace(agreement.sending, terms=terms, values=())
            known = {
                (finding.key, finding.sentence)
                for finding in check(agreement, now=now(), abilities=abilities)
            }
            told += [
                (each.measured.partner, finding.severity.value, finding.key, finding.sentence,
                 finding.fix)
                for finding in check(
                    replace(agreement, sending=sending), now=now(), abilities=abilities
                )
                if (finding.key, finding.sentence) not in known
            ]  # fmt: skip
    return told

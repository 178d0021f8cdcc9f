"""`oncewire verify`: whether every promise was kept, by the journals of one party or of several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import (
    Config,
    Json,
    Listing,
    Problem,
    Report,
    at_party,
    has_store,
    loaded,
    now,
    typed,
)
from oncewire.entry.files import number_of
from oncewire.message.instant import moment

if TYPE_CHECKING:
    from oncewire.entry.doctor.judging import Verdict
    from oncewire.entry.party.settings import Settings
    from oncewire.journal.predicates.context import Violation

SHOWN_MAX = 50


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("verify")(verify)


@output.answers
def verify(
    parties: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of parties, whose journals are joined; none: this party."),
    ] = None,
    ended: Annotated[
        bool, typer.Option("--ended", help="Nothing more will come: what is under way is lost.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> Report:
    """Check every promise against the journal: nothing lost, nothing twice, nothing out of order.

    With several parties' folders both ends are compared; one that has no journal yet is named as
    such (`nothing_yet`), and the others are judged. Ends with status 1 if a promise is
    broken. `messages` are all that the journals tell of, those that retention removed too; one
    that two journals tell of is one. What is still here `oncewire status` counts as `kept`.
    """

    from oncewire.entry.doctor.judging import journal_rows, judge, with_inboxes
    from oncewire.entry.party.settings import load

    if parties:
        chosen = [load(folder, environ={}).settings for folder in parties]
    else:
        chosen = [loaded(config).settings]
    fresh = [party.party.name for party in chosen if not has_store(party)]
    if len(fresh) < len(chosen):
        # What the others have is judged; where none has anything the first of them says so.
        chosen = [party for party in chosen if has_store(party)]
    with output.progress("reading journals", None, quiet=json) as advance:
        altered: list[Violation] = []
        rows = [row for party in chosen for row in journal_rows(party, advance, altered)]
    verdict = with_inboxes(judge(rows, ended=ended, now=now(), altered=altered), chosen)
    hints = _steps(verdict, chosen, "".join(f" {typed(folder)}" for folder in parties or ()))
    return _report(verdict, ended=ended, hints=hints, fresh=fresh)


def _steps(verdict: Verdict, parties: list[Settings], named: str) -> tuple[str, ...]:
    """What to run so that more is judged: somebody takes what waits, or says that all is over."""
    if verdict.waiting:
        return tuple(
            f"oncewire inbox take --output FOLDER{at_party(settings)}"
            for settings in parties
            if verdict.inboxes.get(settings.party.name) and settings.application.way == "pull"
        )
    if verdict.not_yet and verdict.through is not None:
        place = "" if named else at_party(parties[0])
        return (f"oncewire verify{named} --ended{place}",)
    return ()


def _report(verdict: Verdict, *, ended: bool, hints: tuple[str, ...], fresh: list[str]) -> Report:
    """The checker's word for people and programs; `fresh` parties have no journal yet."""
    from oncewire.journal.outcome import Outcome

    report, totals = verdict.report, verdict.totals
    found = [*report.violations, *report.quarantined]
    facts: dict[str, Any] = {
        "journals": list(verdict.nodes),
        "nothing_yet": fresh,
        "rows": report.rows,
        "messages": report.messages,
        "parts": report.parts,
        "submitted": totals.sent,
        **{name.value: verdict.outcomes.get(name.value, 0) for name in Outcome},
        "confirmed_once": totals.delivered_once,
        "resends": totals.resends,
        "duplicates_stopped": totals.duplicates_stopped,
        "redelivered": totals.redelivered,
        "restarts": totals.restarts,
        "lost": verdict.count("lost"),
        "twice": verdict.count("twice"),
        "out_of_order": verdict.count("out_of_order"),
        "violations": len(report.violations),
        "unreadable": len(report.quarantined),
        "ended": ended,
        "judged_through": moment(verdict.through),
        "not_judged_yet": verdict.not_yet,
        "open_until": moment(verdict.until) if verdict.not_yet else "",
        "waiting_in_inbox": verdict.waiting,
        "in_doubt": verdict.in_doubt,
    }
    columns = ("predicate", "kind", "node", "message_id", "sentence")
    rows = [
        (
            violation.predicate,
            violation.kind,
            violation.node,
            violation.message_id or "",
            violation.sentence,
        )
        for violation in found[:SHOWN_MAX]
    ]
    problems: tuple[Problem, ...] = ()
    if len(found) > SHOWN_MAX:
        step = "`oncewire pipeline` lists all of them: docs/howto/pipeline.md, the table violations"
        problems = (Problem(f"{len(found) - SHOWN_MAX} more are not shown", next=step),)
    verb = "has" if len(fresh) == 1 else "have"
    return Report(
        facts,
        (Listing("found", columns, rows),),
        problems=problems,
        summary=_summary(verdict)
        + (f" {', '.join(fresh)} {verb} sent and received nothing yet." if fresh else ""),
        hints=hints,
        exit_code=output.OK if verdict.clean else output.WRONG,
    )


def _summary(verdict: Verdict) -> str:
    """What was found, and of how much it was not judged whether something is missing."""
    report, waiting = verdict.report, verdict.waiting
    parts = f" and {number_of(report.parts, 'part')} of documents" if report.parts else ""
    violations = number_of(len(report.violations), "violation")
    said = f"{violations} in {number_of(report.messages, 'message')}{parts}."
    if verdict.not_yet and verdict.until is not None:
        whose = "its agreement" if verdict.not_yet == 1 else "their agreements"
        said += (
            f" Of {verdict.not_yet:,} it is too early to say that something is missing: by {whose} "
            f"it may still come until {moment(verdict.until)}. Run it again when each journal has "
            "a row after that, or with --ended if nothing more will come."
        )
    if waiting:
        said += f" {number_of(waiting, 'message', 'waits')} in the inbox for the application."
    if verdict.in_doubt:
        said += f" {verdict.in_doubt} are in doubt, for rows are missing."
    return said

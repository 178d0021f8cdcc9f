"""`oncewire doctor` and `oncewire ping`: is everything that a party stands on sound?"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.finding import Partner
from oncewire.entry.cli.output import Config, Json, Listing, Party, Report
from oncewire.entry.files import number_of
from oncewire.message.instant import moment

if TYPE_CHECKING:
    from oncewire.entry.doctor.checkup import Finding
    from oncewire.entry.party.agreements import Kept
    from oncewire.entry.party.settings import Settings


Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each partner.")]


@output.answers
def doctor(
    settings: Party,
    partners: Annotated[
        bool, typer.Option("--partners/--no-partners", help="Ask partners whether they are there.")
    ] = True,
    timeout: Timeout = 5.0,
    json: Json = False,
) -> Report:
    """Look at everything the party stands on: disk, database, certificates, clock, partners.

    Each finding comes with its fix. Ends with status 6 if no handler runs or it does not work, else
    with 1 if something is bad or an incident is open.
    """

    from oncewire.entry.doctor.checkup import Grade, check_agreements, look_here

    runs, handler = _handler(settings)
    with output.progress("looking", 2, quiet=json) as advance:
        found = [*handler, *look_here(settings, output.now())]
        kept, _ = check_agreements(settings)
        advance(1)
        found += _answers(settings, kept, timeout if partners else None, runs=runs)
        advance(1)
    rows = [
        (finding.what, finding.grade, finding.finding, output.placed(finding.fix))
        for finding in found
    ]
    grades = [finding.grade for finding in found]
    bad, warnings = grades.count(Grade.BAD), grades.count(Grade.WARNING)
    summary = "Everything is sound." if not bad + warnings else f"{bad} bad, {warnings} doubtful."
    unsound = bad or any(finding.fix.startswith(_INCIDENTS) for finding in handler)
    code = output.WRONG if unsound else output.OK
    return Report(
        {"party": settings.party.name},
        (Listing("checks", ("what", "grade", "finding", "fix"), rows),),
        summary=summary,
        exit_code=code if runs else output.NOT_RUNNING,
    )


_INCIDENTS = "oncewire incidents"


def _answers(
    settings: Settings, kept: list[Kept], timeout: float | None, *, runs: bool
) -> list[Finding]:
    """What is found by asking: our own endpoint, if a handler `runs` behind it, and within a
    time-out the places that others leave parcels in for us, and the partners.

    Each is asked in an event loop of its own, whose end waits for its threads: where look-ups of
    names hang, those of the next would wait behind them, and who is well would seem to be away.
    """
    import asyncio

    from oncewire.entry.doctor import checkup
    from oncewire.entry.doctor.ping import hear_pongs, probe_ways
    from oncewire.entry.doctor.ping import ping as ping_all
    from oncewire.entry.party.partners import kept_itself

    found = []
    if runs and (itself := kept_itself(settings)) is not None:
        (echo,) = asyncio.run(ping_all(settings, [itself], timeout or 5.0))
        proxied = not settings.http.tls and settings.endpoint_url.startswith("https:")
        found.append(checkup.judged_itself(echo, proxied=proxied))
    if timeout is None:
        return found
    found += [
        checkup.Finding(
            f"inbox over {inbox.transport}",
            checkup.Grade.BAD if inbox.problem else checkup.Grade.GOOD,
            f"{inbox.address}: {inbox.problem or 'it can be looked into'}",
            inbox.fix,
        )
        for inbox in asyncio.run(checkup.probe_inboxes(settings, timeout))
    ]
    if not kept:
        return found
    echoes = asyncio.run(ping_all(settings, kept, timeout))
    if runs:
        # What goes by mail or by file takes longer than a look at everything may.
        slow = [echo for echo in echoes if echo.milliseconds is None]
        quick = [echo for echo in echoes if echo.milliseconds is not None]
        echoes = asyncio.run(hear_pongs(settings, quick, timeout)) + slow
    echoes += asyncio.run(probe_ways(settings, kept, timeout))
    return found + [each for echo in echoes for each in checkup.judged(echo)]


def _handler(settings: Settings) -> tuple[bool, list[Finding]]:
    """Whether one runs and works; with that, or whether it could, and what the application refuses
    that it is offered."""
    from oncewire.entry.cli.operator import running
    from oncewire.entry.doctor.checkup import Finding, Grade, refused_store

    status, place = running(settings), output.at_party(settings)
    if status is None:
        refused = refused_store(settings)
        if refused is not None:
            said = f"not running, and it would not start: {refused.problem}"
            return False, [Finding("handler", Grade.BAD, said, refused.remedy)]
        said, fix = "not running: nothing is sent or received", f"oncewire serve{place}"
        return False, [Finding("handler", Grade.WARNING, said, fix)]
    if status.stuck:
        fix = f"look into its log; `kill -9 {status.pid}` loses nothing that was stored"
        return False, [Finding("handler", Grade.BAD, f"it does not work: {status.stuck}", fix)]
    said = f"runs as process {status.pid} at {status.url}, at most {status.lag_ms} ms behind"
    found = [Finding("handler", Grade.GOOD, said)]
    if status.incidents:
        said = f"{number_of(status.incidents, 'incident', 'is')} open"
        found = [Finding("handler", Grade.WARNING, said, f"{_INCIDENTS}{place}")]
    if status.admin:
        said, fix = f"it does not come up: {status.admin}", "look into the log of `oncewire serve`"
        found.append(Finding("admin port", Grade.BAD, said, fix))
    if status.refusals:
        latest = max(status.refusals, key=lambda message_id: status.refusals[message_id][1])
        count, at, raised = status.refusals[latest]
        many = number_of(len(status.refusals), "message", "is")
        said = f"{many} refused by it; the last at {moment(at)}, {count} times so far: {raised}"
        fix = f"mend the application; `oncewire why {quote(latest)}{place}` tells more"
        found.append(Finding("application", Grade.WARNING, said, fix))
    return True, found


@output.answers
def ping(settings: Party, partner: Partner, timeout: Timeout = 10.0) -> Report:
    """Ask a partner's handler whether it is there and knows us. Sends nothing that counts.

    It waits for the Pong. A partner that answers on a connection of its own is heard by our
    handler; where none runs, by one that runs for as long. Ends with status 1 if none came.
    """

    import asyncio

    from oncewire.entry.doctor.checkup import probe_inboxes
    from oncewire.entry.doctor.ping import Reached, hear_pongs, probe_ways
    from oncewire.entry.doctor.ping import ping as ping_all
    from oncewire.entry.messages.submitting import find_kept
    from oncewire.entry.party.agreements import load_readable

    kept = [find_kept(load_readable(settings), partner)]
    echo = asyncio.run(ping_all(settings, kept, timeout))[0]
    others = asyncio.run(probe_ways(settings, kept, timeout))
    # What a partner answers on those ways lies there.
    agreed = kept[0].agreement.receiving.terms.transports
    inboxes = asyncio.run(probe_inboxes(settings, timeout, agreed))
    (echo,) = asyncio.run(hear_pongs(settings, [echo], timeout))
    good = echo.reached is Reached.ANSWERED
    closed = [way.next_step for way in others if way.reached is Reached.UNREACHABLE]
    skew = None if echo.skew is None else echo.skew // 1000
    return Report(
        {
            **output.facts_of(echo, "partner cpa_id address reached finding milliseconds"),
            "clock_difference_ms": skew,
            "other_ways": {way.address: way.finding for way in others},
            "inboxes": {
                inbox.address: inbox.problem or "it can be looked into" for inbox in inboxes
            },
        },
        hints=tuple(
            step for step in (echo.next_step, *closed, *(one.fix for one in inboxes)) if step
        ),
        exit_code=output.OK if good else output.WRONG,
    )


# `oncewire backup`: a whole copy of a party, taken while it runs.


@output.answers
def backup(
    folder: Annotated[Path, typer.Argument(help="The folder to make; it must not be there yet.")],
    check: Annotated[
        bool, typer.Option("--check", help="Take none; see whether that one is whole.")
    ] = False,
    config: Config = None,
) -> Report:
    """Copy the party, its messages, keys and agreements into a folder, and read it back.

    The handler may go on meanwhile. The copy is a party's folder: to restore, stop the handler,
    put the copy in the folder's place and start it (see docs/howto/backup.md).
    """

    from oncewire.entry.running.backup import check_backup, take_backup

    found = (
        check_backup(folder)
        if check
        else take_backup(output.loaded(config).settings, folder, output.now())
    )
    return Report(
        {
            "folder": str(found.folder),
            **output.facts_of(found, "kept journal_rows=journal files bytes=size"),
        },
        summary=f"{output.here(found.folder)} {'is' if check else 'was made, read back and is'} "
        f"whole: {number_of(found.kept, 'message', 'is')} kept in it.",
    )


@output.answers
def upgrade(
    settings: Party,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; say what a start would change.")
    ] = False,
) -> Report:
    """Bring the party's store to this version of Oncewire. A handler does so when it starts.

    With --check the settings and agreements are looked at too. Ends with status 1 if something
    would keep the party from working; take a backup before the first start.
    """

    from oncewire.entry.cli.config import problems_of
    from oncewire.entry.doctor.checkup import refused_store
    from oncewire.entry.party.store import open_store, store_place, store_versions

    refused = refused_store(settings)
    if refused is not None:
        raise refused
    found, newest = store_versions(settings)
    problems = tuple(problems_of(settings)) if check else ()
    if found == newest:
        summary = "The store has the version of this Oncewire." if found else "There is no store."
    elif check:
        summary = (
            f"A start brings the store from version {found} to {newest}; there is no way back."
        )
    else:
        open_store(settings, at_rest=True).close()
        summary = f"The store was brought from version {found} to {newest}."
    if problems:
        summary += f" {number_of(len(problems), 'problem')} to correct."
    return Report(
        {"store": store_place(settings), "version": found, "newest": newest},
        problems=problems,
        summary=summary,
        exit_code=output.WRONG if problems else output.OK,
    )


@output.answers
def copied(
    settings: Party,
    to: Annotated[
        str, typer.Argument(help="postgresql://... of an empty database, or a new file.")
    ],
) -> Report:
    """Copy the party's store to PostgreSQL, or back into a file; its handler must not run.

    Every row is read back and compared. The party goes on with the store that it has until its
    settings name the other one.

    Example: oncewire store copy postgresql://oncewire@db/acme
    """

    from oncewire.entry.running.backup import copy_store, is_server

    found = copy_store(settings, to)
    rows = [(table, tally.rows, tally.digest) for table, tally in found.items() if tally.rows]
    said = "store.url" if is_server(to) else "store.path, and remove store.url,"
    return Report(
        listings=(Listing("tables", ("table", "rows", "digest"), rows),),
        summary=f"The copy holds what the store holds: {sum(row[1] for row in rows)} rows.",
        hints=(f"set {said} in {settings.folder / 'oncewire.toml'}, then oncewire serve",),
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    output.add_group(app, "store", "Where messages are kept.", {"copy": copied})
    app.command("upgrade")(upgrade)
    app.command("doctor")(doctor)
    app.command("ping")(ping)
    app.command("backup")(backup)

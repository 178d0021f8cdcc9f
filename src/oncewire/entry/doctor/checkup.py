"""Checkup: what `oncewire doctor` looks at, each finding with its fix.

Every check is a function of the settings that yields findings; it measures and looks, and
changes nothing but a scratch file beside the database.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from oncewire.agreement.certificates import facts, read_certificates, spoken_fingerprint
from oncewire.agreement.check.exposure import EXPIRING_SOON
from oncewire.entry.doctor.ping import Echo, Reached
from oncewire.entry.files import number_of, read_bytes, size_of
from oncewire.entry.messages.stored import outworn
from oncewire.entry.party.agreements import Kept, load_readable, other_certificate
from oncewire.entry.party.folder import describe_keys, is_private
from oncewire.entry.party.settings import Settings, is_installed
from oncewire.entry.party.store import (
    MANIFEST,
    RECORD,
    UNREADABLE,
    find_replaced,
    find_restored,
    read_record,
    reading,
    store_path,
    store_versions,
)
from oncewire.entry.running.transports import mailbox_settings, other_transports, withdrawn_by
from oncewire.entry.watching.snapshot import SPACE_LOW
from oncewire.errors import NotHere, OncewireError, StoreProblem, StoreReplaced
from oncewire.handler.world import RealWorld
from oncewire.message.instant import DAY, SECOND, Duration, Instant, format_instant
from oncewire.protocol.notes import NO_MESSAGE
from oncewire.protocol.states import OutgoingState
from oncewire.store.bucket_spool import Bucket
from oncewire.store.postgresql import connection as postgresql
from oncewire.store.sqlite import connection as sqlite
from oncewire.store.sqlite.connection import connect_reader
from oncewire.transport.contract import AttemptOutcome, OutcomeKind


class Grade(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    grade: Grade
    finding: str
    fix: str = ""


SIGNED_READ = 200
SOON_DAYS = 30
SKEW_MAX: Duration = 30 * SECOND
CHECKED_MAX = 2 * 1024**3
"""A larger database is opened, but not read through: that would take minutes."""

_QUICK_CHECK = "PRAGMA quick_check(1)"
_FSYNCS = 16
_HONEST_MICROSECONDS = 15
"""No medium that keeps data through a power cut confirms a write in less."""

# Where a file is gone after a restart, and where locks and fsync cannot be relied on.
_VOLATILE = {"tmpfs", "ramfs"}
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs"}


def check_store(settings: Settings) -> Iterator[Finding]:
    """Whether the disk keeps what it confirms, and whether the database is whole."""
    path = store_path(settings)
    folder = path.parent
    if not folder.is_dir():
        fix = f"make the folder {folder}, or correct store.path"
        yield Finding("store", Grade.BAD, f"there is no folder {folder}", fix)
        return
    yield _file_system(folder)
    yield _fsync(folder)
    replaced = find_replaced(settings)
    if replaced is not None:
        yield Finding("store", Grade.BAD, replaced.problem, replaced.remedy)
    elif settings.store.url:
        yield (server := _server(settings.store.url))
        spool = _bucket(settings.store.bucket) if settings.store.bucket else None
        if spool is not None:
            yield spool
        if not any(one is not None and one.grade is Grade.BAD for one in (server, spool)):
            yield from _spool_elsewhere(settings)
    else:
        yield from _database(path)
        # Whether the party's folder knows the store again.
        if path.is_file() and path.stat().st_size and read_record(settings) in (None, UNREADABLE):
            yield Finding(
                "store",
                Grade.WARNING,
                f"{settings.folder} does not know it again: an empty or an older one in its place "
                "would be taken for it",
                f"let the handler write {settings.folder / RECORD}; it does so when it starts",
            )
    yield _space(folder)


def look_here(settings: Settings, now: Instant) -> Iterator[Finding]:
    """Everything that can be looked at without asking anybody."""
    yield from check_store(settings)
    yield from check_restored(settings)
    kept, problems = check_agreements(settings)
    yield from check_certificates(settings, now, kept)
    yield from check_address(settings)
    yield from check_clock(settings, now)
    yield from check_kept(settings, now)
    yield from problems
    yield from check_agreed(settings, now, kept)


def refused_store(settings: Settings) -> StoreProblem | None:
    """Why a handler would not start on the store that is there; None where it would, or where
    there is none yet."""
    import apsw

    path, replaced = store_path(settings), find_replaced(settings)
    if replaced is not None or not (settings.store.url or path.exists()):
        return replaced
    try:
        if settings.store.url:
            store_versions(settings)
            return None
        connection = sqlite.connect_reader(path, None)
        try:
            sqlite.check_origin(connection, sqlite.known_migrations())
        finally:
            connection.close(True)
    except apsw.Error as error:
        return sqlite.failure(error, path)
    except StoreProblem as problem:
        return problem
    return None


def check_restored(settings: Settings) -> Iterator[Finding]:
    """Whether what is kept here is older than what partners know."""
    restored = find_restored(settings)
    if restored is not None:
        yield Finding(
            "restored",
            Grade.WARNING,
            f"{restored}: what was sent and received after that backup is unknown here",
            "ask partners for it (`oncewire ask ID --to PARTNER`) or compare books "
            "(`oncewire pipeline reconcile OUR_FOLDER THEIR_EXPORT`); when that is done, "
            f"remove {settings.folder / MANIFEST}",
        )


def _file_system(folder: Path) -> Finding:
    kind = file_system(folder)
    if kind in _VOLATILE:
        fix = "move store.path and store.spool to a disk"
        return Finding("disk", Grade.BAD, f"{kind}: everything is gone after a restart", fix)
    if kind in _REMOTE:
        fix = "move store.path and store.spool to a local disk"
        return Finding("disk", Grade.BAD, f"{kind}: a database needs a local disk", fix)
    return Finding("disk", Grade.GOOD, f"{kind or 'unknown file system'}, local")


def file_system(folder: Path) -> str:
    """The type of the file system a folder is on; empty where that cannot be found."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    place = folder.resolve()
    best, kind = -1, ""
    for line in mounts:
        left, _, right = line.partition(" - ")
        point = Path(left.split()[4].replace("\\040", " "))
        if place.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split()[0]
    return kind


def _fsync(folder: Path) -> Finding:
    """The time of an fsync tells whether anything was written by it."""
    times = []
    world = RealWorld()
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".fsync-", buffering=0) as file:
            for number in range(_FSYNCS):
                file.write(number.to_bytes(4, "big") * 1024)
                before = world.mono()
                os.fsync(file.fileno())
                times.append(world.mono() - before)
    except OSError as error:
        fix = "check the folder's permissions and the disk"
        return Finding("fsync", Grade.BAD, f"cannot write and sync: {error.strerror}", fix)
    median = sorted(times)[len(times) // 2]
    if median < _HONEST_MICROSECONDS:
        return Finding(
            "fsync",
            Grade.BAD,
            f"{median} µs each: nothing can have been written by then",
            "turn off what swallows fsync (eatmydata, a container's volatile layer)",
        )
    return Finding("fsync", Grade.GOOD, f"{_number(median)} each, so it writes")


def _number(microseconds: int) -> str:
    return f"{microseconds} µs" if microseconds < 1000 else f"{microseconds / 1000:.1f} ms"


def _database(path: Path) -> Iterator[Finding]:
    import apsw

    if not path.is_file() or not path.stat().st_size:
        yield Finding("database", Grade.GOOD, "not made yet; the first use makes it")
        return
    logged = _logged(path)
    size = path.stat().st_size + logged
    large = size > CHECKED_MAX
    try:
        connection = connect_reader(path, None)
        try:
            mode = connection.pragma("journal_mode")
            verdict = "ok" if large else connection.execute(_QUICK_CHECK).fetchall()[0][0]
        finally:
            connection.close(True)
    except apsw.Error as error:
        fix = "restore it from a backup"
        yield Finding("database", Grade.BAD, f"it cannot be read: {error}", fix)
        return
    if verdict != "ok":
        yield Finding("database", Grade.BAD, f"damaged: {verdict}", "restore it from a backup")
    else:
        state, version = "readable" if large else "whole", apsw.sqlite_lib_version()
        with_log = " with its log" if logged else ""
        said = f"{state}, {size_of(size)}{with_log}, SQLite {version}, log mode {mode}"
        yield Finding("database", Grade.GOOD, said)
    if path.stat().st_mode & 0o077:
        yield Finding(
            "database", Grade.WARNING, "others on this machine can read it", f"chmod 600 {path}"
        )
    yield Finding(
        "resilience",
        Grade.GOOD,
        "one copy: survives crashes and power cuts, not the loss of its disk",
        "`oncewire backup DIR` takes a copy while it runs",
    )


def _server(url: str) -> Finding:
    """Whether the database server answers and does what a store relies on."""
    try:
        with postgresql.opened(url) as connection:
            select = "SELECT pg_database_size(current_database())"
            size = int(str(connection.execute(select).fetchall()[0][0]))
            version = connection.info.server_version // 10_000
    except StoreProblem as problem:
        return Finding("database", Grade.BAD, problem.problem, problem.remedy)
    said = f"{postgresql.place(url)} answers, {size_of(size)}, PostgreSQL {version}"
    return Finding("database", Grade.GOOD, said, "back it up with pg_dump, and the folder with it")


def _bucket(url: str) -> Finding:
    """Whether the bucket of the spool can be reached."""
    try:
        Bucket(url).check()
    except OncewireError as problem:
        return Finding("spool", Grade.BAD, problem.problem, problem.remedy)
    return Finding("spool", Grade.GOOD, f"{url} answers", "back it up with the database")


def _spool_elsewhere(settings: Settings) -> Iterator[Finding]:
    """Whether the spool is another one than that of the store."""
    url, bucket, newest = settings.store.url, settings.store.bucket, postgresql.known_migrations()
    folder = settings.path(settings.store.spool)
    try:
        with postgresql.opened(url) as connection:
            if postgresql.version_of(connection, url) >= newest[-1].version:
                has_mark = Bucket(bucket).has_mark if bucket else lambda n: (folder / n).is_file()
                postgresql.check_spool(connection, url, has_mark)
    except StoreProblem as problem:
        yield Finding("spool", Grade.BAD, problem.problem, problem.remedy)


def _logged(path: Path) -> int:
    """How much is in the write-ahead log beside a database: most of a young one may be there."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _space(folder: Path) -> Finding:
    usage = shutil.disk_usage(folder)
    said = f"{size_of(usage.free)} free of {size_of(usage.total)}"
    if usage.free < SPACE_LOW:
        return Finding("space", Grade.BAD, said, "free space; a full disk stops all messages")
    return Finding("space", Grade.GOOD, said)


def check_certificates(
    settings: Settings, now: Instant, agreements: Iterable[Kept] = ()
) -> Iterator[Finding]:
    """Ours and the partners', with the days they have left."""
    own, key = settings.key_files
    try:
        pair = describe_keys(own, key)
        yield _days(
            "our certificate",
            pair.not_after,
            now,
            "`oncewire keys next` makes another; docs/explanation/security.md says how it follows",
        )
        if not is_private(key):
            yield Finding("our key", Grade.BAD, "others can read it", f"chmod 600 {key}")
    except OncewireError as error:
        yield Finding("our certificate", Grade.BAD, error.problem, error.remedy)
    folder = settings.path(settings.keys.partners)
    withdrawn = withdrawn_by(agreements)
    for file in sorted(folder.glob("*.crt")) if folder.is_dir() else ():
        yield from _partner_certificate(file, now, withdrawn)


def _partner_certificate(
    file: Path, now: Instant, withdrawn: Callable[[bytes], bool]
) -> Iterator[Finding]:
    what = f"certificate of {file.stem}"
    try:
        ders = read_certificates(read_bytes(file, "certificate"))
    except OncewireError as error:
        yield Finding(what, Grade.BAD, error.problem, error.remedy)
        return
    for der in ders:
        # During a roll-over there are two.
        what = f"certificate of {file.stem}"
        what += f" ({spoken_fingerprint(der)[:11]}...)" if len(ders) > 1 else ""
        known = facts(der)
        if known is None:
            yield Finding(what, Grade.BAD, "it cannot be read", "ask the partner for its card")
        elif withdrawn(der):
            fix = "`oncewire partner add CARD --roll-over` takes its new card"
            yield Finding(what, Grade.WARNING, "revoked: nothing is taken from it or sent", fix)
        else:
            yield _days(what, known.not_after, now, "ask the partner for its new card")


def _days(what: str, not_after: Instant, now: Instant, fix: str) -> Finding:
    left = (not_after - now) // DAY
    when = format_instant(not_after)[:10]
    if left < 0:
        ago = f"{number_of(-left - 1, 'day')} ago" if left < -1 else "less than a day ago"
        return Finding(what, Grade.BAD, f"ended {ago}, on {when}", fix)
    grade = Grade.WARNING if left < SOON_DAYS else Grade.GOOD
    said = f"{number_of(left, 'day')} left, until {when}"
    return Finding(what, grade, said, fix if left < SOON_DAYS else "")


def check_address(settings: Settings) -> Iterator[Finding]:
    """Whether partners can reach the address that our card names, and programs the admin port."""
    if settings.admin.port and not is_installed("admin"):
        unserved = f"admin.port is {settings.admin.port}, and the libraries of the port are missing"
        yield Finding("address", Grade.WARNING, unserved, "pip install 'oncewire[admin]'")
    if settings.is_told_wrongly:
        wrong = f"partners are told {settings.endpoint_url}, which only this machine reaches"
        yield Finding("address", Grade.WARNING, wrong, "set http.public_url, and give out the card")


def check_clock(settings: Settings, now: Instant) -> Iterator[Finding]:
    """Whether our clock has gone back since the last thing that was noted."""
    try:
        with reading(settings) as reader:
            last = reader.last_seq()
            rows = reader.journal_since(max(0, last - 1), 1)
            doubts = [
                incident
                for incident in reader.incidents()
                if not (incident.message_id or incident.channel)
            ]
    except (NotHere, StoreProblem):
        # What is wrong with the store is a finding of its own.
        yield Finding("clock", Grade.GOOD, f"{format_instant(now)}; nothing to compare with")
        return
    if doubts:
        fix = "set it right, or say that it is right: `oncewire clock accept`"
        yield Finding("clock", Grade.BAD, doubts[0].reason, fix)
        return
    behind = rows[0].at - now if rows else 0
    if behind > SECOND:
        yield Finding(
            "clock",
            Grade.BAD,
            f"it is {behind // SECOND} s behind the last entry of our own journal",
            "set the clock; run a time service",
        )
    else:
        yield Finding("clock", Grade.GOOD, f"{format_instant(now)[:19]}Z, never seen later")


def check_kept(settings: Settings, now: Instant) -> Iterator[Finding]:
    """How much is kept, whether what is old goes, and what an old key of ours signed."""
    try:
        with reading(settings) as reader:
            kept, removed = sum(reader.counts().values()), reader.last_removal()
            # More rows than a store keeps of them.
            refusals = reader.refusals(2_000)
            under_way = reader.outgoing_list(states=(OutgoingState.OUTSTANDING,), limit=SIGNED_READ)
            ids = (each.outgoing.message_id for each in under_way)
            worn = [found for found in ids if outworn(settings, reader, found, now)]
    except (NotHere, StoreReplaced):
        return
    except StoreProblem as error:
        yield Finding("database", Grade.BAD, error.problem, error.remedy)
        return
    if worn:
        yield Finding(
            "under way",
            Grade.WARNING,
            f"{number_of(len(worn), 'message', 'is')} signed with a certificate that ended or was "
            "ours before: who does not believe it any more refuses them",
            f"`oncewire why {worn[0]}` says what to do",
        )
    when = f"some were last removed on {format_instant(removed)[:19]}Z" if removed else ""
    said = when or "none was old enough to be removed yet"
    yield Finding("retention", Grade.GOOD, f"{number_of(kept, 'message', 'is')} kept; {said}")
    if refusals:
        count, last = sum(refusal.count for refusal in refusals), refusals[0]
        yield Finding(
            "strangers",
            Grade.GOOD,
            f"{number_of(count, 'message', 'was')} refused, of strangers or not as agreed, the "
            f"last on {format_instant(last.last_at)[:19]}Z: {last.code}, {last.problem[:100]}",
        )


def check_agreements(settings: Settings) -> tuple[list[Kept], list[Finding]]:
    """The agreements that can be read, or why they cannot."""
    try:
        found = load_readable(settings)
    except OncewireError as error:
        return [], [Finding("agreements", Grade.BAD, error.problem, error.remedy)]
    problems = [
        Finding("agreements", Grade.BAD, error.problem, error.remedy)
        for error in found.problems.values()
    ]
    if not found.kept and not problems:
        fix = "`oncewire partner add CARD` adds one"
        return [], [Finding("agreements", Grade.WARNING, "no partners yet", fix)]
    return found.kept, problems


def judged_itself(echo: Echo, *, proxied: bool = False) -> Finding:
    """What a message says that went through our own endpoint to our own handler and back.
    `proxied`: TLS ends at a proxy before it, whose certificate is not ours."""
    if echo.reached is Reached.ANSWERED:
        return Finding("endpoint", Grade.GOOD, f"a message to itself: {echo.milliseconds} ms")
    if proxied and "CERTIFICATE_VERIFY_FAILED" in echo.finding:
        said = f"a message to itself: the proxy before us is not known here: {echo.finding}"
        fix = f"ask a partner whether it believes the certificate that {echo.address} shows"
        return Finding("endpoint", Grade.WARNING, said, fix)
    fix = "look into the handler's log; partners cannot reach it either"
    return Finding("endpoint", Grade.BAD, f"a message to itself: {echo.finding}", fix)


def judged(echo: Echo) -> Iterator[Finding]:
    """What a Ping says of a partner, and of the two clocks."""
    what = f"partner {echo.partner}"
    if echo.reached in (Reached.ANSWERED, Reached.TAKEN):
        took = "" if echo.milliseconds is None else f" in {echo.milliseconds} ms"
        yield Finding(what, Grade.GOOD, f"{echo.finding}{took}")
    elif echo.reached is Reached.UNHEARD:
        yield Finding(what, Grade.WARNING, echo.finding, echo.next_step)
    elif echo.reached is Reached.REFUSED:
        is_one = NO_MESSAGE not in echo.finding
        said = "it is there, but refuses us" if is_one else "what answers is no handler"
        yield Finding(what, Grade.BAD, f"{said}: {echo.finding}", echo.next_step)
    else:
        yield Finding(what, Grade.WARNING, f"not reachable: {echo.finding}", echo.next_step)
    if echo.skew is not None and abs(echo.skew) > SKEW_MAX:
        side = "ahead of" if echo.skew > 0 else "behind"
        yield Finding(
            f"clock of {echo.partner}",
            Grade.WARNING,
            f"{abs(echo.skew) // SECOND} s {side} ours",
            "run a time service on both sides",
        )


# Agreed: what `oncewire doctor` finds in agreements that can be read: their dates, and whether the
# partner was told of the key that we have.

_RENEW = "agree on a new period, and correct `end` in its file, or import the new CPA"


def check_agreed(settings: Settings, now: Instant, kept: Iterable[Kept]) -> Iterator[Finding]:
    """What is the matter with each agreement; nothing where all is well."""
    for known in kept:
        what = f"agreement {known.file.stem}"
        start, end = known.agreement.start, known.agreement.end
        if start is not None and now < start:
            said = f"it begins at {format_instant(start)}; until then nothing can be sent under it"
            yield Finding(what, Grade.BAD, said, "wait, or agree on an earlier beginning")
        elif end is not None and now >= end:
            said = f"it ended at {format_instant(end)}: nothing can be sent or taken under it"
            yield Finding(what, Grade.BAD, said, _RENEW)
        elif end is not None and now >= end - EXPIRING_SOON:
            yield Finding(what, Grade.WARNING, f"it ends at {format_instant(end)}", _RENEW)
        for other in other_certificate(settings, known.agreement):
            yield Finding(what, Grade.BAD, other.sentence, other.fix)


# Inboxes: whether the places can be looked into where others leave what is for us.
#
# A mailbox or a folder that cannot be read is seen here alone: partners send, and their
# servers take it.

_FIXES = {
    "smtp": "check smtp.imap, smtp.imap_user, smtp.imap_password and smtp.imap_folder",
    "sftp": "check sftp.inbox, sftp.user, sftp.key and sftp.known_hosts",
    "ftp": "check ftp.inbox, ftp.user and ftp.password",
}


@dataclass(frozen=True, slots=True)
class Inbox:
    """A place that we look into, and what came of trying it."""

    transport: str
    address: str
    # Empty: it can be looked into.
    problem: str

    @property
    def fix(self) -> str:
        """What to do about it; empty if all is well."""
        return _FIXES[self.transport] if self.problem else ""


async def probe_inboxes(
    settings: Settings, timeout: float = 10.0, over: Collection[str] = tuple(_FIXES)
) -> list[Inbox]:
    """Try each place that we look into over these transports. Nothing is taken from any."""
    found = []
    ways = other_transports(settings, listen=False)
    for name in ("sftp", "ftp"):
        address = settings.addresses.get(name, "")
        if address and name in over and name in ways:
            try:
                outcome = await ways[name].probe(address, timeout=timeout)
            except OncewireError as error:
                outcome = AttemptOutcome(OutcomeKind.REFUSED, str(error))
            finally:
                await ways[name].stop()
            found.append(Inbox(name, address, _problem(outcome)))
    if "smtp" in over and "smtp" in ways and (mailbox := mailbox_settings(settings)) is not None:
        from oncewire.transport.smtp.transport import probe_mailbox

        outcome = await probe_mailbox(mailbox, timeout=timeout)
        address = f"imap://{mailbox.user}@{mailbox.host}:{mailbox.port}/{mailbox.folder}"
        found.append(Inbox("smtp", address, _problem(outcome)))
    return found


def _problem(outcome: AttemptOutcome) -> str:
    return "" if outcome.kind is OutcomeKind.SENT else outcome.reason or "it cannot be read"

"""Archives of other handlers as journals: what travelled is in them, and judged as it can be."""

from __future__ import annotations

import io
import mailbox
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncewire.errors import JournalProblem, NotAllowed
from oncewire.journal.check import check_journal
from oncewire.journal.predicates.message import Extent
from oncewire.journal.row import COLUMNS, Row, problem_of
from oncewire.message.envelope import Error, ErrorList, Header, Message, MessageKind, Severity
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Service
from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import rows_of
from oncewire.pipeline.reports.reconcile import reconcile
from oncewire.pipeline.sources.archive import contents, pieces
from oncewire.pipeline.sources.archived import beginning, journal, rows_about, seen_in
from oncewire.pipeline.sources.journal_source import open_book
from oncewire.wire import codec
from tests.entry.terminal import command_line
from tests.handler.network import Network
from tests.pipeline.books import make_store

ALPHA, BETA = "urn:test:alpha", "urn:test:beta"
RETRIED = '[delivery]\ntimeout = "PT60S"\nretry_interval = "PT60S"\nretries = 3\n'


def exchanged(profile: str = "ebms2", count: int = 3, **more) -> Network:
    """Orders of alpha, each acknowledged; the first acknowledgement of all is lost."""
    pair = Network.pair(profile, RETRIED, lose_answer=lambda number: number == 1, **more)
    pair.send_all(range(1, count + 1))
    for _ in range(3):
        pair.pass_time()
    pair.take()
    return pair


def recorded(pair: Network) -> list[bytes]:
    """Every parcel that travelled, with its headers, as a proxy between the two keeps them."""
    found = []
    for crossing in pair.line:
        found.append(_file(crossing.parcel))
        if crossing.reply is not None and crossing.reply.body:
            found.append(_file(crossing.reply))
    return found


def _file(parcel) -> bytes:
    return f"Content-Type: {parcel.content_type}\r\n\r\n".encode() + parcel.body


def in_folder(folder: Path, files: list[bytes]) -> Path:
    folder.mkdir(parents=True)
    for number, data in enumerate(files):
        (folder / f"{number:04d}.mime").write_bytes(data)
    return folder


def rows_here(root: Path, *parties: str, node: str = "old") -> list[Row]:
    """The journal as Spark writes it, without Spark."""
    whose = frozenset(parties)
    about: dict[str, list] = {}
    for piece in pieces(str(root)):
        for content in contents(piece):
            for seen in seen_in(content, whose):
                if seen.what not in ("unread", "strange", "other"):
                    about.setdefault(seen.about, []).append(seen)
    placed = [pair for key, seen in about.items() for pair in rows_about(key, seen, node)]
    placed.sort(key=lambda pair: (pair[0].at, pair[1], pair[0].message_id, pair[0].attempt or 0))
    rows = [*beginning(node, whose, placed[0][0].at), *(row for row, _ in placed)]
    return [row._replace(seq=seq) for seq, row in enumerate(rows, start=1)]


def told(rows: list[Row], *kinds: str) -> list[tuple]:
    """What a book says of each message, whatever else it knows."""
    return sorted(
        (row.kind, row.message_id, row.peer, row.digest if row.kind != "sent" else None)
        for row in rows
        if row.kind in kinds
    )


@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "window"])
def test_an_archive_says_what_the_journal_of_its_handler_said(tmp_path: Path, profile: str) -> None:
    pair = exchanged(profile)
    folder = in_folder(tmp_path / "raw", recorded(pair))
    sender = pair.rows(at="alpha")
    receiver = pair.rows(at="beta")
    # In the drafts handlers acknowledge to each other, by their addresses.
    ours = rows_here(folder, ALPHA, "http://alpha/msh")
    theirs = rows_here(folder, BETA, "http://beta/msh")
    assert [problem_of(row) for row in (*ours, *theirs)] == [None] * len((*ours, *theirs))
    assert told(ours, "submitted", "sent") == told(sender, "submitted", "sent")
    assert told(theirs, "received", "duplicate") == told(receiver, "received", "duplicate")
    assert {row.message_id for row in theirs if row.kind == "duplicate"} == {"order-1@alpha"}
    for kind, archived, booked in (
        ("acknowledged", ours, sender),
        ("ack_sent", theirs, receiver),
    ):
        pairs = [
            {(row.message_id, row.ref_to) for row in rows if row.kind == kind}
            for rows in (archived, booked)
        ]
        assert pairs[0] == pairs[1], kind
    numbers = [
        {row.message_id: row.sequence_number for row in rows if row.kind == "received"}
        for rows in (theirs, receiver)
    ]
    assert numbers[0] == numbers[1]


def test_nobody_is_accused_because_an_archive_lacks_what_no_message_shows(tmp_path: Path) -> None:
    pair = exchanged()
    folder = in_folder(tmp_path / "raw", recorded(pair))
    theirs = rows_here(folder, BETA, node=BETA)
    sender = pair.rows(at="alpha")
    report = check_journal([*sender, *theirs], healed=True)
    assert report.clean, (report.violations, report.quarantined)
    assert report.extents[Extent.IN_DOUBT.value] == 3
    # The same rows of a handler that says nothing of the kind: it never handed anything over.
    plain = [
        row._replace(detail=(row.detail or "").replace('"archive":true', '"archive":false'))
        if row.kind == "started"
        else row
        for row in theirs
    ]
    assert not check_journal([*sender, *plain], healed=True).clean


def test_a_message_that_an_archive_lacks_is_no_proof(tmp_path: Path) -> None:
    pair = exchanged()
    kept = [data for data in recorded(pair) if b"order-2@alpha" not in data]
    theirs = rows_here(in_folder(tmp_path / "raw", kept), BETA, node=BETA)
    sender = pair.rows(at="alpha")
    assert check_journal([*sender, *theirs], healed=True).clean


def test_our_own_faults_are_found_beside_an_archive(tmp_path: Path) -> None:
    pair = exchanged()
    theirs = rows_here(in_folder(tmp_path / "raw", recorded(pair)), BETA, node=BETA)
    sender = [
        row._replace(attempt=1) if row.kind == "sent" and row.attempt == 2 else row
        for row in pair.rows(at="alpha")
    ]
    report = check_journal([*sender, *theirs], healed=True)
    assert [(found.kind, found.node) for found in report.violations] == [("contradiction", "alpha")]


def test_other_content_under_one_id_is_altered(tmp_path: Path) -> None:
    pair = exchanged(count=1)
    files = recorded(pair)
    order = next(data for data in files if b"order 1" in data)
    other = order.replace(b"order 1", b"order 7", 1)
    assert other != order
    folder = in_folder(tmp_path / "raw", [*files, other])
    for party in (ALPHA, BETA):
        report = check_journal(rows_here(folder, party), healed=True)
        assert [found.kind for found in report.violations] == ["altered"], party


def an_error(of: Message, severity: Severity) -> bytes:
    """What beta answers to an order."""
    header = Header(
        from_party=of.header.to_party,
        to_party=of.header.from_party,
        cpa_id=of.header.cpa_id,
        conversation_id=of.header.conversation_id,
        service=Service("urn:oasis:names:tc:ebxml-msg:service"),
        action="MessageError",
        message_id="error-1@beta",
        timestamp=of.header.timestamp,
        ref_to_message_id=of.header.message_id,
    )
    errors = ErrorList((Error("ValueNotRecognized", severity, "", "no such order"),))
    return _file(
        codec.write(Message(Dialect.EBMS2, MessageKind.ERROR, header, error_list=errors), Form())
    )


@pytest.mark.parametrize(
    ("severity", "sender", "receiver"),
    [
        (Severity.ERROR, ["submitted", "sent", "rejected"], ["refused"]),
        (Severity.WARNING, ["submitted", "sent", "warned"], ["received", "warning_sent"]),
    ],
)
def test_an_error_settles_a_message_and_a_warning_does_not(
    tmp_path: Path, severity: Severity, sender: list[str], receiver: list[str]
) -> None:
    pair = Network.pair("ebms2", RETRIED, carrying=False)
    pair.send()
    order = pair.sent()
    files = [_file(order), an_error(codec.read(order).message, severity)]
    folder = in_folder(tmp_path / "raw", files)
    for party, kinds in ((ALPHA, sender), (BETA, receiver)):
        rows = rows_here(folder, party)
        assert [row.kind for row in rows][3:] == kinds
        assert [problem_of(row) for row in rows] == [None] * len(rows)
        assert check_journal(rows, healed=True).clean


# --- where messages lie -----------------------------------------------------------------------


def in_mbox(path: Path, files: list[bytes]) -> Path:
    box = mailbox.mbox(path)
    for data in files:
        box.add(_mail(data))
    box.close()
    return path


def in_maildir(path: Path, files: list[bytes]) -> Path:
    box = mailbox.Maildir(path)
    for data in files:
        box.add(_mail(data))
    (path / "tmp" / "half").write_bytes(b"not a mail yet")
    return path


def in_tar(path: Path, files: list[bytes]) -> Path:
    with tarfile.open(path, "w") as bundle:
        for number, data in enumerate(files):
            entry = tarfile.TarInfo(f"../../{number:04d}.mime")
            entry.size = len(data)
            bundle.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("evil")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        bundle.addfile(link)
    return path


def _mail(data: bytes) -> bytes:
    head = b"From: a@example.org\nTo: b@example.org\nDate: Thu, 01 Jan 2026 00:10:00 +0000\n"
    return head + data.replace(b"\r\n", b"\n")


@pytest.mark.parametrize("make", [in_mbox, in_maildir], ids=["mbox", "maildir"])
def test_a_mailbox_holds_the_same_messages(tmp_path: Path, make) -> None:
    files = recorded(exchanged())
    plain = rows_here(in_folder(tmp_path / "raw", files), BETA)
    mails = rows_here(make(tmp_path / "mail.mbox", files), BETA)
    kinds = ("received", "duplicate", "ack_sent")
    assert told(mails, *kinds) == told(plain, *kinds)
    assert {row.transport for row in mails if row.kind == "received"} == {"smtp"}
    assert {row.at for row in mails if row.kind == "received"} == {1_767_226_200_000_000}


def test_a_mailbox_is_known_by_its_first_line_too(tmp_path: Path) -> None:
    files = recorded(exchanged())
    in_mbox(tmp_path / "mail.mbox", files).rename(tmp_path / "Sent")
    assert len(rows_here(tmp_path / "Sent", BETA)) > len(files)


def test_a_mail_that_is_too_large_is_named_and_takes_no_memory(tmp_path: Path) -> None:
    box = tmp_path / "big.mbox"
    small = _mail(recorded(exchanged(count=1))[0])
    with box.open("wb") as file:
        file.write(b"From a@b Thu Jan  1 00:00:00 2026\n" + small + b"\n")
        file.write(b"From a@b Thu Jan  1 00:00:00 2026\nSubject: x\n\n" + b"x" * 900_000 + b"\n\n")
        file.write(b"From a@b Thu Jan  1 00:00:00 2026\n" + small + b"\n")
    found = [each for piece in pieces(str(tmp_path)) for each in contents(piece, 200_000)]
    assert [each.member for each in found] == ["1", "2", "3"]
    assert [bool(each.problem) for each in found] == [False, True, False]
    assert "more than" in found[1].problem
    assert found[1].data == b""


def test_what_only_calls_itself_a_mailbox_is_told(tmp_path: Path) -> None:
    (tmp_path / "no.mbox").write_bytes(b"hello\n" * 100)
    (tmp_path / "empty.mbox").write_bytes(b"")
    found = [each for piece in pieces(str(tmp_path)) for each in contents(piece)]
    assert ["no mailbox" in each.problem for each in found] == [True]


# --- on Spark ---------------------------------------------------------------------------------


def read_rows(folder: Path) -> list[Row]:
    book = open_book(folder)
    return list(rows_of(book.batches(0, book.bounds()[1], COLUMNS)))


def test_the_journal_of_an_archive_is_a_book(spark, tmp_path: Path) -> None:
    pair = exchanged()
    files = recorded(pair)
    archive = in_tar(tmp_path / "raw.tar", [*files, b"\x00garbage", b"<x"])
    box = in_mbox(tmp_path / "more.mbox", files[:1])
    made = journal(spark, [archive, box], tmp_path / "old", [BETA], node="old-beta")
    assert made.unread == 2
    assert [name.rpartition("/")[2] for name, _ in made.unreadable] == [
        f"{len(files):04d}.mime", f"{len(files) + 1:04d}.mime",
    ]  # fmt: skip
    rows = read_rows(tmp_path / "old")
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert made.rows == len(rows)
    assert made.messages == 3
    assert made.kinds["received"] == 3
    assert made.kinds["duplicate"] == 2
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    # The other party's own store beside it.
    store = make_store(tmp_path / "alpha.db", "alpha", pair.rows(at="alpha"))
    joined = reconcile(spark, open_book(store), open_book(tmp_path / "old"))
    assert (joined.compared, joined.disagreements) == (3, ())
    lake = Lake(tmp_path / "lake")
    done = jobs.run(spark, lake, [store, tmp_path / "old"], ended=True)
    assert (done.messages, done.violations, done.quarantined) == (3, 0, 0)
    judged = judge_lake(spark, lake, ended=True)
    assert judged.clean, (judged.violations, judged.quarantined)
    assert judged.extents == {"in_doubt": 3}
    book = pair.rows(at="alpha")
    plain = check_journal([*book, *rows], healed=True)
    assert plain.extents == judged.extents
    with pytest.raises(NotAllowed, match="not empty"):
        journal(spark, [archive], tmp_path / "old", [BETA])


def test_what_an_archive_does_not_have_is_told_by_reconciling(spark, tmp_path: Path) -> None:
    pair = exchanged()
    kept = [data for data in recorded(pair) if b"order-2@alpha" not in data]
    journal(spark, [in_folder(tmp_path / "raw", kept)], tmp_path / "old", [BETA])
    rows = pair.rows(at="alpha")
    store = make_store(tmp_path / "alpha.db", "alpha", rows)
    found = reconcile(spark, open_book(store), open_book(tmp_path / "old"))
    assert found.kinds == {"not_received": 1}


def test_a_party_that_no_message_names_is_refused_with_those_that_are(
    spark, tmp_path: Path
) -> None:
    archive = in_folder(tmp_path / "raw", recorded(exchanged(count=1)))
    with pytest.raises(JournalProblem, match="urn:test:alpha to urn:test:beta"):
        journal(spark, [archive], tmp_path / "old", ["urn:test:gamma"])
    assert not (tmp_path / "old").exists()


def test_messages_of_every_vendor_become_rows(spark, corpus: Path, tmp_path: Path) -> None:
    """Samples that other handlers wrote; each party of theirs has a journal that is judged."""
    found = []
    for piece in pieces(str(corpus)):
        for content in contents(piece):
            found += [seen.detail or "" for seen in seen_in(content, frozenset())
                      if seen.what == "strange"]  # fmt: skip
    parties = sorted({name for way in found for name in way.split(" to ")})
    assert len(parties) >= 4
    made = journal(spark, [corpus], tmp_path / "all", parties, node="all")
    rows = read_rows(tmp_path / "all")
    assert made.messages >= 7
    assert made.unread > 0
    assert [problem_of(row) for row in rows] == [None] * len(rows)
    assert not check_journal(rows, healed=True).quarantined


def test_the_command(spark, tmp_path: Path) -> None:
    archive = in_folder(tmp_path / "raw", [*recorded(exchanged()), b"nothing"])
    words = ["journal", str(archive), "--party", BETA, "--to", str(tmp_path / "old")]
    answer = CliRunner().invoke(command_line(), ["pipeline", *words])
    assert answer.exit_code == 0, answer.output
    assert "1 file could not be read" in answer.output
    assert "oncewire pipeline run --store" in answer.output

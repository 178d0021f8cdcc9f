"""A party remembers its store outside the database: one that is empty, gone, foreign or older is
refused, and nothing that was confirmed is handed over again."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from oncewire.entry.cli import output
from oncewire.entry.party.folder import KeyKind, make_party
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.party.store import MANIFEST, is_owned, open_store
from oncewire.entry.running.open_party import open_party_blocking
from oncewire.entry.running.serving import make_engine
from oncewire.errors import StoreProblem
from oncewire.handler.world import RealWorld
from tests.entry.served import Served
from tests.entry.terminal import process, run, run_json
from tests.store.samples import row

RECORD = "store.json"


def settings_of(pair: Path, name: str = "globex") -> Settings:
    return load(pair / name, environ={}).settings


def database(pair: Path, name: str = "globex") -> Path:
    return pair / name / "data" / "oncewire.db"


def exchange(pair: Path, count: int = 1) -> None:
    """Acme sends, and the program of globex takes and confirms each."""
    with open_party_blocking(pair / "acme") as acme, open_party_blocking(pair / "globex") as globex:
        for _ in range(count):
            sent = acme.send("globex", b"<order/>").message_id
            assert str(acme.wait(sent, 30)) == "delivered"
            (got,) = globex.take()
            assert got.message_id == sent
            globex.confirm(got)


def put(source: Path, target: Path) -> None:
    """What a hurried operator does: one file over the other, and its log away."""
    for end in ("-wal", "-shm"):
        Path(f"{target}{end}").unlink(missing_ok=True)
    shutil.copyfile(source, target)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    path.unlink()


def without_its_log(path: Path) -> None:
    """The file of a young store alone: everything in it is in the log that was left behind."""
    path.unlink()
    made = apsw.Connection(str(path))
    made.pragma("journal_mode", "wal")
    made.close()


def refused(pair: Path, said: str) -> None:
    """No opening that would write goes through, and everybody who looks is told."""
    store, before = database(pair), None
    if store.exists():
        before = store.read_bytes()
    place = ("-c", pair / "globex")
    with (
        pytest.raises(StoreProblem, match=said) as raised,
        open_party_blocking(pair / "globex") as party,
    ):
        party.take()
    assert type(raised.value).__name__ == "StoreReplaced"
    assert "docs/howto/backup.md" in raised.value.remedy
    assert f"remove {pair / 'globex' / RECORD}" in raised.value.remedy
    with pytest.raises(StoreProblem, match=said):
        make_engine(settings_of(pair))
    for words in (
        ("inbox", "take"),
        ("inbox", "confirm", "m"),
        ("send", "--to", "acme", pair / "globex" / "oncewire.toml"),
        ("serve",),
        ("resume", "m"),
        ("backup", pair / "copy"),
    ):
        result = run(*words, *place, exit_code=None)
        assert result.exit_code not in (0, 1), words
        assert re.search(said, " ".join((result.output + result.stderr).split())), words
    assert not (pair / "copy").exists()
    found = run_json("status", *place, exit_code=output.NOT_RUNNING)
    assert re.search(said, found["store"])
    assert f"oncewire doctor -c {pair / 'globex'}" in found["next"]
    checks = run_json("doctor", "--no-partners", *place, exit_code=output.NOT_RUNNING)["checks"]
    (told,) = [check for check in checks if check["what"] == "store"]
    assert told["grade"] == "bad"
    assert re.search(said, told["finding"])
    assert "docs/howto/backup.md" in told["fix"]
    # Whoever was refused has left no trace that another could take for a store.
    assert (store.read_bytes() if store.exists() else None) == before


@pytest.mark.requirement("STO-1")
@pytest.mark.parametrize(
    ("ruin", "said"), [(empty, "is empty"), (gone, "is gone"), (without_its_log, "is empty")]
)
def test_a_store_without_content_is_no_new_party(
    pair: Path, served: Served, ruin: Callable[[Path], None], said: str
) -> None:
    exchange(pair)
    served.stop("globex")
    kept = database(pair).read_bytes()
    ruin(database(pair))
    refused(pair, said)
    # Put back it goes on, and knows what was confirmed.
    database(pair).write_bytes(kept)
    served.start("globex")
    assert run_json("inbox", "take", "-c", pair / "globex")["messages"] == []
    exchange(pair)


def test_who_truly_wants_to_begin_anew_removes_the_record(pair: Path, served: Served) -> None:
    exchange(pair)
    served.stop("globex")
    empty(database(pair))
    refused(pair, "is empty")
    (pair / "globex" / RECORD).unlink()
    checks = run_json("doctor", "--no-partners", "-c", pair / "globex", exit_code=None)["checks"]
    assert "store" not in [check["what"] for check in checks]
    served.start("globex")
    exchange(pair)
    served.stop("globex")
    served.start("globex")


def test_another_store_is_refused_whoever_it_belongs_to(
    pair: Path, served: Served, tmp_path: Path
) -> None:
    exchange(pair)
    served.stop("globex")
    served.stop("acme")
    put(database(pair, "acme"), database(pair))
    refused(pair, "is another store")
    # One of a party that has the same name, too.
    now = RealWorld().now()
    make_party(tmp_path / "twin", "globex", now=now, key_kind=KeyKind.EC)
    open_store(settings_of(tmp_path, "twin")).close()
    put(database(tmp_path, "twin"), database(pair))
    refused(pair, "is another store")


def test_an_older_copy_that_was_put_back_by_hand_is_refused(
    pair: Path, served: Served, tmp_path: Path
) -> None:
    exchange(pair)
    served.stop("globex")
    shutil.copyfile(database(pair), tmp_path / "monday.db")
    newest = tmp_path / "friday.db"
    served.start("globex")
    exchange(pair)
    served.stop("globex")
    shutil.copyfile(database(pair), newest)
    put(tmp_path / "monday.db", database(pair))
    refused(pair, "is older")
    put(newest, database(pair))
    served.start("globex")
    exchange(pair)


def test_a_restore_by_the_product_is_accepted_and_its_lost_end_is_not(
    pair: Path, served: Served, tmp_path: Path
) -> None:
    exchange(pair)
    globex = ("-c", pair / "globex")
    run("backup", tmp_path / "monday", *globex)
    assert (tmp_path / "monday" / RECORD).stat().st_mode & 0o777 == 0o600
    exchange(pair)
    served.stop("globex")
    # Only its database: that is a restore by hand.
    lost = tmp_path / "friday.db"
    shutil.copyfile(database(pair), lost)
    put(tmp_path / "monday" / "data" / "oncewire.db", database(pair))
    refused(pair, "is older")
    # The whole folder: that is a restore by the product.
    shutil.rmtree(pair / "globex")
    shutil.copytree(tmp_path / "monday", pair / "globex")
    assert "store" not in run_json("status", *globex)
    served.start("globex")
    exchange(pair, 4)
    assert "restored" in run_json("status", *globex)
    assert (pair / "globex" / MANIFEST).exists()
    served.stop("globex")
    # What was lost comes to light and is put in: it knows nothing of what happened since.
    put(lost, database(pair))
    refused(pair, "is older")


def test_a_history_that_only_began_alike_is_refused(pair: Path, served: Served) -> None:
    exchange(pair)
    served.stop("globex")
    twin = pair / "twin"
    shutil.copytree(pair / "globex", twin)
    served.start("globex")
    exchange(pair)
    served.stop("globex")
    here, there = json.loads((pair / "globex" / RECORD).read_text()), None
    # The copy went on by itself, and further.
    while there is None or there["journal"] <= here["journal"]:
        store = open_store(load(twin, environ={}).settings)
        with store.transition() as tx:
            tx.journal([row("started", None)] * 5)
        store.commit()
        store.close()
        there = json.loads((twin / RECORD).read_text())
    assert there["store"] == here["store"]
    put(twin / "data" / "oncewire.db", database(pair))
    refused(pair, "another history")


def test_a_folder_without_a_record_takes_the_store_that_is_there(
    pair: Path, served: Served
) -> None:
    exchange(pair)
    served.stop("globex")
    # A store of the version before there were ids.
    connection = apsw.Connection(str(database(pair)))
    connection.execute("ALTER TABLE node DROP COLUMN store_id")
    for name in ("outgoing", "incoming"):
        connection.execute(
            f"DROP TABLE {name}_word; DROP TABLE {name}_term; DROP INDEX {name}_time; "
            f"DROP INDEX {name}_partner; ALTER TABLE counter DROP COLUMN {name}_filed"
        )
    connection.pragma("user_version", 12)
    connection.close()
    (pair / "globex" / RECORD).unlink()
    served.start("globex")
    exchange(pair)
    said = json.loads((pair / "globex" / RECORD).read_text())
    assert len(said["store"]) == 32
    served.stop("globex")
    empty(database(pair))
    refused(pair, "is empty")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"store": 7, "journal": "x"}', None])
def test_a_record_that_cannot_be_read_vouches_for_no_store(
    pair: Path, served: Served, content: bytes | None
) -> None:
    """An older copy of the store would be taken for the right one, and its messages repeated."""
    exchange(pair)
    served.stop("globex")
    record = pair / "globex" / RECORD
    record.unlink()
    record.mkdir() if content is None else record.write_bytes(content)
    refused(pair, "the record of it cannot be read")
    record.rmdir() if content is None else record.unlink()
    served.start("globex")
    exchange(pair)
    served.stop("globex")


def test_a_folder_that_cannot_be_written_keeps_nobody_from_working(
    pair: Path, served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exchange(pair)
    served.stop("globex")
    record = pair / "globex" / RECORD
    record.unlink()
    replace = os.replace

    def refuse(source: Path, target: Path, **folders: int) -> None:
        if Path(target).name == RECORD:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        replace(source, target, **folders)

    monkeypatch.setattr(os, "replace", refuse)
    served.start("globex")
    exchange(pair)
    assert "the party's folder cannot remember which store it has" in caplog.messages
    checks = run_json("doctor", "--no-partners", "-c", pair / "globex", exit_code=None)["checks"]
    (told,) = [check for check in checks if check["what"] == "store"]
    assert told["grade"] == "warning"
    assert RECORD in told["fix"]
    served.stop("globex")
    assert not record.exists()


def test_who_only_reads_writes_nothing(pair: Path, served: Served) -> None:
    exchange(pair)
    served.stop("globex")
    before = {
        path: path.stat().st_mtime_ns for path in (pair / "globex").rglob("*") if path.is_file()
    }
    for words in (("status",), ("inbox",), ("incidents",), ("verify",)):
        run(*words, "-c", pair / "globex", exit_code=None)
    assert before == {path: path.stat().st_mtime_ns for path in before}


CALLS = ("fsync", "replace", "open", "close", "unlink", "fchmod")


def live_until(settings: Settings, last: int) -> bool:
    """In a child: a store's whole life, dead at that call of the system; False: it lived on."""
    child = os.fork()
    if child == 0:
        left = last

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*given: object, **named: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(9)
                return real(*given, **named)

            return call

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            store = open_store(settings)
            for _ in range(2):
                with store.transition() as tx:
                    tx.journal([row("started", None)])
                store.commit()
            store.close()
        except BaseException:  # noqa: BLE001 - the child must not go on as the test
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9)
    return status == 9


@pytest.mark.process
def test_whoever_dies_at_any_step_leaves_a_party_that_opens_again(tmp_path: Path) -> None:
    now = RealWorld().now()
    make_party(tmp_path / "party", "party", now=now, key_kind=KeyKind.EC)
    step, died = 0, True
    while died:
        for begun in (False, True):
            folder = tmp_path / f"{step}-{begun}"
            shutil.copytree(tmp_path / "party", folder)
            settings = load(folder, environ={}).settings
            if begun:
                open_store(settings).close()
            died = live_until(settings, step)
            for _ in range(2):
                store = open_store(settings)
                with store.transition() as tx:
                    tx.journal([row("started", None)])
                store.commit()
                with store.reader() as reader:
                    rows = reader.last_seq()
                store.close()
            assert json.loads((folder / RECORD).read_text())["journal"] == rows
        step += 1
    assert step > 8


@pytest.mark.process
def test_a_killed_handler_remembers_too(pair: Path) -> None:
    """Real processes: the record follows while it runs, so that a copy made before is older."""
    for name in ("acme", "globex"):
        assert process("serve", "--detach", "-c", pair / name).returncode == 0
    try:
        exchange(pair)
        first = json.loads((pair / "globex" / RECORD).read_text())
        assert process("stop", pair / "globex").returncode == 0
        copied = database(pair).read_bytes()
        assert process("serve", "--detach", "-c", pair / "globex").returncode == 0
        exchange(pair)
        pid = run_json("status", "-c", pair / "globex")["pid"]
        os.kill(pid, 9)
        while is_owned(database(pair)):
            time.sleep(0.02)
        assert first["store"] == json.loads((pair / "globex" / RECORD).read_text())["store"]
        for end in ("-wal", "-shm"):
            Path(f"{database(pair)}{end}").unlink(missing_ok=True)
        database(pair).write_bytes(copied)
        refused(pair, "is older")
    finally:
        process("stop", pair / "acme")

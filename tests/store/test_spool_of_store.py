"""A store on PostgreSQL and its spool: handlers that would put documents where the others do not
find them are refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncewire.errors import SpoolElsewhere
from oncewire.store.postgresql import connection as connecting
from oncewire.store.postgresql.store import PostgresStore
from tests.buckets import serving
from tests.postgres import Server


def begin(url: str, spool: Path, bucket: str = "") -> PostgresStore:
    """Open it as one of its handlers."""
    return PostgresStore(url, node="node", spool=spool, bucket=bucket, lease=15)


def test_a_handler_with_another_spool_is_refused(postgres: Server, tmp_path: Path) -> None:
    url = postgres.new_schema()
    first = begin(url, tmp_path / "one")
    for _ in range(2):
        with pytest.raises(SpoolElsewhere, match="no file spool-") as refused:
            begin(url, tmp_path / "other")
        assert "set store.spool" in (refused.value.remedy or "")
    assert first.fellows is not None
    assert len(first.fellows.all()) == 1
    second = begin(url, tmp_path / "one")
    assert len(first.fellows.all()) == 2
    # Cleaning leaves the file by which the spool is known.
    first.spool.remove_unreferenced(set())
    for store in (first, second):
        store.close()
    with pytest.raises(SpoolElsewhere):
        begin(url, tmp_path / "other")
    # All files were moved.
    (tmp_path / "one").rename(tmp_path / "moved")
    begin(url, tmp_path / "moved").close()


def test_a_second_party_is_refused_in_the_spool_of_the_first(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention removes the files that the store of its own party does not know."""
    first, second = postgres.new_schema(), postgres.new_schema()
    with serving() as server:
        server.empty("spools")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        for bucket in ("", "s3://spools/acme"):
            begin(first, tmp_path / "spool", bucket).close()
            with pytest.raises(SpoolElsewhere, match="documents of 'node' lie in"):
                PostgresStore(second, node="other", spool=tmp_path / "spool", bucket=bucket)
            postgres.ask(f"DELETE FROM {first.rpartition('%3D')[2]}.spool")
            # Another database of the same party, as after a copy of its store.
            begin(first, tmp_path / "spool", bucket).close()
            postgres.ask(f"DELETE FROM {first.rpartition('%3D')[2]}.spool")


def test_a_store_of_an_earlier_version_takes_the_spool_that_it_is_started_with(
    postgres: Server, tmp_path: Path
) -> None:
    url = postgres.new_schema()
    known = connecting.known_migrations()
    connection = connecting.connect(url)
    connecting.migrate(connection, url, known[:3])
    connection.execute("INSERT INTO node (id, name, journal_version) VALUES (1, 'node', 1)")
    connecting.disconnect(connection)
    first, second = begin(url, tmp_path / "one"), begin(url, tmp_path / "one")
    with pytest.raises(SpoolElsewhere):
        begin(url, tmp_path / "other")
    for store in (first, second):
        store.close()


def test_of_two_that_come_at_once_with_a_spool_each_one_is_refused(
    postgres: Server, tmp_path: Path
) -> None:
    url = postgres.new_schema()
    PostgresStore(url, node="node", spool=tmp_path / "spool").close()
    both = threading.Barrier(2)

    def come(spool: Path) -> bool:
        both.wait()
        try:
            begin(url, spool).close()
        except SpoolElsewhere:
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        for number in range(5):
            postgres.ask(f"DELETE FROM {url.rpartition('%3D')[2]}.spool")
            spools = [tmp_path / f"{number} {name}" for name in ("one", "other")]
            assert sorted(threads.map(come, spools)) == [False, True]


def test_handlers_that_share_a_bucket_have_folders_of_their_own(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_schema()
    with serving() as server:
        server.empty("spools")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        first = begin(url, tmp_path / "one", "s3://spools/acme")
        second = begin(url, tmp_path / "other", "s3://spools/acme")
        for bucket in ("s3://spools/else", ""):
            with pytest.raises(SpoolElsewhere):
                begin(url, tmp_path / "one", bucket)
        for store in (first, second):
            store.close()

"""A turn on PostgreSQL by two drivers: `python -m bench.drivers`.

A turn of the store is two round trips: the lock with what it reads, then one insert of arrays and
the commit. Here psycopg, which the store uses, and asyncpg do the same turn by turns on one server,
each with its statements prepared and its values in binary form. Told are the processor time of the
client and the clock, of each turn, and what asyncpg takes of psycopg's. asyncpg is no dependency:
`pip install asyncpg` first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from oncewire.store.postgresql.connection import connect
from oncewire.store.postgresql.values import KINDS
from tests.postgres import Server

SCHEMA = """
CREATE TABLE counter (id bigint PRIMARY KEY, commits bigint NOT NULL);
CREATE TABLE message
    (id bigint PRIMARY KEY, message_id text, state text, due_at bigint, body bytea);
INSERT INTO counter VALUES (1, 0);
"""
LOCK = "SELECT commits FROM counter WHERE id = 1 FOR UPDATE"
READ = "SELECT id, state FROM message WHERE id = ANY($1::bigint[])"
WRITE = (
    "INSERT INTO message SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], "
    "$5::bytea[])"
)
COUNT = "UPDATE counter SET commits = commits + 1 WHERE id = 1"

Turn = Callable[[int], None]


def rows(first: int, many: int, body: bytes = b"x" * 600) -> list[list[Any]]:
    """The columns of so many messages."""
    numbers = list(range(first, first + many))
    names = [f"order-{number}@acme.example" for number in numbers]
    return [numbers, names, ["waiting"] * many, numbers, [body] * many]


def with_psycopg(url: str, many: int, body: bytes = b"x" * 600) -> Turn:
    """Turns as the store makes them: arrays by its own writers, a pipeline for what ends a turn."""
    kinds = [KINDS[name][0] for name in ("INTEGER", "TEXT", "TEXT", "INTEGER", "BLOB")]
    connection = connect(url)

    def turn(first: int) -> None:
        values = rows(first, many, body)
        with connection.pipeline():
            connection.execute("BEGIN")
            connection.execute(LOCK, binary=True)
            found = connection.execute(READ, [kinds[0](tuple(values[0]))], binary=True)
        assert found.fetchall() == []
        arrays = [kind(tuple(column)) for kind, column in zip(kinds, values, strict=True)]
        with connection.pipeline():
            connection.execute(WRITE, arrays)
            connection.execute(COUNT)
            connection.execute("COMMIT")

    return turn


def with_asyncpg(url: str, many: int) -> Turn:
    """The same. asyncpg has no pipeline: statements that have values go one by one."""
    import asyncpg  # type: ignore[import-not-found]

    loop = asyncio.new_event_loop()

    async def prepared() -> Any:
        connection = await asyncpg.connect(url)
        read, write = await connection.prepare(READ), await connection.prepare(WRITE)
        return connection, read, write

    connection, read, write = loop.run_until_complete(prepared())

    async def steps(first: int) -> None:
        values = rows(first, many)
        await connection.execute(f"BEGIN; {LOCK}")
        assert await read.fetch(values[0]) == []
        await write.fetch(*values)
        await connection.execute(f"{COUNT}; COMMIT")

    return lambda first: loop.run_until_complete(steps(first))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=300, help="of each driver in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, nargs="*", default=[1, 16, 64], help="in a turn")
    given = parser.parse_args(arguments)
    server = Server()
    told = []
    try:
        server.ask(SCHEMA)
        url, first = server.url("public"), 1
        for many in given.messages:
            taken: dict[str, list[tuple[float, float]]] = {"psycopg": [], "asyncpg": []}
            works = {"psycopg": with_psycopg(url, many), "asyncpg": with_asyncpg(url, many)}
            for turn in works.values():
                turn(first)
                first += many
            for _ in range(given.rounds):
                for name, turn in works.items():
                    began = time.process_time(), time.perf_counter()
                    for _ in range(given.turns):
                        turn(first)
                        first += many
                    ended = time.process_time(), time.perf_counter()
                    each = [(b - a) / given.turns * 1e6 for a, b in zip(began, ended, strict=True)]
                    taken[name].append((each[0], each[1]))
            medians = {
                name: [round(statistics.median(side)) for side in zip(*found, strict=True)]
                for name, found in taken.items()
            }
            ratios = [
                round(b / a, 2) for a, b in zip(medians["psycopg"], medians["asyncpg"], strict=True)
            ]
            told.append({"messages": many, "turn_us": medians, "asyncpg_to_psycopg": ratios})
            print(
                f"{many:4} messages a turn: psycopg {medians['psycopg'][0]} µs of processor and "
                f"{medians['psycopg'][1]} µs by the clock, asyncpg {ratios[0]} and {ratios[1]} "
                "times that"
            )
    finally:
        server.close()
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The chain over a node's journal: each head depends on every row before it.

The head behind a row is the SHA-256 of the head before it and of the row's text. So one head proves
all rows that led to it: none can be altered, added, taken out or moved without another head. A node
keeps with each row the head before it, so a journal that was trimmed still says where its chain
goes on.

A head proves nothing by itself, for whoever can edit a journal can chain it anew. It proves
something to those who noted it before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

Head = bytes
Value = int | str | None

START: Head = bytes(32)
"""Before the first row that is chained."""


def row_text(row: Sequence[Value]) -> str:
    """A row's columns in order: a text with its length in characters and a colon before it, a
    number with a semicolon behind it, nothing as a hyphen. So no two rows have one text."""
    return "".join(
        [
            f"{len(value)}:{value}"
            if value.__class__ is str
            else "-"
            if value is None
            else f"{value};"
            if value.__class__ is int
            else _plain(value)
            for value in row
        ]
    )


def _plain(value: int | str) -> str:
    """An enumeration's member, or a truth value, as a store gives it back."""
    return row_text((str(value),) if isinstance(value, str) else (int(value),))


def link(head: Head, row: Sequence[Value]) -> Head:
    """The head behind one more row."""
    text = row_text(row).encode("utf-8", "surrogatepass")
    return hashlib.sha256(head + text).digest()


def links(head: Head, rows: Iterable[Sequence[Value]]) -> list[Head]:
    """The head before each row, and at last the one behind all of them."""
    found = [head]
    for row in rows:
        head = link(head, row)
        found.append(head)
    return found


def last_head(head: Head, rows: Iterable[Sequence[Value]]) -> Head:
    """The head behind some rows, however many they are."""
    for row in rows:
        head = link(head, row)
    return head

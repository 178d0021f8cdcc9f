"""Proof: has a journal changed since it was taken in, in its store or in the lake?

A node chains its rows (`oncewire.journal.identity`). With each range of a journal the version keeps
the heads before and behind it, made anew of the rows that came, and for each node the head that it
kept itself. An edit of a store without a new chain shows in the store's own heads; one with a new
chain shows in the heads that a lake holds. One head proves all rows before it, so a store is
proven without the lake's rows; they are read only to name those that differ.
Rows that a store has trimmed since prove nothing against it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oncewire.errors import JournalProblem
from oncewire.journal.identity import START, last_head
from oncewire.journal.row import COLUMNS, Row
from oncewire.pipeline.lake.lake import SIGNATURE, Lake
from oncewire.pipeline.lake.storage import VERSIONS
from oncewire.pipeline.lake.tables import rows_of, rows_of_batch
from oncewire.pipeline.lake.version import Book, Entry, NodeState, Version, write_forced

if TYPE_CHECKING:
    from cryptography import x509

    from oncewire.wire.security.algorithms import SigningKey


ROWS_AT_ONCE = 100_000

CHANGED, GONE, ADDED, REWRITTEN = "changed", "gone", "added", "rewritten"
UNCHAINED = "unchained"
"""Rows are not those that their node chained: they were changed before they were taken in."""
CUT_OFF = "cut_off"
"""A store ends before the lake does: an older copy was restored, or its end was taken away."""


class Difference(NamedTuple):
    """One row, or one directory, that is not as it was taken in."""

    node: str
    seq: int
    what: str
    sentence: str


class Proven(NamedTuple):
    """What was compared, and what differs."""

    rows: int
    ranges: int
    differences: tuple[Difference, ...]

    @property
    def unchanged(self) -> bool:
        """Whether everything is as it was taken in."""
        return not self.differences


def chain_of(since: str, rows: Iterable[Row]) -> str:
    """The head behind some rows, from the one before them; both as a version has them."""
    return last_head(bytes.fromhex(since) if since else START, rows).hex()


def rows_in(lake: Lake, entry: Entry) -> Iterator[Row]:
    """The rows of a range as the lake has them, those that were set aside too, in order."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    folder, aside = lake.root / entry.path, _aside(lake, entry)
    for start in range(entry.first - 1, entry.last, ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, entry.last)
        some = [row for row in aside if start < row.seq <= end]
        if folder.is_dir():
            between = (pc.field("seq") > start) & (pc.field("seq") <= end)
            table = ds.dataset(folder, format="parquet").to_table(
                columns=list(COLUMNS), filter=between
            )
            some += [row for batch in table.to_batches() for row in rows_of_batch(batch)]
        yield from sorted(some, key=lambda row: row.seq)


def _aside(lake: Lake, entry: Entry) -> list[Row]:
    import pyarrow.dataset as ds

    folder = lake.root / entry.path.replace("bronze/journal/", "bronze/quarantine/", 1)
    if not folder.is_dir():
        return []
    texts = ds.dataset(folder, format="parquet").to_table(columns=["raw"])["raw"].to_pylist()
    return [Row(*(json.loads(text).get(name) for name in COLUMNS)) for text in texts]


# --- the lake ---


def check_lake(lake: Lake, version: Version) -> Proven:
    """Whether the lake's own rows are those that were taken in, and those that nodes chained."""
    found: list[Difference] = []
    looked = 0
    for entry in version.journal:
        if not entry.chain:
            continue
        looked += 1
        if chain_of(entry.since, rows_in(lake, entry)) != entry.chain:
            found.append(_of(entry, REWRITTEN, "are not those that were taken in"))
    return Proven(version.rows("journal"), looked, (*found, *unchained(version)))


def unchained(version: Version) -> Iterator[Difference]:
    """Ranges whose rows were not those that their node had chained when they were taken in."""
    for node, state in version.nodes.items():
        entries = sorted(
            (entry for entry in version.journal if entry.key == node), key=lambda entry: entry.first
        )
        for entry, following in zip(entries, [*entries[1:], None], strict=True):
            if following is None:
                kept = state.chain if entry.last == state.seq else ""
            else:
                kept = following.since if following.first == entry.last + 1 else ""
            if kept and entry.chain and kept != entry.chain and not _has_hole(state, entry):
                yield _of(entry, UNCHAINED, "are not those that their node had chained")


def _has_hole(state: NodeState, entry: Entry) -> bool:
    """Whether the range overlaps a hole of the journal: then the hole is told instead."""
    return any(hole.first <= entry.last and entry.first <= hole.last for hole in state.holes)


def _of(entry: Entry, what: str, verdict: str) -> Difference:
    sentence = f"rows {entry.first} to {entry.last} {verdict}"
    return Difference(entry.key, entry.first, what, sentence)


# --- a store ---


def check_book(lake: Lake, version: Version, book: Book) -> Proven:
    """Whether a store still has the rows that were taken in from it."""
    found: list[Difference] = []
    looked = ranges = 0
    first, last = book.bounds()
    for entry in version.journal:
        if entry.key != book.node:
            continue
        ranges += 1
        looked += book.count(entry.first - 1, entry.last)
        if not _proven(book, entry, first):
            found += _differences(lake, book, entry)
    state = version.nodes.get(book.node)
    if state is not None and last < state.seq and not _is_trimmed(book, state):
        told = f"the store ends with row {last}, and row {state.seq} was taken in from it"
        found = [difference for difference in found if difference.seq <= last]
        found.append(Difference(book.node, last, CUT_OFF, told))
    return Proven(looked, ranges, (*found, *_new_unchained(book, state)))


def _is_trimmed(book: Book, state: NodeState) -> bool:
    """Whether no row is left of a store; its head, if it has one, is still the lake's."""
    is_empty = book.bounds() == (0, 0)
    return is_empty and (not state.chain or book.head(state.seq) == state.chain)


def _proven(book: Book, entry: Entry, first: int) -> bool:
    """Whether the rows that are left of a range lead to the head that the lake has."""
    if not entry.chain:
        return False
    if entry.last < first:
        return True
    start = max(entry.first, first) - 1
    # Where the range's own beginning was trimmed, the store's head is enough: no other head and
    # other rows can be found that lead to the same one.
    since = entry.since if start == entry.first - 1 else book.head(start)
    return since is not None and _chained(book, since, start, entry.last) == entry.chain


def _new_unchained(book: Book, state: NodeState | None) -> Iterator[Difference]:
    """Rows that the lake does not have are judged by the node's own chain."""
    last = book.bounds()[1]
    start = max(0 if state is None else state.seq, book.chained_from() - 1)
    since, kept = book.head(start), book.head(last)
    if start < last and since is not None and kept and _chained(book, since, start, last) != kept:
        told = f"rows {start + 1} to {last} are not those that their node had chained"
        yield Difference(book.node, start + 1, UNCHAINED, told)


def _chained(book: Book, since: str, start: int, end: int) -> str:
    return chain_of(since, rows_of(book.batches(start, end, COLUMNS)))


def _differences(lake: Lake, book: Book, entry: Entry) -> Iterator[Difference]:
    """Which rows of a range are not as they were."""
    first = book.bounds()[0]
    for start in range(entry.first - 1, entry.last, ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, entry.last)
        part = Entry(entry.path, entry.rows, entry.key, start + 1, end)
        kept = {row.seq: row for row in rows_in(lake, part)}
        there = {row.seq: row for row in rows_of(book.batches(start, end, COLUMNS))}
        yield from _compared(book.node, kept, there, first)


def _compared(
    node: str, kept: dict[int, Row], there: dict[int, Row], first: int
) -> Iterator[Difference]:
    for seq in sorted({*kept, *there}):
        old, new = kept.get(seq), there.get(seq)
        if old == new:
            continue
        if old is None:
            yield Difference(node, seq, ADDED, f"row {seq} was not there when it was taken in")
        elif new is None:
            if seq >= first > 0:
                yield Difference(node, seq, GONE, f"row {seq} ({old.kind}) is gone")
        else:
            names = [name for name in COLUMNS if getattr(old, name) != getattr(new, name)]
            yield Difference(
                node, seq, CHANGED, f"row {seq} ({old.kind}) has another {', '.join(names)}"
            )


# A version's file, signed: its signer vouches for the heads and directories that it names.
#
# The signature stands beside the file, over its very bytes. With it a version can be kept and
# handed on: the holder of the signer's certificate can check that it was not changed since.


_PREFIX = b"oncewire version 1\n"
"""Says what is signed, so that no signature of another kind of bytes can stand for it."""


def sign_version(lake: Lake, version: Version, key: SigningKey) -> Path:
    """Sign a version that is published; returns where the signature is."""
    from oncewire.wire.security.algorithms import kind_of, sign_octets

    algorithm = f"{kind_of(key)}-sha256"
    file = _file(lake, version)
    value = sign_octets(key, algorithm, _PREFIX + file.read_bytes())
    said = {"algorithm": algorithm, "signature": base64.b64encode(value).decode()}
    beside = file.with_suffix(SIGNATURE)
    write_forced(beside, json.dumps(said) + "\n")
    lake.storage.keep(f"{VERSIONS}/{beside.name}")
    return beside


def is_signed_by(lake: Lake, version: Version, certificate: x509.Certificate) -> bool:
    """Whether the holder of a certificate signed the version as it is; JournalProblem if it has no
    signature."""
    from oncewire.wire.security.algorithms import SAFE, verify_octets

    file = _file(lake, version)
    beside = file.with_suffix(SIGNATURE)
    lake.storage.bring(f"{VERSIONS}/{beside.name}")
    try:
        said = json.loads(beside.read_text(encoding="utf-8"))
        algorithm, value = str(said["algorithm"]), base64.b64decode(said["signature"])
    except FileNotFoundError:
        raise JournalProblem(
            f"version {version.number} of {lake.name} is not signed",
            remedy="sign it with `oncewire pipeline sign --lake LAKE --config PARTY`",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, binascii.Error) as error:
        raise JournalProblem(
            f"{beside} is no signature: {error}", remedy="sign the version again"
        ) from None
    SAFE.check_signature(algorithm)
    octets = _PREFIX + file.read_bytes()
    return verify_octets(certificate, algorithm, octets, value, SAFE.min_rsa_bits)


def _file(lake: Lake, version: Version) -> Path:
    return lake.root / VERSIONS / f"{version.number:08d}.json"

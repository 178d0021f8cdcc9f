"""How many journal rows a second the folds judge on one core: `python -m bench.journal`.

The rows are those of a clean, busy pair of handlers: eight for each message, one in twenty
messages resent, half of them on ordered channels. On Spark each executor core runs these loops.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from oncewire.journal.check import fold_channels, fold_ledger, fold_messages
from oncewire.journal.identity import identity_digest
from oncewire.journal.predicates.context import Context
from oncewire.journal.row import COLUMNS, Row, rows_from_columns
from oncewire.message.envelope import DeliverySemantics, Header, Message, MessageKind, Payload
from oncewire.message.form import Dialect
from oncewire.message.ids import Party, Service
from oncewire.message.instant import SECOND
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind, write_terms
from oncewire.protocol.terms import FlowMode, Terms

PLAIN = Terms()
ORDERED = replace(PLAIN, numbered=True, ordered=True, flow=FlowMode.WINDOW, window=64)
CHANNELS = 100


def terms_rows() -> Iterator[Row]:
    for node in ("acme", "globex"):
        yield Row(
            1, 0, 0, node, node, "started", detail=notes.Started("0", parties=(node,)).write()
        )
        for seq, terms in enumerate((PLAIN, ORDERED), start=2):
            text = write_terms(terms)
            yield Row(seq, 0, 0, node, node, "terms", terms_id=terms.terms_id, detail=text)


def message_rows(index: int) -> Iterator[Row]:
    """The rows of one message, in the order of each node."""
    ordered = index % 2 == 0
    terms_id = ORDERED.terms_id if ordered else PLAIN.terms_id
    channel, place = f"c{index // 2 % CHANNELS}", index // 2 // CHANNELS
    number = place % 100_000_000 if ordered else None
    mid, digest = f"20260101-{index:09d}@acme", f"{index:064x}"
    seq, at = 10 + index * 20, 1_767_225_600 * SECOND + index * 1_000
    facts = notes.Submitted("acme", "globex", "cpa-1", f"conv-{index}", "orders", "New").write()
    status = notes.Numbered("Reset" if place < 64 else "Continue").write()

    def row(kind: Kind, node: str, **columns: object) -> Row:
        nonlocal seq
        seq += 1
        values = {"channel": channel, "sequence_number": number} if ordered else {}
        values["epoch"] = (1 if node == "acme" else 0) if ordered else None
        return Row(seq, at + seq, seq, node, node, kind.value, mid, **{**values, **columns})  # type: ignore[arg-type]

    yield row(
        Kind.SUBMITTED,
        "acme",
        terms_id=terms_id,
        peer="globex",
        digest=digest,
        size=2_000,
        detail=facts,
    )
    if ordered:
        yield row(Kind.NUMBERED, "acme", terms_id=terms_id, detail=status)
    yield row(Kind.SENT, "acme", attempt=1, transport="http", peer="globex", hop=1)
    resent = index % 20 == 0
    if resent:
        yield row(Kind.SENT, "acme", attempt=2, transport="http", peer="globex", hop=1)._replace(
            mono=seq + 61 * SECOND, at=at + seq + 61 * SECOND
        )
    yield row(Kind.ACKNOWLEDGED, "acme", ref_to=f"ack-{mid}", peer="globex")
    yield row(Kind.RECEIVED, "globex", terms_id=terms_id, peer="acme", digest=digest, detail=facts)
    yield row(Kind.ACK_SENT, "globex", ref_to=f"ack-{mid}", peer="acme")
    if resent:
        yield row(Kind.DUPLICATE, "globex", digest=digest)
    yield row(Kind.HANDED_OVER, "globex", terms_id=terms_id, digest=digest)
    yield row(Kind.CONFIRMED, "globex")


def identity_rate(seconds: float = 0.5) -> float:
    """Microseconds for the identity digest of a usual message."""
    header = Header(
        Party.of("urn:acme", "duns", "Buyer"),
        Party.of("urn:globex", "duns", "Seller"),
        "cpa-1",
        "conversation-1",
        Service("urn:orders"),
        "NewOrder",
        "20260101-000000001@acme",
        1_767_225_600 * SECOND,
        semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
    )
    payload = Payload.of("one", "application/xml", b"x" * 2_000)
    message = Message(Dialect.EBMS2, MessageKind.NORMAL, header, payloads=(payload,))
    count, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for _ in range(1_000):
            identity_digest(message)
        count += 1_000
    return (time.process_time() - start) / count * 1e6


def measure(
    rows: list[Row], work: Callable[[list[Row]], Iterable[object]], repeats: int = 3
) -> float:
    """The best of some runs, in rows a second."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        deque(work(rows), maxlen=0)
        best = min(best, time.process_time() - start)
    return len(rows) / best


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    context = Context.gather(terms_rows(), healed=True)
    by_message = [row for index in range(options.messages) for row in message_rows(index)]
    by_channel = sorted(
        (row for row in by_message if row.channel is not None),
        key=lambda row: (row.channel, row.node, row.seq),
    )
    columns = dict(zip(COLUMNS, zip(*by_message, strict=True), strict=True))
    for folded in (fold_messages(by_message, context), fold_channels(by_channel, context)):
        for violation in folded:
            print(f"not clean: {violation}", file=sys.stderr)
            return 1
    figures = {
        "messages": measure(by_message, lambda rows: fold_messages(rows, context)),
        "ledger": measure(by_message, lambda rows: fold_ledger(rows, context)),
        "channels": measure(by_channel, lambda rows: fold_channels(rows, context)),
        "from columns": measure(by_message, lambda _: rows_from_columns(columns)),
    }
    if options.json:
        print(json.dumps({"rows_per_second": figures, "identity_us": identity_rate()}))
        return 0
    print(f"{len(by_message):,} rows of {options.messages:,} messages, one core")
    for name, rate in figures.items():
        print(f"{name:16} {rate:12,.0f}   {1e6 / rate:5.2f} us a row")
    print(f"{'identity digest':16} {identity_rate():12.2f} us a message")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

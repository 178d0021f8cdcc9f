"""The journals of the year: every stream's rows, what nodes write about themselves, positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncewire import __version__
from oncewire.journal.row import JOURNAL_VERSION, Row
from oncewire.pipeline.sample_year.exchange import write_stream
from oncewire.pipeline.sample_year.plan import Plan
from oncewire.pipeline.sample_year.row_writer import KEYS, Draft, RowWriter
from oncewire.protocol import notes
from oncewire.protocol.effects import Note


def units(plan: Plan) -> int:
    """How many pieces the year is written in: one for each stream, and one for the nodes."""
    return len(plan.streams) + 1


def write_unit(plan: Plan, unit: int) -> list[Draft]:
    """The rows of one piece."""
    if unit < len(plan.streams):
        return write_stream(plan, plan.streams[unit])
    return _write_nodes(plan, unit)


def _write_nodes(plan: Plan, unit: int) -> list[Draft]:
    """Boots, terms, and the end of the year."""
    writer = RowWriter(unit, plan.end)
    terms = {
        handler.name: {
            stream.terms.terms_id: stream.terms
            for stream in plan.streams
            if handler in (stream.sender, stream.receiver, stream.hub)
        }
        for handler in plan.handlers
    }
    for handler in plan.handlers:
        said = notes.Started(__version__, JOURNAL_VERSION, (handler.party,))
        for boot in handler.boots:
            writer.note(handler, boot, Note(said))
        first = handler.boots[0] + 1
        for _, values in sorted(terms[handler.name].items()):
            writer.terms(handler, first, values)
        writer.note(handler, plan.end, Note(notes.Stopped()))
    return writer.rows


def rows_of_year(plan: Plan, streams: Sequence[int] | None = None) -> Iterator[Row]:
    """All journals, node by node, in plain Python: what Spark writes in parallel.

    With some streams only: as if nothing else had happened in the year.
    """
    chosen = range(units(plan)) if streams is None else [*streams, units(plan) - 1]
    drafts = [draft for unit in chosen for draft in write_unit(plan, unit)]
    node = KEYS + 3
    drafts.sort(key=lambda draft: (draft[node], *draft[:KEYS]))
    seq, current = 0, ""
    for draft in drafts:
        seq = seq + 1 if draft[node] == current else 1
        current = draft[node]
        yield Row(seq, *draft[KEYS:])

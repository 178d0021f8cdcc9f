"""The tables that people read: where each lies, of which directories it is made, its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncewire.pipeline import schemas

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from oncewire.pipeline.version import Entry, Version

DATA = "_data"
"""Where a table's files lie below it. Readers of a folder pass over names that begin so: a table
has directories of more than one version, and only together with the version they are a table."""


class Table(NamedTuple):
    """One table."""

    name: str
    root: str
    """Its folder, relative to the lake."""
    stored: tuple[str, ...]
    """The names under which a version keeps its directories."""
    schema: StructType

    def entries(self, version: Version) -> list[Entry]:
        """Its directories in a version."""
        return [entry for name in self.stored for entry in version.tables.get(name, ())]


def _table(name: str, layer: str, schema: StructType, *stored: str) -> Table:
    return Table(name, f"{layer}/{name}", stored or (name,), schema)


OPEN: dict[str, Table] = {
    each_entry.name: each_entry
    for each_entry in (
        _table("messages", "silver", schemas.MESSAGES),
        _table("attempts", "silver", schemas.ATTEMPTS),
        _table("ledger", "gold", schemas.LEDGER, "ledger_closed", "ledger_open"),
        _table("sequence_gaps", "gold", schemas.SEQUENCE_GAPS),
        _table("partner_service", "gold", schemas.PARTNER_SERVICE),
        _table("violations", "gold", schemas.VIOLATIONS),
        _table("judged", "gold", schemas.JUDGED),
    )
}
"""Tables that any tool reads, by Delta's log and by their folder `current`."""

EVERY: dict[str, Table] = {
    **OPEN,
    **{
        each_entry.name: each_entry
        for each_entry in (
            _table("journal", "bronze", schemas.JOURNAL),
            _table("quarantine", "bronze", schemas.QUARANTINE),
            _table("envelopes", "bronze", schemas.ENVELOPES),
        )
    },
}
"""Those and bronze, which Spark reads through the lake."""


def data_path(table: str, name: str) -> str:
    """Where a directory of a table is written."""
    layer = (
        "silver" if table in ("messages", "attempts", "context", "boots", "documents") else "gold"
    )
    return f"{layer}/{table}/{DATA}/{name}"

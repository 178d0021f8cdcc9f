"""The lake's summary, as `pipeline run` left it beside its pointer: read without Spark and without
a reader of Parquet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oncewire.entry.files import read_text
from oncewire.errors import JournalProblem, NotHere
from oncewire.pipeline.lake.summary import FILE

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings


def read_summary(settings: Settings, part: str | None = None) -> Any:
    """The summary of the party's lake, or one part of it; NotHere says which there are."""
    if settings.lake.path is None:
        raise NotHere("no lake is named", remedy="set lake.path in oncewire.toml")
    file = settings.path(settings.lake.path) / FILE
    if not file.is_file():
        raise NotHere(
            f"the lake at {file.parent} has no summary",
            remedy="`oncewire pipeline run` writes it",
        )
    try:
        summary = json.loads(read_text(file, "summary", 64 * 1024 * 1024))
    except ValueError as error:
        raise JournalProblem(
            f"{file} cannot be read: {error}", remedy="`oncewire pipeline run` writes it anew"
        ) from None
    if part is None:
        # The list of findings is long, and has a path of its own.
        return {name: value for name, value in summary.items() if name != "findings"}
    if part not in summary:
        raise NotHere(
            f"the summary has no part {part[:32]!r}", remedy=f"there are: {', '.join(summary)}"
        )
    return summary[part]

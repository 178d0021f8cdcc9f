"""The summary of a lake: what its published version says, in one small file of JSON beside the
pointer, for programs that have neither Spark nor a reader of Parquet.

It is written after the version is published, so it may be one version behind, never ahead; it
names the version that it is of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire.errors import JournalProblem, NotHere
from oncewire.message.instant import Instant, format_instant

if TYPE_CHECKING:
    from oncewire.pipeline.lake.lake import Lake
    from oncewire.pipeline.lake.version import Version

FILE = "summary.json"
FINDINGS_MAX = 1_000
"""Findings that are told one by one; `counts` has all of them."""


def write_summary(lake: Lake, version: Version, verdicts: Mapping[str, int], now: Instant) -> None:
    """Write the summary of a published version."""
    from oncewire.pipeline.lake.lake import count_values
    from oncewire.pipeline.lake.version import write_forced

    said = {
        "version": version.number,
        "written_at": format_instant(now),
        "messages": sum(verdicts.values()),
        "verdicts": dict(verdicts),
        "violations": version.rows("violations"),
        "counts": dict(sorted(count_values(lake, version, "kind", "violations").items())),
        "nodes": {name: {"seq": state.seq} for name, state in sorted(version.nodes.items())},
        "tables": {name: version.rows(name) for name in sorted(version.tables)},
        "findings": _findings(lake, version),
    }
    write_forced(lake.root / FILE, json.dumps(said, default=str) + "\n")
    lake.storage.keep(FILE)


def _findings(lake: Lake, version: Version) -> list[dict[str, Any]]:
    """What is wrong, by kind and message."""
    import pyarrow.dataset as ds

    rows: list[dict[str, Any]] = []
    for folder in lake.folders(version, "violations"):
        found = ds.dataset(folder, format="parquet").head(FINDINGS_MAX - len(rows))
        rows += found.to_pylist()
    return sorted(rows, key=lambda row: (str(row["kind"]), str(row.get("message_id") or "")))


def read_summary(lake: Path, part: str | None = None) -> Any:
    """The summary in a lake's folder, or one part of it; NotHere says which there are."""
    file = lake / FILE
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotHere(
            f"the lake at {lake} has no summary", remedy="`oncewire pipeline run` writes it"
        ) from None
    except (OSError, ValueError) as error:
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

"""`oncewire pipeline generate`: the journals of a plausible year, to try the pipeline on."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.lake import Spark, lake_at
from oncewire.entry.cli.output import Report


def register(app: typer.Typer) -> None:
    """Add the command to the group `pipeline`."""
    for group in app.registered_groups:
        if group.name == "pipeline" and group.typer_instance is not None:
            group.typer_instance.command("generate")(generate)


@output.answers
def generate(
    on: Spark,
    out: Annotated[Path, typer.Option("--output", "-o", help="Folder of the new lake.")],
    messages: Annotated[int, typer.Option(min=1, help="How many messages.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same year.")] = 1,
    days: Annotated[int, typer.Option(min=20, max=365, help="Of how many days.")] = 365,
    violations: Annotated[
        Path | None, typer.Option(help="Where to write what was done wrong on purpose.")
    ] = None,
    envelopes: Annotated[
        int, typer.Option(min=0, help="So many of them also as raw messages, in OUT/archive.")
    ] = 0,
) -> Report:
    """Write the journals of a plausible year of business, with faults of every kind.

    Then `verify` must find exactly what --violations lists, and nothing else.
    """

    place = lake_at(out)
    with on() as (spark, tell):
        from oncewire.lab.sample_year.generate import generate as write

        done = write(
            spark,
            place,
            messages=messages,
            seed=seed,
            days=days,
            violations=violations,
            envelopes=envelopes,
            tell=tell,
        )
    return Report(
        facts={
            "lake": str(out),
            "messages": done.messages,
            "rows": done.rows,
            "nodes": done.nodes,
            "faults": done.violations,
            "envelopes": done.envelopes,
            "seed": seed,
        },
        hints=(f"oncewire pipeline verify --lake {quote(str(out))}",),
    )

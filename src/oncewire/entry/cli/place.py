"""Which party a command is about: the options that find its settings, and the clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Loaded
    from oncewire.message.instant import Instant

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The party's folder or its oncewire.toml; without it the one here or above.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting for this run only, as name=value.", show_default=False),
]


def loaded(config: Path | None, given: list[str] | None = None) -> Loaded:
    """The settings in force for a command."""
    from oncewire.entry.party import settings

    return settings.load(config, flags=settings.flags_of(given or ()))


def now() -> Instant:
    """This moment, from the one module that reads the clock."""
    from oncewire.handler.world import RealWorld

    return RealWorld().now()

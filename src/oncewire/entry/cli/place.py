"""Which party a command is about: the options that find its settings, and the clock."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from shlex import quote
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


_GIVEN: ContextVar[Path | None] = ContextVar("given", default=None)
"""What the command that runs was told with `-c`."""


def loaded(config: Path | None, given: list[str] | None = None) -> Loaded:
    """The settings in force for a command."""
    from oncewire.entry.party import settings

    _GIVEN.set(config)
    return settings.load(config, flags=settings.flags_of(given or ()))


def forget_place() -> None:
    """Another command begins, which was not told of any party yet."""
    _GIVEN.set(None)


def given_place() -> str:
    """What another command needs to find the party of this one; empty where it was not told."""
    config = _GIVEN.get()
    return "" if config is None else f" -c {quote(str(config))}"


def now() -> Instant:
    """This moment, from the one module that reads the clock."""
    from oncewire.handler.world import RealWorld

    return RealWorld().now()

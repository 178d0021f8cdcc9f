"""Options: what kind of world a run takes place in. Options and a seed are the whole run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields

from oncewire.errors import InvalidValue
from oncewire.message.instant import HOUR, SECOND, Duration, format_duration


@dataclass(frozen=True, slots=True)
class Options:
    """One world. Rates are probabilities from 0 to 1."""

    messages: int = 200
    hops: int = 1
    loss: float = 0.2
    duplicate: float = 0.1
    reorder: float = 0.2
    corrupt: float = 0.01
    # Chance of a crash at each durable step, before or after it.
    crash: float = 0.005
    # Chance, at each message, that a link is cut for a while.
    partition: float = 0.002
    # Chance that a commit fails because the disk is full.
    disk_full: float = 0.002
    window: int = 8
    flow: str = "window"
    profile: str = "window"
    hop_mode: str = "store_and_forward"
    # Overrides of the agreement, as TOML lines of its own.
    agreement: str = ""
    timeout: Duration = 5 * SECOND
    retry_interval: Duration = 5 * SECOND
    retries: int = 8
    persist_duration: Duration = 2 * HOUR
    # How the operator meets an incident: share of messages abandoned instead of resumed.
    abandon: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt", "crash", "partition", "abandon"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidValue(f"{name} must lie between 0 and 1", remedy="give a share")
        if self.messages < 1 or self.hops < 1:
            raise InvalidValue("a run needs messages and a hop", remedy="give 1 or more of each")

    def as_flags(self) -> str:
        """The options that differ from the defaults, as the command line spells them."""
        default = Options()
        said = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == getattr(default, field.name):
                continue
            if field.name in ("timeout", "retry_interval", "persist_duration"):
                value = format_duration(value)
            flag = "agreement-text" if field.name == "agreement" else field.name
            said.append(f"--{flag.replace('_', '-')} {shlex.quote(str(value))}")
        return " ".join(said)

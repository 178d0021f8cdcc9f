"""Trial: what a handler notes of a message of its own that only tries an agreement out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from oncewire.message.envelope import Message
from oncewire.message.instant import seconds
from oncewire.protocol.terms import OnExhausted, Terms

TRIAL_PAUSE = seconds(3)
"""Between two attempts of a trial: somebody waits for it."""


@dataclass(slots=True)
class Trial:
    """One trial under way; what is noted of it is gone with the process."""

    # How many of its acknowledgements are to be taken for lost.
    lose: int = 0
    # MessageIds of the acknowledgements that came, in order, those that were lost too.
    heard: list[str] = field(default_factory=list)

    def overlooks(self, message: Message) -> bool:
        """Note an answer; whether it is to be taken for lost."""
        self.heard.append(message.header.message_id)
        lost = self.lose > 0
        self.lose -= lost
        return lost


@dataclass(frozen=True, slots=True)
class Tried:
    """One thing that was tried with a partner, and how it went.

    `what`: what was tried.
    `works`: whether it works; None: it could not be tried.
    `finding`: in words.
    """

    what: str
    works: bool | None
    finding: str


def trial_terms(terms: Terms) -> Terms:
    """The terms of a trial: repeated within seconds, and given up by itself."""
    hasty = replace(
        terms,
        timeout=TRIAL_PAUSE,
        retry_interval=TRIAL_PAUSE,
        retries=4,
        on_exhausted=OnExhausted.FAIL_MESSAGE,
    )
    return hasty if hasty.longest_retry < terms.persist_duration else terms

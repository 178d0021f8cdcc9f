"""Submission: what an application hands in, checked once, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from oncewire.errors import InvalidValue
from oncewire.message.header import TRIAL_MARK, TRIAL_SERVICE, is_named_rightly
from oncewire.message.ids import Service, check_id
from oncewire.message.instant import DAY, Duration
from oncewire.message.payload import Payload, check_payloads

LIFETIME_MAX: Duration = 100 * 366 * DAY
"""A message that may take longer may take for ever: it needs no TimeToLive."""


class Submission(Struct, frozen=True):
    """What an application hands in: documents, and under which agreement and for what.

    `cpa_id`: the agreement, as `oncewire agreement show` names it.
    `service`, `action`: what the partner is to do with it.
    `payloads`: the documents; none are needed, the action may say it all.
    `conversation_id`: of the conversation that it belongs to; a new one is made for None.
    `message_id`: given by an application that may repeat a submission after a crash.
    `ref_to_message_id`: the message that it responds to.
    `time_to_live`: in microseconds from now; as agreed for None.
    `best_effort`: without repeats and acknowledgements, although the agreement has them.
    `by`: who hands it in, for the journal: a person or a program.
    """

    cpa_id: str
    service: Service
    action: str
    payloads: tuple[Payload, ...] = ()
    conversation_id: str | None = None
    message_id: str | None = None
    ref_to_message_id: str | None = None
    time_to_live: Duration | None = None
    best_effort: bool = False
    by: str | None = None

    def __post_init__(self) -> None:
        """Everything that comes from outside is a Submission once, so it is checked here."""
        check_id(self.cpa_id, "cpa_id")
        if not isinstance(self.service, Service):
            raise _is_no("service", "Service", self.service, "give an oncewire Service")
        check_id(self.action, "action")
        for name in ("conversation_id", "message_id", "ref_to_message_id", "by"):
            if (value := getattr(self, name)) is not None:
                check_id(value, name)
        lifetime = self.time_to_live
        # bool is a subclass of int; reject it.
        whole = type(lifetime) is int and 0 < lifetime <= LIFETIME_MAX
        if lifetime is not None and not whole:
            remedy = f"give whole microseconds, from 1 to {LIFETIME_MAX}, or none"
            raise _is_no("time_to_live", "lifetime", lifetime, remedy)
        if not isinstance(self.best_effort, bool):
            raise _is_no("best_effort", "bool", self.best_effort, "say True or False")
        if not is_named_rightly(self.message_id or "", self.service):
            raise InvalidValue(
                f"service {TRIAL_SERVICE} and MessageIds with {TRIAL_MARK} are for trials",
                remedy="`oncewire partner test` makes them",
            )
        check_payloads(self.payloads)


def _is_no(name: str, kind: str, value: object, remedy: str) -> InvalidValue:
    return InvalidValue(f"{name} is no {kind}: {repr(value)[:32]}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The store has it: from now on it is sent, or somebody is told.

    `message_id`: by which `wait`, `ask` and `oncewire why` know it.
    `conversation_id`: for further messages that belong to it.
    `repeated`: the same id was submitted before with the same content; nothing new happened.
    """

    message_id: str
    conversation_id: str
    repeated: bool = False

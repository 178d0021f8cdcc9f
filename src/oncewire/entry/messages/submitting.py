"""Sending: from what a person types or a program gives to a submission under an agreement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING

from oncewire.agreement.agreement import USUAL_ACTION, USUAL_SERVICE, Agreement, Direction
from oncewire.agreement.resolve import binding_listed, service_called
from oncewire.entry.party.agreements import Kept, Readable
from oncewire.errors import InvalidValue, NotHere
from oncewire.handler.sending.fitting import check_sizes_known
from oncewire.handler.sending.submit import Submission
from oncewire.message.ids import Service
from oncewire.message.instant import Duration, parse_duration

if TYPE_CHECKING:
    from oncewire.message.payload import Payload

CONVERSATION_MAX = 255

_LIFETIME = 'give a timedelta, or an ISO 8601 duration such as "PT1H"'


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How a document is to be sent; what is left out follows from the agreement.

    `service`, `action`: what the partner is to do with it, where the agreement has several.
    `conversation_id`: messages that belong together share one; left out, it is the one that
    all messages to the partner share.
    `message_id`: for a program that may repeat a call: the same id is sent once.
    `ref_to_message_id`: the message that this one responds to.
    `time_to_live`: a timedelta, or an ISO 8601 duration such as "PT1H": worthless after that.
    `best_effort`: send it without repeats and acknowledgements, although the agreement has them.
    """

    service: str = ""
    action: str = ""
    conversation_id: str = ""
    message_id: str = ""
    ref_to_message_id: str = ""
    time_to_live: timedelta | str | None = None
    best_effort: bool = False

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type == "str" and not isinstance(value, str):
                raise InvalidValue(
                    f"{each.name} is no str: {repr(value)[:32]}", remedy=f"give {each.name} as text"
                )
        lifetime_of(self.time_to_live)


def lifetime_of(given: timedelta | str | None) -> Duration | None:
    """A time to live as the protocol counts it; InvalidValue for what is none."""
    if given is None:
        return None
    if isinstance(given, str):
        found = parse_duration(given)
    elif isinstance(given, timedelta):
        found = given // timedelta(microseconds=1)
    else:
        # A number does not say of what it is.
        raise InvalidValue(
            f"time_to_live {given!r} is of type {type(given).__name__}", remedy=_LIFETIME
        )
    if found <= 0:
        raise InvalidValue(f"time_to_live {given} is over before it begins", remedy=_LIFETIME)
    return found


AS_AGREED = SendOptions()
"""Nothing is said: all of it follows from the agreement."""


def find_agreement(readable: Readable, to: str = "", cpa_id: str = "") -> Agreement:
    """The agreement with a partner, by the partner's name or PartyId, or by its own CPAId."""
    return find_kept(readable, to, cpa_id).agreement


def find_kept(readable: Readable, to: str = "", cpa_id: str = "") -> Kept:
    """The same with its file."""
    kept = readable.kept
    for file, problem in readable.problems.items():
        # The file of another partner is no trouble of this one.
        if not kept or to == file.stem or not (to or cpa_id):
            raise problem
    if not kept:
        raise NotHere(
            "there is no agreement yet, so nothing can be sent",
            remedy="`oncewire partner add CARD` makes one",
        )
    if cpa_id:
        found = [
            paper for paper in kept if cpa_id in (paper.agreement.cpa_id, *_other_names(paper))
        ]
    elif to:
        # A name of ours is one agreement's; a PartyId may be that of several.
        found = readable.named.get(to) or [paper for paper in kept if _is_called(paper, to)]
    else:
        found = list(kept)
    if len({paper.file for paper in found}) == 1:
        return found[0]
    known = ", ".join(f"{paper.file.stem} ({paper.agreement.cpa_id})" for paper in kept)
    if not found:
        raise NotHere(
            f"there is no agreement {cpa_id!r}" if cpa_id else f"there is no partner {to!r}",
            remedy=f"there are: {known}",
        )
    raise InvalidValue(
        "several agreements are possible" if to or cpa_id else "it is not said to whom",
        remedy=f"name one of them, by its partner or its CPAId: {known}",
    )


def _other_names(kept: Kept) -> tuple[str, ...]:
    return kept.agreement.also_known_as


def _is_called(kept: Kept, name: str) -> bool:
    ids = kept.agreement.partner.party.ids
    return any(name in (party_id.value, party_id.spelled, str(party_id)) for party_id in ids)


def submission_of(
    agreement: Agreement,
    payloads: Sequence[Payload],
    options: SendOptions,
    transports: Collection[str] | None = None,
) -> Submission:
    """The submission; service and action follow from the agreement where it leaves no choice.

    `transports` are those that are set up, for what can go by none of them is refused.
    """
    service, action = _service_and_action(agreement, options)
    wanted = binding_listed(agreement, service, action).terms.transports
    if transports is not None and not set(wanted) & set(transports):
        raise InvalidValue(
            f"{service} {action} goes over {', '.join(wanted)}, which cannot be used yet",
            remedy=f"agree on {', '.join(transports)} for it",
        )
    submission = Submission(
        agreement.cpa_id,
        service,
        action,
        tuple(payloads),
        conversation_id=options.conversation_id or _standing_conversation(agreement, options),
        message_id=options.message_id or None,
        ref_to_message_id=options.ref_to_message_id or None,
        time_to_live=lifetime_of(options.time_to_live),
        best_effort=options.best_effort,
    )
    if not options.message_id:
        # One that has an id may be the repetition of another, under the agreement of then.
        check_sizes_known(submission, agreement)
    return submission


def _standing_conversation(agreement: Agreement, options: SendOptions) -> str | None:
    """The conversation of whatever is sent without one: with each partner there is one, so that
    the order of sending is one order. What refers to another message belongs to that one's."""
    if options.ref_to_message_id:
        return None
    return f"{agreement.own.party.ids[0].value}/{agreement.cpa_id}"[:CONVERSATION_MAX]


def _service_and_action(agreement: Agreement, options: SendOptions) -> tuple[Service, str]:
    service = service_called(agreement, options.service) if options.service else None
    listed = [
        binding
        for binding in agreement.actions
        if binding.direction is Direction.SEND
        and binding.service is not None
        and (service is None or binding.service == service)
        and (not options.action or binding.action in (None, options.action))
    ]
    choices = [
        (only, action)
        for only, action in dict.fromkeys((binding.service, binding.action) for binding in listed)
        if only is not None
    ]
    if len(choices) == 1:
        only, action = choices[0]
        return only, options.action or action or USUAL_ACTION
    if len(choices) > 1 and not (service and options.action):
        names = ", ".join(f"{one.spelled} / {action or 'any'}" for one, action in choices)
        raise InvalidValue(
            f"agreement {agreement.cpa_id} has several services and actions",
            remedy=f"name one service and action: {names}",
        )
    return service or USUAL_SERVICE, options.action or USUAL_ACTION

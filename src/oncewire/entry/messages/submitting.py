"""Sending: from what a person types or a program gives to a submission under an agreement."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from oncewire.agreement.agreement import USUAL_ACTION, USUAL_SERVICE, Agreement, Direction
from oncewire.agreement.resolve import binding_listed, binding_named, service_called
from oncewire.entry.files import WHOLE_FILE_MAX
from oncewire.entry.messages.documents import file_payload, open_payload
from oncewire.entry.party.agreements import Kept, Readable
from oncewire.entry.party.folder import KeyFiles
from oncewire.entry.party.partners import read_keys
from oncewire.errors import InvalidValue, NotHere
from oncewire.handler.actions import Submission
from oncewire.handler.sending.submit import check_sizes, route_to_send
from oncewire.message.envelope import (
    AckRequested,
    Actor,
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    Payload,
    RoutingHeader,
    SequenceNumber,
)
from oncewire.message.form import AckRequest, Dialect, Form
from oncewire.message.ids import Party, PartyId, Service, is_uri
from oncewire.message.instant import Duration, Instant, parse_duration
from oncewire.wire import codec
from oncewire.wire.security.algorithms import kind_of
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice, sign

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
            paper
            for paper in kept
            if cpa_id in (paper.agreement.cpa_id, *paper.agreement.also_known_as)
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


def _is_called(kept: Kept, name: str) -> bool:
    ids = kept.agreement.partner.party.ids
    return any(name in (party_id.value, party_id.spelled, str(party_id)) for party_id in ids)


def submission_of(
    agreement: Agreement,
    payloads: Sequence[Payload],
    options: SendOptions,
    transports: Collection[str] | None = None,
    by: str | None = None,
) -> Submission:
    """The submission; service and action follow from the agreement where it leaves no choice.

    `transports` are those that are set up, for what can go by none of them is refused. `by`: who
    hands it in, for the journal.
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
        by=by,
    )
    if not options.message_id:
        # One that has an id may be the repetition of another, under the agreement of then.
        check_sizes(submission, route_to_send(agreement, submission))
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


# A message from options and payload files: what `oncewire message build` makes.
#
# It is for tests, for partners' questions and for learning; messages that must arrive are sent
# with `oncewire send`, which keeps, numbers and repeats them.


@dataclass(frozen=True, slots=True)
class Words:
    """The options as they were typed; an empty one was not given."""

    sender: str = ""
    receiver: str = ""
    cpa_id: str = ""
    service: str = ""
    action: str = ""
    message_id: str = ""
    conversation: str = ""
    ref_to: str = ""
    dialect: str = "ebms2"
    ack: str = "none"
    once: bool = False
    sync: bool = False
    # Below zero: none.
    sequence: int = -1
    time_to_live: str = ""
    # Each FILE or FILE;media/type.
    payloads: tuple[str, ...] = ()


def _parties(words: Words, agreement: Agreement | None) -> tuple[Party, Party]:
    if agreement is not None:
        return agreement.own.party, agreement.partner.party
    if not (words.sender and words.receiver and words.cpa_id):
        raise InvalidValue(
            "it is not said who sends to whom under which agreement",
            remedy="give --from, --to and --cpa-id, or --agreement FILE",
        )
    return Party((PartyId.read(words.sender),)), Party((PartyId.read(words.receiver),))


Word = TypeVar("Word", bound=StrEnum)


def _chosen(word: str, option: str, words: type[Word]) -> Word:
    for each_word in words:
        if each_word.value.lower() == word.lower():
            return each_word
    known = ", ".join(each_word.value.lower() for each_word in words)
    raise InvalidValue(f"--{option} {word!r} is not known", remedy=f"use one of {known}")


def _at_hand(payload: Payload) -> Payload:
    """The payload in memory: a message that is built is shown whole."""
    data = payload.data
    if data is None or len(data) > WHOLE_FILE_MAX:
        raise InvalidValue(
            f"payload {payload.content_id} has more than {WHOLE_FILE_MAX} bytes",
            remedy="name a smaller file",
        )
    return Payload.of(payload.content_id, payload.media_type, data, payload.file_name)


def payload_of(place: str, number: int) -> Payload:
    """`FILE` or `FILE;media/type` as the payload with that number; `-` reads standard input."""
    name, semicolon, media_type = place.partition(";")
    if name == "-":
        return open_payload(sys.stdin.buffer, media_type.strip(), number)
    try:
        return file_payload(Path(name), media_type.strip(), number)
    except NotHere as error:
        if not semicolon:
            raise
        raise NotHere(
            error.problem,
            remedy=f"after `;` stands the media type, here {media_type!r}: check the name before "
            "it, or rename a file that has one in its name",
        ) from None


def message_of(
    words: Words, agreement: Agreement | None, *, now: Instant, unique: str
) -> tuple[Message, Form]:
    """The message that the options describe, and its form; an agreement gives parties, form and
    wishes."""
    sender, receiver = _parties(words, agreement)
    service = Service.read(words.service)
    form = Form(dialect=_chosen(words.dialect, "dialect", Dialect))
    ack, once = _chosen(words.ack, "ack", AckRequest), words.once
    if agreement is not None:
        service = service_called(agreement, words.service)
        binding = binding_named(agreement, MessageKind.NORMAL, service, words.action)
        sender = sender.acting_as(binding.from_role)
        receiver = receiver.acting_as(binding.to_role)
        form = agreement.form
        ack = binding.terms.ack_requested if ack is AckRequest.NONE else ack
        once = once or binding.terms.duplicate_elimination
    reliable, draft = ack is not AckRequest.NONE, form.dialect is not Dialect.EBMS2
    lives = parse_duration(words.time_to_live) if words.time_to_live else None
    header = Header(
        from_party=sender,
        to_party=receiver,
        cpa_id=words.cpa_id if agreement is None else agreement.cpa_id,
        conversation_id=words.conversation or unique,
        service=service,
        action=words.action,
        message_id=words.message_id or f"{unique}@oncewire",
        timestamp=now,
        ref_to_message_id=words.ref_to or None,
        time_to_live=None if lives is None else now + lives,
        semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE
        if reliable
        else DeliverySemantics.BEST_EFFORT,
        duplicate_elimination=once,
        sync_reply_as_agreed=words.sync,
    )
    number = None if words.sequence < 0 else SequenceNumber(words.sequence)
    routing: tuple[RoutingHeader, ...] = ()
    if draft:
        # The drafts name the two handlers of a hop; here they stand for their parties.
        hop = RoutingHeader(
            sender_uri=_uri(sender.ids[0]),
            receiver_uri=_uri(receiver.ids[0]),
            sender_id=sender.ids[0],
            receiver_id=receiver.ids[0],
            timestamp=now,
            ack_requested=ack,
            sequence=number,
        )
        routing = (hop,)
    asked = AckRequested(Actor.TO_PARTY_MSH, ack is AckRequest.SIGNED)
    payloads = (payload_of(place, at) for at, place in enumerate(words.payloads, 1))
    message = Message(
        dialect=form.dialect,
        kind=MessageKind.NORMAL,
        header=header,
        routing=routing,
        order=None if draft else number,
        ack_requested=(asked,) if reliable and not draft else (),
        payloads=tuple(map(_at_hand, payloads)),
    )
    return message, form


def _uri(party_id: PartyId) -> str:
    return party_id.value if is_uri(party_id.value) else f"urn:oncewire:handler:{party_id.value}"


def signer_of(keys: KeyFiles) -> codec.Signer:
    """Signs messages with a key."""
    ours = read_keys(keys.certificate, keys.key)
    choice = SigningChoice(f"{kind_of(ours.signing_key)}-sha256")

    def signed(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        parts = [
            PartDigests(payload.content_id, {"sha256": bytes.fromhex(payload.digest)})
            for payload in payloads
        ]
        return sign(envelope, parts, ours.signing_key, ours.certificate, choice).envelope

    return signed

"""Resolves a message to the terms it runs under, or to the error it is answered with."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from oncewire.agreement.agreement import (
    CPA_ID,
    TRANSPORTS,
    ActionBinding,
    Agreement,
    Agreements,
    Direction,
    EndpointType,
    Found,
    place_under,
)
from oncewire.agreement.rules import weigh
from oncewire.errors import AgreementProblem, Inconsistent, InvalidValue, ValueNotRecognized
from oncewire.message.envelope import TRIAL_SERVICE, Error, Message, MessageKind
from oncewire.message.form import Form, Security
from oncewire.message.ids import Party, Service
from oncewire.message.instant import Instant
from oncewire.protocol.synchronous import SyncPlan
from oncewire.protocol.terms import Scope, Terms

SERVICE = "//Header/MessageHeader/Service"
ACTION = "//Header/MessageHeader/Action"


class Resolution(Struct, frozen=True):
    """Everything about one message that was agreed."""

    agreement: Agreement
    terms: Terms
    # The numbered stream it belongs to; None when it carries no number.
    channel: str | None
    form: Form
    security: Security
    # Differences between header and agreement that its sender is told of.
    warnings: tuple[Error, ...] = ()
    # How a connection that can answer replies to it; None at a hop, and for signals.
    plan: SyncPlan | None = None
    binding: ActionBinding | None = None
    # We are neither From nor To: the message is to be passed on.
    at_hop: bool = False
    # TimeToLive of the header, else by the agreement's lifetime (CPA-8).
    expires_at: Instant | None = None
    # When this was agreed on for the message it is about; None: it is judged as of now.
    accepted_at: Instant | None = None


def resolve(
    agreements: Agreements | Iterable[Agreement],
    message: Message,
    *,
    receiving: bool,
    now: Instant,
    transport: str | None = None,
) -> Resolution:
    """The terms of one message, or the error (EbxmlError, SoapFault) it is answered with."""
    known = agreements if isinstance(agreements, Agreements) else Agreements(agreements)
    found = known.find(message, receiving=receiving)
    agreement = found.agreement
    if not agreement.in_force(now):
        raise Inconsistent(
            f"agreement {agreement.cpa_id} is not in force at this time",
            location=CPA_ID,
            remedy="agree on a new period",
        )
    return _resolution(found, message, receiving=receiving, transport=transport)


def resolve_under(
    agreement: Agreement,
    message: Message,
    *,
    receiving: bool,
    accepted_at: Instant,
    transport: str | None = None,
) -> Resolution:
    """The terms of a message that is bound to an agreement by what was accepted under it then.

    Whether the agreement is still in force, or there at all, does not matter: a message keeps
    the terms it was accepted under, and with it its copies and what answers it (RM-17).
    """
    found = place_under(agreement, message, receiving=receiving)
    resolution = _resolution(found, message, receiving=receiving, transport=transport)
    return replace(resolution, accepted_at=accepted_at)


def _resolution(
    found: Found, message: Message, *, receiving: bool, transport: str | None
) -> Resolution:
    agreement = found.agreement
    direction = Direction.RECEIVE if receiving else Direction.SEND
    if found.at_hop:
        binding = agreement.default(direction)
    else:
        binding = find_binding(agreement, direction, message)
    weighed = weigh(binding, message, at_hop=found.at_hop)
    terms, header = weighed.terms, message.header
    expires_at = header.time_to_live
    if expires_at is None and terms.time_to_live is not None:
        expires_at = header.timestamp + terms.time_to_live
    return Resolution(
        agreement=agreement,
        terms=terms,
        channel=channel_of(agreement, terms, direction, header.conversation_id, transport),
        form=agreement.form,
        security=binding.security,
        warnings=weighed.warnings,
        plan=weighed.plan,
        binding=binding,
        at_hop=found.at_hop,
        expires_at=expires_at,
    )


def endpoint_type(kind: MessageKind, *, reply: bool) -> EndpointType:
    """Which of a partner's addresses a message goes to (CPPA 2.0 Endpoint/@type)."""
    if kind is MessageKind.ERROR:
        return EndpointType.ERROR
    return EndpointType.RESPONSE if reply else EndpointType.REQUEST


# --- which binding -----------------------------------------------------------------------------


def find_binding(agreement: Agreement, direction: Direction, message: Message) -> ActionBinding:
    """The binding of a message's service and action, or the error for an unknown one."""
    header = message.header
    if message.kind is not MessageKind.NORMAL:
        return agreement.signal_binding(direction, message.kind)
    return _listed(
        agreement, direction, header.service, header.action, header.from_party, header.to_party
    )


def binding_listed(
    agreement: Agreement, service: Service | None, action: str | None
) -> ActionBinding:
    """The binding of whatever we send under that service and action, in any role."""
    return _listed(agreement, Direction.SEND, service, action, None, None)


def binding_to_send(agreement: Agreement, service: Service, action: str) -> ActionBinding:
    """The binding of a message of ours. Several may list one action under different roles; then
    the roles of the whole agreement choose, unless none of them is theirs."""
    own, partner = agreement.own.party, agreement.partner.party
    return _listed(agreement, Direction.SEND, service, action, own, partner)


def service_called(agreement: Agreement, word: str) -> Service:
    """The agreed Service that a word of ours means: its value, or `type|value`, or `type:value` as
    listings of messages print it; where none is meant, what the word itself says."""
    asked = Service(word)
    meant = _agreed(
        [binding for binding in agreement.actions if binding.direction is Direction.SEND], asked
    )
    return Service.read(word) if meant is asked else meant


def binding_named(
    agreement: Agreement, kind: MessageKind, service: str | Service, action: str
) -> ActionBinding:
    """What a message of ours runs under by the names that listings have of it; where the
    agreement no longer lists them, what holds for the whole direction."""
    if kind is not MessageKind.NORMAL:
        return agreement.signal_binding(Direction.SEND, kind)
    try:
        known = Service(service) if isinstance(service, str) else service
        return binding_to_send(agreement, known, action)
    except (InvalidValue, ValueNotRecognized):
        return agreement.sending


def _listed(
    agreement: Agreement,
    direction: Direction,
    service: Service | None,
    action: str | None,
    sender: Party | None,
    receiver: Party | None,
) -> ActionBinding:
    found = [binding for binding in agreement.actions if binding.direction is direction]
    if not found and not agreement.listed_only:
        return agreement.default(direction)
    if direction is Direction.SEND and service is not None:
        service = _agreed(found, service)
    of_service = _of_service(found, service)
    of_action = [binding for binding in of_service if binding.action == action] or [
        binding for binding in of_service if binding.action is None
    ]
    if not of_action:
        # What tries an agreement out need not be listed in it.
        if agreement.listed_only and service != TRIAL_SERVICE:
            what, location = f"Service {service}", SERVICE
            if _of_service(list(agreement.actions), service):
                what, location = f"Action {action}", ACTION
            raise ValueNotRecognized(
                f"{what} is not agreed in {agreement.cpa_id}",
                location=location,
                remedy="use a service and action that the agreement lists" + _names(found),
            )
        return agreement.default(direction)
    # The binding whose roles the parties state. A role that is not stated counts as any; one
    # that no binding has is weighed with the rest of the header (`rules`).
    bindings = of_action
    for side, of in ((sender, attrgetter("from_role")), (receiver, attrgetter("to_role"))):
        if side is not None and side.role is not None:
            fitting = [binding for binding in bindings if of(binding) in (None, side.role)]
            bindings = fitting or bindings
    return bindings[0]


_NAMED_MAX = 8


def _names(bindings: list[ActionBinding]) -> str:
    """The services and actions there are, for people."""
    names = dict.fromkeys(binding.name for binding in bindings)
    if not names:
        return ""
    more = ", ..." if len(names) > _NAMED_MAX else ""
    return f": {', '.join(list(names)[:_NAMED_MAX])}{more}"


def _agreed(bindings: list[ActionBinding], service: Service) -> Service:
    """The Service that is listed, for one that a caller of ours names in words of his own.

    What the partner knows is the listed one, with its type. Headers of others are never respelled.
    """
    listed = dict.fromkeys(one.service for one in bindings if one.service is not None)
    if service in listed:
        return service
    word = service.value
    if service.type is None:
        meant = [one for one in listed if word in (str(one), one.spelled)]
        meant = meant or [one for one in listed if word == one.value]
    else:
        meant = [one for one in listed if one.type is None and word == one.value]
    return meant[0] if len(meant) == 1 else service


def _of_service(bindings: list[ActionBinding], service: Service | None) -> list[ActionBinding]:
    """Exactly that service; where one side leaves out the type, the only one of that value."""
    if service is None:
        return []
    exact = [binding for binding in bindings if binding.service == service]
    if exact:
        return exact
    alike = [
        binding
        for binding in bindings
        if binding.service is not None
        and binding.service.value == service.value
        and (binding.service.type is None or service.type is None)
    ]
    return alike if len({binding.service for binding in alike}) == 1 else []


# --- channels ----------------------------------------------------------------------------------


def channel_of(
    agreement: Agreement,
    terms: Terms,
    direction: Direction,
    conversation_id: str | None,
    transport: str | None,
) -> str | None:
    """The name of the numbered stream; both handlers of a hop derive the same one (C6)."""
    if not terms.numbered:
        return None
    own = agreement.own.party.ids[0].value
    other = agreement.partner.party.ids[0].value
    if terms.scope is Scope.CONVERSATION:
        if conversation_id is None:
            raise AgreementProblem(
                "numbers count per conversation, and no conversation is named",
                key="sequence.scope",
                remedy="name the ConversationId",
            )
        return f"{_arrow(own, other, direction)}#{conversation_id}"
    # On a hop the stream is between its two handlers, so a hub stands for the partner.
    neighbour = agreement.via.label if agreement.via is not None else other
    name = _arrow(own, neighbour, direction)
    if terms.scope is Scope.TRIPLE:
        return f"{name}/{transport or terms.transports[0]}"
    return name


def leads_to(channel: str, party_id: str) -> bool:
    """Whether a numbered stream goes to the party with that PartyId."""
    _, arrow, receiver = channel.partition(">")
    name = _quoted(party_id)
    return bool(arrow) and (receiver == name or receiver.startswith((f"{name}#", f"{name}/")))


def other_names(channel: str, terms: Terms) -> tuple[str, ...]:
    """What a stream per pair is called per triple, by each transport that it may have had, and the
    other way round: on the wire they are the same."""
    if terms.scope is Scope.TRIPLE:
        return (channel.rpartition("/")[0],)
    return tuple(f"{channel}/{transport}" for transport in TRANSPORTS)


def is_of_another(name: str, agreements: Iterable[Agreement], direction: Direction) -> bool:
    """Whether an agreement of today gives that name to a stream that is not per conversation."""
    return any(
        binding.direction is direction
        and binding.terms.scope is not Scope.CONVERSATION
        and channel_of(agreement, binding.terms, direction, None, None) == name
        for agreement in agreements
        for binding in agreement.bindings()
    )


def _arrow(own: str, other: str, direction: Direction) -> str:
    sender, receiver = (own, other) if direction is Direction.SEND else (other, own)
    return f"{_quoted(sender)}>{_quoted(receiver)}"


def _quoted(value: str) -> str:
    """The marks that part a channel's name must not come from a party's own id."""
    return value.replace("%", "%25").replace(">", "%3E").replace("#", "%23")

"""Messages that each dialect can carry whole, as Hypothesis draws them.

A drawn message is in the form a reader gives: what a dialect expresses in one way only
(semantics and acknowledgement wishes in ebMS 2.0, say) is drawn in that way.
"""

import base64
import functools
import string

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from oncewire.errors import EBXML_ERRORS
from oncewire.message.envelope import (
    Acknowledgment,
    AcknowledgmentType,
    AckRequested,
    Actor,
    Compression,
    DeliverySemantics,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    Payload,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Severity,
    SignedDigest,
    Split,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.form import AckRequest, Dialect, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.instant import parse_instant
from oncewire.wire.drafts import blocks as draft_names
from oncewire.wire.ebms2 import blocks as ebms2_names
from oncewire.wire.mime.multipart import reference_to

WHITE = " \t\r\n"
_TOKEN = string.ascii_letters + string.digits + "-._"
_ID_CHARS = st.characters(
    codec="utf-8",
    exclude_categories=("Cc", "Cs"),
    exclude_characters="\u2028\u2029\ufffe\uffff",
)
_XML_CHARS = st.one_of(
    st.characters(
        codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"
    ),
    st.sampled_from("\t\n\r<>&\"' "),
)
EARLIEST = parse_instant("0001-01-02T00:00:00Z")[0]
LATEST = parse_instant("9999-12-30T23:59:59Z")[0]

ids = (
    st.text(_ID_CHARS, min_size=1, max_size=40)
    .map(lambda text: text.strip(WHITE))
    .filter(lambda text: bool(text.strip()))
)
tokens = st.text(_TOKEN, min_size=1, max_size=20)
uris = st.builds("{}:{}".format, st.sampled_from(["urn", "http", "x-a+b"]), tokens)
texts = st.text(_XML_CHARS, min_size=1, max_size=60)
instants = st.one_of(
    st.integers(EARLIEST // 1_000_000, LATEST // 1_000_000).map(lambda second: second * 1_000_000),
    st.integers(EARLIEST, LATEST),
)
languages = st.sampled_from(["en", "en-GB", "NO", "x-klingon"])
foreign_elements = st.builds(
    '<f{0}:Thing xmlns:f{0}="urn:foreign:{1}" a="{2}"><f{0}:in> {3} </f{0}:in></f{0}:Thing>'.format,
    st.integers(1, 9),
    tokens,
    tokens,
    st.text("abc ", max_size=5),
).map(str.encode)


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(st.none(), strategy)


def few(strategy: st.SearchStrategy, most: int = 3) -> st.SearchStrategy:
    return st.lists(strategy, max_size=most).map(tuple)


typed_ids = st.builds(PartyId, ids, ids)
uri_ids = st.builds(PartyId, uris)
party_ids = st.one_of(typed_ids, uri_ids)


def parties(*, roles: bool) -> st.SearchStrategy[Party]:
    several = st.lists(
        party_ids, min_size=1, max_size=3, unique_by=lambda one: one.type or one.value
    ).map(tuple)
    return st.builds(Party, several, maybe(ids) if roles else st.none())


services = st.one_of(st.builds(Service, uris), st.builds(Service, ids, ids)).filter(
    lambda one: one.value != ebms2_names.SIGNAL_SERVICE
)
splits = st.integers(1, 50).flatmap(
    lambda total: st.builds(Split, ids, st.integers(1, total), st.just(total))
)
statuses = st.sampled_from(list(SequenceStatus))


@st.composite
def payloads(draw: st.DrawFn, most: int = 3) -> tuple[Payload, ...]:
    """Payloads of any bytes; line ends and boundary look-alikes are likely."""
    names = draw(st.lists(tokens.map(lambda one: f"{one}@x"), max_size=most, unique=True))
    content = st.one_of(
        st.binary(max_size=200),
        st.lists(
            st.sampled_from([b"\r\n", b"\n", b"\r", b"--", b"--=_", b"=", b"a", b"\x00", b" "]),
            max_size=40,
        ).map(b"".join),
    )
    made = []
    for name in names:
        data = draw(content)
        one = Payload.of(name, draw(_MEDIA_TYPES), data)
        made.append(
            Payload(
                one.content_id,
                one.media_type,
                one.size,
                one.digest,
                data,
                None,
                draw(maybe(st.sampled_from(["gzip", "deflate"]))),
                draw(few(_MIME_HEADERS, 2)),
            )
        )
    return tuple(made)


_MEDIA_TYPES = st.sampled_from(
    [
        "application/xml",
        "text/plain; charset=utf-8",
        'a/b; name="x y;z"',
        "application/octet-stream",
    ]
)
_MIME_HEADERS = st.tuples(st.sampled_from(["Content-Description", "X-Anything"]), tokens)


@st.composite
def manifests(
    draw: st.DrawFn, parts: tuple[Payload, ...], *, compression: bool
) -> tuple[Reference, ...]:
    """A reference for every payload, and perhaps one that leads elsewhere."""
    hrefs = [reference_to(part.content_id) for part in parts]
    hrefs += draw(st.lists(uris.map(lambda uri: f"mid:{uri}"), max_size=1))
    names = draw(
        st.lists(
            tokens.map(lambda one: f"_{one}"), min_size=len(hrefs), max_size=len(hrefs), unique=True
        )
    )
    squeezed = st.builds(Compression, st.sampled_from(["gzip"]), maybe(st.integers(0, 10**15)))
    return tuple(
        Reference(
            href=href,
            role=draw(maybe(uris)),
            id=draw(maybe(st.just(name))),
            schemas=draw(few(st.tuples(uris, maybe(ids)), 2)),
            descriptions=draw(few(st.tuples(languages, texts), 2)),
            compression=draw(maybe(squeezed)) if compression else None,
            foreign=draw(few(foreign_elements, 2)),
        )
        for href, name in zip(hrefs, names, strict=True)
    )


@st.composite
def signed_digests(draw: st.DrawFn) -> SignedDigest:
    uri = draw(st.one_of(st.just(""), uris))
    method = "http://www.w3.org/2001/04/xmlenc#sha256"
    value = draw(st.binary(min_size=32, max_size=32))
    xml = (
        f'<ds:Reference xmlns:ds="{ebms2_names.DS}" URI="{uri}"><ds:DigestMethod '
        f'Algorithm="{method}"/><ds:DigestValue>{base64.b64encode(value).decode()}'
        "</ds:DigestValue></ds:Reference>"
    )
    return SignedDigest(uri, method, value, xml.encode())


def errors(context: str, severity: Severity | None = None) -> st.SearchStrategy[Error]:
    """Errors of the nine codes, and a transient one with its pause."""
    severities = st.sampled_from([severity] if severity else list(Severity))
    usual = st.builds(
        Error,
        st.sampled_from(list(EBXML_ERRORS)),
        severities,
        st.one_of(st.just(""), ids),
        st.one_of(st.just(""), texts),
    )
    transient = st.builds(
        Error,
        st.just("TransientError"),
        st.just(Severity.WARNING),
        st.just(""),
        st.one_of(st.just(""), texts),
        st.just(context),
        st.just(120),
    )
    return st.one_of(usual, transient)


def error_lists(context: str, severity: Severity | None = None) -> st.SearchStrategy[ErrorList]:
    return st.builds(
        ErrorList, st.lists(errors(context, severity), min_size=1, max_size=3).map(tuple)
    )


_SIGNALS = [kind for kind in MessageKind if kind is not MessageKind.NORMAL]
_NEEDS_REF = {
    MessageKind.ACKNOWLEDGMENT,
    MessageKind.ERROR,
    MessageKind.STATUS_RESPONSE,
    MessageKind.PONG,
}


def _status(kind: MessageKind, draw: st.DrawFn) -> dict[str, object]:
    if kind is MessageKind.STATUS_REQUEST:
        return {"status_request": StatusRequest(draw(ids))}
    if kind is MessageKind.STATUS_RESPONSE:
        status = draw(st.sampled_from(list(MessageStatus)))
        return {"status_response": StatusResponse(draw(ids), status, draw(maybe(instants)))}
    return {}


# ebMS 2.0


@st.composite
def ebms2_messages(draw: st.DrawFn) -> Message:
    """Any message ebMS 2.0 can carry when every extension is agreed."""
    kind = draw(st.one_of(st.just(MessageKind.NORMAL), st.sampled_from(_SIGNALS)))
    normal = kind is MessageKind.NORMAL
    asks: tuple[AckRequested, ...] = ()
    if kind not in (MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR):
        actors = draw(st.lists(st.sampled_from(list(Actor)), max_size=2, unique=True))
        asks = tuple(AckRequested(actor, draw(st.booleans())) for actor in actors)
    eliminate = draw(st.booleans())
    to_party = any(one.actor is Actor.TO_PARTY_MSH for one in asks)
    semantics = None
    if eliminate and to_party:
        semantics = DeliverySemantics.ONCE_AND_ONLY_ONCE
    elif not eliminate and not asks:
        semantics = DeliverySemantics.BEST_EFFORT
    order = None
    if semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE and draw(st.booleans()):
        order = draw(
            st.one_of(
                st.just(SequenceNumber(0, SequenceStatus.RESET)),
                st.builds(SequenceNumber, st.integers(0, ebms2_names.SEQUENCE_MAX)),
            )
        )
    parts = draw(payloads()) if normal or kind is MessageKind.ACKNOWLEDGMENT else ()
    answers = draw(_ebms2_answers(at_least=int(kind is MessageKind.ACKNOWLEDGMENT)))
    failures = None
    if kind is MessageKind.ERROR:
        failures = draw(error_lists(ebms2_names.RMX_ERRORS))
    elif normal and draw(st.booleans()):
        failures = draw(error_lists(ebms2_names.RMX_ERRORS, Severity.WARNING))
    header = Header(
        from_party=draw(parties(roles=True)),
        to_party=draw(parties(roles=True)),
        cpa_id=draw(ids),
        conversation_id=draw(ids),
        service=draw(services) if normal else Service(ebms2_names.SIGNAL_SERVICE),
        action=draw(ids) if normal else kind.value,
        message_id=draw(ids),
        timestamp=draw(instants),
        ref_to_message_id=draw(ids if kind in _NEEDS_REF else maybe(ids)),
        time_to_live=draw(maybe(instants)),
        semantics=semantics,
        duplicate_elimination=eliminate,
        sync_reply_as_agreed=order is None and draw(st.booleans()),
        split=draw(maybe(splits)),
        descriptions=draw(few(st.tuples(languages, texts), 2)),
        foreign=draw(few(foreign_elements, 2)),
    )
    return Message(
        dialect=Dialect.EBMS2,
        kind=kind,
        header=header,
        routing=draw(_ebms2_routing()),
        order=order,
        ack_requested=asks,
        acknowledgments=answers,
        error_list=failures,
        manifest=draw(manifests(parts, compression=True)) if parts else (),
        payloads=parts,
        **_status(kind, draw),  # type: ignore[arg-type]
    )


@st.composite
def _ebms2_answers(draw: st.DrawFn, at_least: int) -> tuple[Acknowledgment, ...]:
    actors = draw(
        st.lists(st.sampled_from(list(Actor)), min_size=at_least, max_size=2, unique=True)
    )
    made = []
    for actor in actors:
        digests = draw(few(signed_digests(), 2))
        made.append(
            Acknowledgment(
                draw(instants),
                draw(ids),
                draw(maybe(parties(roles=True))),
                actor,
                bool(digests),
                None,
                digests,
            )
        )
    return tuple(made)


@st.composite
def _ebms2_routing(draw: st.DrawFn) -> tuple[RoutingHeader, ...]:
    hops = draw(st.lists(_uri_hop(), max_size=3))
    if hops and draw(st.booleans()):
        last = hops[-1]
        hops[-1] = RoutingHeader(
            last.sender_uri,
            last.receiver_uri,
            timestamp=last.timestamp,
            error_uri=last.error_uri,
            msh_id=last.msh_id,
            method=None,
            sequence=SequenceNumber(draw(st.integers(0, 2**32 - 1)), draw(statuses)),
        )
    return tuple(hops)


def _uri_hop() -> st.SearchStrategy[RoutingHeader]:
    return st.builds(
        RoutingHeader,
        sender_uri=uris,
        receiver_uri=uris,
        timestamp=maybe(instants),
        error_uri=maybe(uris),
        msh_id=maybe(ids),
        # ebMS 2.0 leaves it to the agreement.
        method=st.none(),
    )


# ms-0.9x


@st.composite
def ms09x_messages(draw: st.DrawFn, *, typed: bool) -> Message:
    """Any message ms-0.9x can carry, with typed acknowledgements or without."""
    kind = draw(st.one_of(st.just(MessageKind.NORMAL), st.sampled_from(_SIGNALS)))
    normal = kind is MessageKind.NORMAL
    parts = draw(payloads()) if normal else ()
    service, action = (
        (draw(services), draw(ids))
        if normal
        else (Service(draft_names.SIGNALS[kind][0]), draft_names.SIGNALS[kind][1])
    )
    ref_to = draw(ids if kind in _NEEDS_REF else maybe(ids))
    answers: tuple[Acknowledgment, ...] = ()
    if ref_to is not None:
        answers = draw(few(_draft_answers(ref_to, typed=typed), 2))
    modes = [SyncReplyMode.MSH_SIGNALS_ONLY, SyncReplyMode.RESPONSE_ONLY]
    header = Header(
        from_party=draw(parties(roles=False)),
        to_party=draw(parties(roles=False)),
        cpa_id=draw(ids),
        conversation_id=draw(ids),
        service=service,
        action=action,
        message_id=draw(ids),
        timestamp=draw(instants),
        ref_to_message_id=ref_to,
        time_to_live=draw(maybe(instants)),
        semantics=draw(maybe(st.sampled_from(list(DeliverySemantics)))),
        delivery_receipt_requested=draw(maybe(st.sampled_from(list(AckRequest)))),
        sync_reply=draw(maybe(st.sampled_from([*modes, SyncReplyMode.SIGNALS_AND_RESPONSE]))),
        split=draw(maybe(splits)),
        foreign=draw(few(foreign_elements, 2)),
    )
    failures = draw(maybe(error_lists(Error("x").code_context)))
    if kind is MessageKind.ERROR and failures is None:
        failures = ErrorList((Error("Unknown"),))
    return Message(
        dialect=Dialect.MS_09X,
        kind=kind,
        header=header,
        routing=draw(few(_ms09x_hop(), 3)),
        acknowledgments=answers,
        error_list=failures,
        manifest=draw(manifests(parts, compression=False)) if parts else (),
        payloads=parts,
        **_status(kind, draw),  # type: ignore[arg-type]
    )


@st.composite
def _draft_answers(draw: st.DrawFn, ref_to: str, *, typed: bool) -> Acknowledgment:
    kind = draw(st.sampled_from(list(AcknowledgmentType))) if typed else None
    intermediate = kind is AcknowledgmentType.INTERMEDIATE_ACK
    return Acknowledgment(
        draw(instants),
        ref_to,
        draw(maybe(parties(roles=False))),
        Actor.NEXT_MSH if intermediate else Actor.TO_PARTY_MSH,
        draw(st.booleans()),
        kind,
        draw(few(signed_digests(), 2)),
    )


def _ms09x_hop() -> st.SearchStrategy[RoutingHeader]:
    return st.builds(
        RoutingHeader,
        sender_uri=uris,
        receiver_uri=uris,
        timestamp=instants,
        error_uri=maybe(uris),
        ack_requested=st.sampled_from(list(AckRequest)),
        method=st.sampled_from(list(ReliableMessagingMethod)),
        sequence=maybe(st.builds(SequenceNumber, st.integers(0, 2**32 - 1), statuses)),
        msh_id=maybe(ids),
    )


# rm-0.78


@st.composite
def rm078_messages(draw: st.DrawFn) -> Message:
    """Any message rm-0.78 can carry."""
    kind = draw(
        st.sampled_from([MessageKind.NORMAL, MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR])
    )
    normal = kind is MessageKind.NORMAL
    parts = draw(payloads()) if normal else ()
    header = Header(
        from_party=draw(parties(roles=False)),
        to_party=draw(parties(roles=False)),
        cpa_id=draw(ids),
        conversation_id=draw(ids),
        service=draw(services) if normal else None,
        action=draw(ids) if normal else None,
        message_id=draw(ids),
        timestamp=draw(instants),
        ref_to_message_id=draw(maybe(ids)),
        time_to_live=draw(maybe(instants)),
        semantics=draw(maybe(st.sampled_from(list(DeliverySemantics)))),
        split=draw(maybe(splits)),
        foreign=draw(few(foreign_elements, 2)),
    )
    hop = RoutingHeader(
        sender_id=draw(party_ids),
        receiver_id=draw(party_ids),
        sequence=draw(maybe(st.builds(SequenceNumber, st.integers(1, 2**32 - 1), st.none()))),
        msh_id=draw(maybe(ids)),
    )
    failures = draw(error_lists(Error("x").code_context)) if kind is MessageKind.ERROR else None
    return Message(
        dialect=Dialect.RM_078,
        kind=kind,
        header=header,
        routing=(hop,),
        error_list=failures,
        manifest=draw(manifests(parts, compression=False)) if parts else (),
        payloads=parts,
    )


def messages(dialect: Dialect, *, typed: bool = False) -> st.SearchStrategy[Message]:
    """Any message that dialect can carry."""
    if dialect is Dialect.EBMS2:
        return ebms2_messages()
    return ms09x_messages(typed=typed) if dialect is Dialect.MS_09X else rm078_messages()


@functools.cache
def some_messages(dialect: Dialect) -> tuple[Message, ...]:
    """The same forty messages in each run, among which are all values that can be drawn."""
    drawn = []

    @settings(max_examples=40, phases=[Phase.generate], derandomize=True, database=None)
    @given(messages(dialect))
    def draw(message: Message) -> None:
        drawn.append(message)

    draw()
    return tuple(drawn)

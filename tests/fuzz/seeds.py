"""The good messages that mutations start from: every dialect, kind and frame."""

from msgspec.structs import replace

from oncewire.errors import Inconsistent, SoapFault, TransientError
from oncewire.message.envelope import (
    Actor,
    Message,
    MessageStatus,
    SequenceNumber,
    SequenceStatus,
    Split,
)
from oncewire.message.form import Dialect
from oncewire.wire import answers, codec, soap
from oncewire.wire.codec import Parcel
from tests.wire import samples


def conversation(dialect: Dialect) -> list[Message]:
    """One of each kind that the dialect has."""
    order = samples.order_message(dialect)
    envelope = samples.envelope_for(dialect, own=samples.BETA, hop=samples.NEXT_HOP)
    found = [
        order,
        replace(order, payloads=(samples.ORDER, samples.PICTURE)),
        replace(
            order,
            payloads=(),
            header=replace(
                order.header,
                split=Split("s-1", 2, 3),
                foreign=(b'<x:Y xmlns:x="urn:x" a="b">text</x:Y>',),
                ref_to_message_id="m-0",
                time_to_live=samples.NOW + 1,
            ),
        ),
        answers.acknowledgment_for(order, envelope),
        replace(
            answers.acknowledgment_for(order, envelope, actor=Actor.NEXT_MSH),
            acknowledgments=(answers.acknowledgment_of(order, envelope, actor=Actor.NEXT_MSH),),
        ),
        answers.error_message_for(order, [Inconsistent("x", location="//y")], envelope),
        answers.error_message_for(order, [TransientError("x", min_retry_secs=9)], envelope),
        answers.delivery_failure_for(order, envelope, transmitted=True),
    ]
    if dialect is not Dialect.RM_078:
        question = answers.ask_status(order, envelope)
        ping = answers.ping_like(order, envelope)
        found += [
            question,
            answers.status_response_for(
                question, MessageStatus.RECEIVED, envelope, received_at=samples.NOW
            ),
            ping,
            answers.pong_for(ping, envelope),
        ]
    if dialect is Dialect.EBMS2:
        numbered = SequenceNumber(0, SequenceStatus.RESET)
        found.append(replace(order, routing=(), order=numbered))
        found.append(
            replace(
                order,
                header=replace(
                    order.header, sync_reply_as_agreed=True, descriptions=(("en", "d"),)
                ),
            )
        )
    return found


def _as_http(parcel: Parcel, start: str) -> bytes:
    headers = "".join(f"{name}: {value}\r\n" for name, value in parcel.headers)
    head = f"{start}\r\nContent-Type: {parcel.content_type}\r\n{headers}\r\n"
    return head.encode() + parcel.body


def captures() -> list[bytes]:
    """Each good message as a file: HTTP request, HTTP response, mail or bare header."""
    found = []
    for dialect in Dialect:
        form = samples.form(dialect)
        parcels = []
        for number, message in enumerate(conversation(dialect)):
            parcel = codec.write(message, form, mail=number % 3 == 2)
            parcels.append(parcel)
            start = ("POST /msh HTTP/1.1", "HTTP/1.1 200 OK", "MIME-Version: 1.0")[number % 3]
            found.append(_as_http(parcel, start))
        found.append(_as_http(codec.bundle(parcels[:2]), "HTTP/1.1 200 OK"))
        found.append(codec.write_envelope(samples.order_message(dialect, ()), form))
    found.append(soap.write_fault(SoapFault("Client", "no")).body)
    return found

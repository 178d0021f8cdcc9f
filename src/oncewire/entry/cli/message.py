"""`oncewire message ...` and `oncewire replay`: look into messages, make one, compare answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Json, Listing, Report
from oncewire.errors import EbxmlError, InvalidValue, OncewireError

if TYPE_CHECKING:
    from oncewire.agreement.agreement import Agreement
    from oncewire.entry.messages.stored import Exchange
    from oncewire.message.form import Form, Validation
    from oncewire.wire.inspection import Comparison

_FILE_MAX = 64 * 1024 * 1024
AgreementFile = Annotated[
    Path | None,
    typer.Option("--agreement", "-a", help="An agreement file: its parties, form and terms."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    says = "Messages: look into one, make one."
    output.add_group(app, "message", says, {"decode": decode, "build": build})
    app.command("replay")(replay)


# --- decode ------------------------------------------------------------------------------------


@output.answers
def decode(
    file: Annotated[Path, typer.Argument(help="XML, MIME, mail or recorded HTTP; - reads stdin.")],
    validation: Annotated[
        str, typer.Option(help="Judge the official schema: enforce, report or off.")
    ] = "report",
    certificate: Annotated[
        list[Path] | None,
        typer.Option(help="The sender's certificate: verifies the signature with it."),
    ] = None,
) -> Report:
    """Show what a message says: ids, parties, wishes, acknowledgements, errors, parts, signature.

    A message that must be refused is shown as the error it would be answered with, and the
    command ends with status 2.
    """

    from oncewire.wire.inspection import describe_bytes

    data = _content(file)
    level = _validation(validation)
    state = _signature_state(data, certificate) if certificate else None
    values = describe_bytes(data, validation=level, signature_state=state)
    return _described(values)


def _content(file: Path) -> bytes:
    from oncewire.entry.files import read_bytes

    if str(file) != "-":
        return read_bytes(file, "message", _FILE_MAX)
    data = sys.stdin.buffer.read(_FILE_MAX + 1)
    if len(data) > _FILE_MAX:
        raise InvalidValue(
            f"the message has more than {_FILE_MAX} bytes", remedy="name a smaller file"
        )
    return data


def _validation(word: str) -> Validation:
    from oncewire.message.form import Validation

    try:
        return Validation(word)
    except ValueError:
        known = ", ".join(validation.value for validation in Validation)
        raise InvalidValue(f"--validation {word!r} is not known", remedy=f"use {known}") from None


def _signature_state(data: bytes, certificates: list[Path]) -> str | None:
    """The verdict with certificates that the caller vouches for."""
    from oncewire.entry.files import read_bytes
    from oncewire.wire import codec
    from oncewire.wire.inspection import open_capture
    from oncewire.wire.parcel import ReadFault
    from oncewire.wire.security import signature
    from oncewire.wire.security.certificates import Trust, load_certificates
    from oncewire.wire.security.references import signature_parts

    pinned = [
        certificate
        for path in certificates
        for certificate in load_certificates(read_bytes(path, "certificate"))
    ]
    try:
        received = codec.read(open_capture(data).parcel)
    except ReadFault:
        # Refused anyway; `describe` says why.
        return None
    if not received.signed:
        return None
    try:
        trust = Trust(pinned=tuple(pinned))
        signature.verify_signature(received.octets, signature_parts(received), trust, output.now())
    except EbxmlError as error:
        return f"bad: {error.problem}"
    return "good"


def _described(values: dict[str, Any]) -> Report:
    if "messages" in values:
        rest = {name: value for name, value in values.items() if name != "messages"}
        parts = tuple(_described(message) for message in values["messages"])
        worst = max((report.exit_code for report in parts), default=output.OK)
        return Report(rest, parts=("messages", parts), exit_code=worst)
    facts, listings = {}, []
    for name, value in values.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = [tuple(item.values()) for item in value]
            title = name.replace("_", " ")
            listings.append(Listing(name, tuple(value[0]), rows, title=title))
        else:
            facts[name] = value
    summary, code = "", output.OK
    hints: tuple[str, ...] = ()
    if "fault" in values:
        fault = values["fault"]
        place = f" at {fault['location']}" if fault["location"] else ""
        summary = (
            f"It would be answered with {values['answered_with']}: {fault['code']} "
            f"({fault['severity']}){place}: {fault['message']}"
        )
        code, hints = output.BAD_INPUT, (fault["remedy"],) if fault["remedy"] else ()
    return Report(facts, tuple(listings), summary=summary, hints=hints, exit_code=code, sparse=True)


# --- build -------------------------------------------------------------------------------------


@output.answers
def build(
    to: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")],
    payload: Annotated[
        list[str] | None,
        typer.Option("--payload", "-p", help="A payload: FILE or 'FILE;media/type'."),
    ] = None,
    agreement: AgreementFile = None,
    sender: Annotated[str, typer.Option("--from", help="From: PartyId, or type|PartyId.")] = "",
    receiver: Annotated[str, typer.Option("--to", help="To: PartyId, or type|PartyId.")] = "",
    cpa_id: Annotated[str, typer.Option(help="The agreement's CPAId.")] = "",
    service: Annotated[
        str, typer.Option(help="The service, a URI, or type|service.")
    ] = "urn:oncewire:service:documents",
    action: Annotated[str, typer.Option(help="The action.")] = "Deliver",
    message_id: Annotated[str, typer.Option(help="MessageId; without it a new one.")] = "",
    conversation: Annotated[str, typer.Option(help="ConversationId; without it a new one.")] = "",
    ref_to: Annotated[str, typer.Option(help="RefToMessageId.")] = "",
    dialect: Annotated[str, typer.Option(help="ebms2, ms-0.9x or rm-0.78.")] = "ebms2",
    ack: Annotated[
        str, typer.Option(help="Ask for an acknowledgement: none, unsigned, signed.")
    ] = "none",
    once: Annotated[bool, typer.Option("--once", help="Ask that copies are dropped.")] = False,
    sync: Annotated[bool, typer.Option("--sync", help="Ask for the reply at once.")] = False,
    sequence: Annotated[int, typer.Option(help="A sequence number.", min=-1)] = -1,
    time_to_live: Annotated[str, typer.Option(help="Lifetime, for example PT5M.")] = "",
    certificate: Annotated[Path | None, typer.Option(help="Sign: our certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="Sign: its private key.")] = None,
    bare: Annotated[bool, typer.Option("--bare", help="The body alone, without headers.")] = False,
) -> Report:
    """Make a message from options and payload files, for tests and questions.

    To have a document delivered reliably use `oncewire send` instead.
    """

    from oncewire.entry.files import write_new
    from oncewire.entry.messages import submitting
    from oncewire.entry.party.folder import describe_keys
    from oncewire.handler.world import RealWorld
    from oncewire.wire import codec
    from oncewire.wire.parcel import as_file

    words = submitting.Words(
        sender, receiver, cpa_id, service, action, message_id, conversation, ref_to, dialect, ack,
        once, sync, sequence, time_to_live, tuple(payload or ()),
    )  # fmt: skip
    if (certificate is None) != (key is None):
        raise InvalidValue("a signature needs both", remedy="give --certificate and --key")
    world = RealWorld()
    message, form = submitting.message_of(
        words, _agreement(agreement), now=world.now(), unique=world.new_id()
    )
    keys = describe_keys(certificate, key) if certificate and key else None
    signer = submitting.signer_of(keys) if keys is not None else None
    parcel = codec.write(message, form, signer=signer)
    write_new(to, as_file(parcel, bare=bare))
    return Report(
        {
            "file": str(to),
            "message_id": message.header.message_id,
            "conversation_id": message.header.conversation_id,
            "content_type": parcel.content_type,
            "size": len(parcel.body),
            "signed": keys is not None,
        },
        summary=f"Written to {output.here(to)}.",
        hints=(f"oncewire message decode {output.typed(to)}",),
    )


def _agreement(file: Path | None) -> Agreement | None:
    from oncewire.entry.party.agreements import read_file

    return None if file is None else read_file(file)


# --- replay ------------------------------------------------------------------------------------


@output.answers
def replay(
    archive: Annotated[
        Path, typer.Argument(help="A folder, .zip or .tar of recorded requests and answers.")
    ],
    agreement: AgreementFile = None,
    every: Annotated[
        bool, typer.Option("--all", help="List exchanges without differences too.")
    ] = False,
    json: Json = False,
) -> Report:
    """Compare the answers another handler gave with those Oncewire would give.

    Pairs are found by name: x.request.http and x.response.http. Nothing is sent or stored.
    Ends with status 1 if an answer would differ.
    """

    from oncewire.entry.messages.stored import exchanges
    from oncewire.message.form import Form

    agreed = _agreement(agreement)
    form = agreed.form if agreed is not None else Form()
    rows: list[tuple[object, ...]] = []
    parted: list[tuple[object, ...]] = []
    recorded = exchanges(archive)
    with output.progress("replaying", len(recorded), quiet=json) as advance:
        for exchange in recorded:
            row, differences = _compared(exchange, form)
            parted += [(exchange.name, *pair) for pair in differences]
            if differences or every or row[-1]:
                rows.append((exchange.name, *row[:3], len(differences), row[3]))
            advance(1)
    differing = len({row[0] for row in parted})
    columns = ("exchange", "message_id", "theirs", "ours", "differences", "note")
    return Report(
        {"exchanges": len(recorded), "differing": differing},
        (
            Listing("compared", columns, rows),
            Listing("differences", ("exchange", "field", "theirs", "ours"), parted),
        ),
        summary=f"{len(recorded) - differing} of {len(recorded)} answers are the same.",
        exit_code=output.WRONG if parted else output.OK,
    )


def _compared(
    exchange: Exchange, form: Form
) -> tuple[tuple[object, ...], list[tuple[str, str, str]]]:
    """The row of one exchange and its differences; trouble with one is its note, not the end."""
    from oncewire.wire.inspection import compare, open_capture

    try:
        request = open_capture(exchange.request())
        content = exchange.answer() if exchange.answer is not None else b""
        answer = open_capture(content) if content.strip() else None
        found: Comparison = compare(request, answer, form, now=output.now())
    except OncewireError as error:
        return ("", "", "", error.problem), []
    row = (found.message_id, _kind_of(found.theirs), _kind_of(found.ours), found.ours.problem)
    return row, [(each.field, each.theirs, each.ours) for each in found.differences]


def _kind_of(answer: Any) -> str:
    return str(answer.message.kind.value if answer.message is not None else answer.kind.value)

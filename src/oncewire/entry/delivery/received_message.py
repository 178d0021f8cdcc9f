"""A message as an application outside this process gets it: header facts and payloads.

One form for every way out: the control socket, files in a directory, webhooks and the Python
API all say the same of a message, under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncewire.entry.messages.documents import Document, payloads_of
from oncewire.errors import InvalidValue
from oncewire.handler.actions import Notice, Submission
from oncewire.message.envelope import Payload, Severity
from oncewire.message.file_name import disposition
from oncewire.message.ids import Service
from oncewire.message.instant import format_instant
from oncewire.message.payload import Content, DistantPayload
from oncewire.protocol.states import Outcome

if TYPE_CHECKING:
    from oncewire.handler.delivering.deliver import GivenMessage


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One message that was handed over: `response` answers it, `party.confirm` ends its hand-over.

    `sender`: the authenticated From Party: together with `message_id` the key of duplicates.
    `message_id`, `conversation_id`, `cpa_id`: of its header; `cpa_id` names the agreement.
    `from_party`, `to_party`: the parties as the header names them.
    `service`, `action`: what is asked for.
    `timestamp`: when its sender wrote it, as xsd:dateTime in UTC.
    `ref_to_message_id`: the message of ours that it responds to, or empty.
    `redelivered`: it was given before, and the handler was never told that it arrived.
    `payloads`: the documents, each a `Payload` with its bytes in `data`. A large one lies on the
    disk: `open` reads it piece by piece, `data` fetches all of it.
    `service_type`: the type of the service, where it has one; `service` then begins with it
    and a colon.
    `warnings`: what its sender warns of beside the document, each as code and sentence.
    """

    sender: str
    message_id: str
    conversation_id: str
    cpa_id: str
    from_party: str
    to_party: str
    service: str
    action: str
    timestamp: str
    ref_to_message_id: str = ""
    redelivered: bool = False
    payloads: tuple[Payload, ...] = ()
    service_type: str = ""
    warnings: tuple[str, ...] = ()

    def response(
        self, action: str, *documents: Document, media_type: str = "", message_id: str | None = None
    ) -> Submission:
        """The response to this message, ready for `party.submit`: same agreement, service and
        conversation, with this message's id as its RefToMessageId.

        Documents are those of `party.send`; without any, the action says it all. A function
        returns it. Who takes messages and submits responses by himself gives a `message_id` that
        follows from this message's: submitted again it is sent once.
        """
        if not isinstance(action, str):
            raise InvalidValue(
                f"the action of the response is no str: {repr(action)[:32]}",
                remedy="give the action as a text first, then the documents",
            )
        service = self.service
        if self.service_type:
            service = service.removeprefix(f"{self.service_type}:")
        return Submission(
            self.cpa_id,
            Service(service, self.service_type or None),
            action,
            payloads_of(documents, media_type),
            conversation_id=self.conversation_id,
            message_id=message_id,
            ref_to_message_id=self.message_id,
        )

    def facts(self) -> dict[str, Any]:
        """Everything but the payloads' bytes, as JSON has it."""
        facts = {name: getattr(self, name) for name in _FACTS}
        payloads = [payload_facts(payload) for payload in self.payloads]
        return facts | {"warnings": list(self.warnings), "payloads": payloads}


_FACTS = (
    "message_id", "sender", "conversation_id", "cpa_id", "from_party", "to_party", "service",
    "service_type", "action", "timestamp", "ref_to_message_id", "redelivered",
)  # fmt: skip


def message_of(taken: GivenMessage) -> ReceivedMessage:
    """The message that the handler hands over."""
    header = taken.header
    return ReceivedMessage(
        taken.sender,
        taken.message_id,
        header.conversation_id,
        header.cpa_id,
        str(header.from_party),
        str(header.to_party),
        "" if header.service is None else str(header.service),
        header.action or "",
        format_instant(header.timestamp),
        header.ref_to_message_id or "",
        taken.redelivered,
        taken.payloads,
        "" if header.service is None else header.service.type or "",
        tuple(f"{error.code}: {error.description}".rstrip(": ") for error in taken.warnings),
    )


def message_from(facts: Mapping[str, Any], contents: Sequence[bytes | Content]) -> ReceivedMessage:
    """What `ReceivedMessage.facts` told, with the payloads' bytes, or where they lie, beside it."""
    payloads = tuple(map(_payload_from, facts["payloads"], contents))
    rest = {name: value for name, value in facts.items() if name != "payloads"}
    rest["warnings"] = tuple(facts.get("warnings", ()))
    return ReceivedMessage(**rest, payloads=payloads)


def _payload_from(facts: Mapping[str, Any], data: bytes | Content) -> Payload:
    name, media_type = facts["content_id"], facts["media_type"]
    called = facts.get("file_name", "")
    if isinstance(data, bytes):
        return Payload.of(name, media_type, data, called)
    headers = disposition(called)
    return DistantPayload(
        name, media_type, facts["size"], facts["sha256"], content=data, mime_headers=headers
    )


def notice_facts(notice: Notice) -> dict[str, str]:
    """What an application is told of a message of its own that failed."""
    return {
        "notice_id": notice.notice_id,
        "message_id": notice.message_id,
        "outcome": notice.outcome.value,
        "severity": notice.severity.value,
        "reason": notice.reason,
    }


def notice_from(facts: Mapping[str, str]) -> Notice:
    """What `notice_facts` told."""
    return Notice(
        facts["message_id"],
        Severity(facts["severity"]),
        Outcome(facts["outcome"]),
        facts["reason"],
        facts["notice_id"],
    )


def payload_facts(payload: Payload) -> dict[str, Any]:
    """A payload without its bytes."""
    return {
        "content_id": payload.content_id,
        "media_type": payload.media_type,
        "file_name": payload.file_name,
        "size": payload.size,
        "sha256": payload.digest,
    }


def content(payload: Payload) -> bytes:
    """A payload's bytes; what is handed over has them at hand."""
    if payload.data is None:
        raise InvalidValue(
            f"the bytes of payload {payload.content_id} are not at hand",
            remedy="read them from the store's spool",
        )
    return payload.data

"""Original: a document of ours as the store keeps it while its parts are sent.

Its row has no bytes that travel. They are the header that all its parts share, as a draft, and the
files of its payloads in the spool, already compressed where that is agreed: a part is a few bytes
of its own around a range of such a file, so the document is there once, however often it is sent.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from oncewire.errors import StoreDamaged
from oncewire.store.records import SpoolSlice, StoredOutgoing, StoredParcel

CONTENT_TYPE = "application/x-oncewire-document"
"""Of a row whose bytes are no message."""

_HEADER, _ACTION = "payload", "fragment-action"


@dataclass(frozen=True, slots=True)
class Content:
    """One payload of a document, and the file that it travels from."""

    content_id: str
    media_type: str
    # Of the payload as it was handed in.
    size: int
    # Of the file, which is named by its digest.
    name: str
    length: int
    # How it was compressed into that file; None: it is the payload itself.
    encoding: str | None = None
    mime_headers: tuple[tuple[str, str], ...] = ()
    # It is small enough to travel whole, in the message that names the fragments of the others.
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Original:
    """A document as it was handed in."""

    draft: bytes
    contents: tuple[Content, ...]
    # The Action of its fragments (`mid:`); None: its parts say themselves what they are part of.
    fragment_action: str | None = None

    @property
    def travelling(self) -> tuple[Content, ...]:
        """The payloads that are cut into parts."""
        return tuple(content for content in self.contents if not content.inline)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each of them that travel."""
        return tuple(content.length for content in self.travelling)

    def stored(self) -> StoredParcel:
        """As the store keeps it."""
        headers = tuple((_HEADER, json.dumps(asdict(content))) for content in self.contents)
        if self.fragment_action is not None:
            headers = ((_ACTION, self.fragment_action), *headers)
        files = (SpoolSlice(content.name, 0, content.length) for content in self.contents)
        return StoredParcel(CONTENT_TYPE, headers, (self.draft, *files))

    @classmethod
    def read(cls, parcel: StoredParcel | None, message_id: str) -> Original:
        """What the store kept. StoreDamaged where that is not what was written."""
        try:
            if parcel is None or parcel.content_type != CONTENT_TYPE:
                raise ValueError("it has no parts")
            draft, *_ = parcel.body
            contents = [json.loads(value) for name, value in parcel.headers if name == _HEADER]
            if not isinstance(draft, bytes):
                raise TypeError("it has no header")
            action = next((value for name, value in parcel.headers if name == _ACTION), None)
            return cls(draft, tuple(_content(values) for values in contents), action)
        except (ValueError, TypeError, KeyError) as problem:
            raise StoreDamaged(
                f"the stored document {message_id} is damaged: {problem}",
                message_id=message_id,
                remedy="put its row back from a backup, or give it up with `oncewire abandon`",
            ) from problem


def names_fragments(parcel: StoredParcel | None) -> bool:
    """Whether a message of the document's own will name its parts, or is there already."""
    if parcel is None:
        return False
    return parcel.content_type != CONTENT_TYPE or any(name == _ACTION for name, _ in parcel.headers)


def _content(values: dict[str, object]) -> Content:
    pairs = values.pop("mime_headers")
    headers = tuple((str(name), str(value)) for name, value in pairs)  # type: ignore[attr-defined]
    return Content(**values, mime_headers=headers)  # type: ignore[arg-type]


def has_parts(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a document that travels in parts."""
    facts = stored.facts
    return facts.split_id == stored.outgoing.message_id and facts.split_number is None


def is_whole(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a document of which only the parts travel, now at least: the message
    that names fragments goes out when they have arrived, and is then like any other."""
    return has_parts(stored) and not stored.outgoing.attempts


def is_part(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a part of a document that was split here: what a hub passes on
    is a message like any other to it."""
    return stored.facts.split_number is not None and stored.relayed_from is None

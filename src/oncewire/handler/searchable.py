"""What a message is found by besides its header: names of files, and values in its documents."""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.message.document_path import DocumentPath
from oncewire.message.payload import Payload
from oncewire.store.records import Word
from oncewire.wire.document_values import values_in


def words_of(payloads: Sequence[Payload], index: Sequence[DocumentPath] = ()) -> tuple[Word, ...]:
    """The words of a message with these payloads; `index`: where its agreement finds values. What
    lies in the spool is not looked into, and neither is what is compressed or encrypted."""
    if not index and not any(each.mime_headers or "name" in each.media_type for each in payloads):
        return ()
    found = [Word("", payload.file_name) for payload in payloads if payload.file_name]
    for payload in payloads if index else ():
        if payload.data is not None and payload.content_encoding is None:
            values = values_in(payload.data, payload.media_type, index)
            found += [Word(path, value) for path, value in values]
    return tuple(found)

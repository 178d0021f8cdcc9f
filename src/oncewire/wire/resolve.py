"""Whether every reference of the Manifest finds its part (ebMS 2.0 §3.2.2)."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from oncewire.errors import MimeProblem
from oncewire.message import Message

# What RFC 2392 lets stand unescaped in a cid: URL, and the slash some handlers write.
_SAFE = "@!$&'()*+,;=:/~-._"
_PLAIN = re.compile(r"[A-Za-z0-9@._-]+\Z")


def reference_to(content_id: str) -> str:
    """The cid: URL of a part."""
    if _PLAIN.match(content_id):
        return "cid:" + content_id
    return "cid:" + quote(content_id, safe=_SAFE)


def part_of(href_id: str, content_ids: list[str] | tuple[str, ...]) -> str | None:
    """The Content-ID that a cid: URL (without its scheme) names, escaped or not."""
    # As written first: a Content-ID may itself hold a percent sign.
    if href_id in content_ids:
        return href_id
    plain = unquote(href_id)
    return plain if plain in content_ids else None


def resolve_references(message: Message, content_ids: list[str], notes: list[str]) -> None:
    """Refuse a cid: that names no part; note parts and references that go elsewhere."""
    named = set()
    for reference in message.manifest:
        wanted = reference.content_id
        if wanted is None:
            # §3.2.2 leaves other schemes open; the application may resolve them (NHS uses mid:).
            notes.append(f"the reference {reference.href[:128]!r} lies outside this message")
            continue
        found = part_of(wanted, content_ids)
        if found is None:
            raise MimeProblem(
                f"the Manifest names {reference.href[:128]!r}, but no part has that Content-ID",
                location=reference.href,
                remedy="send the part, or leave the reference out",
            )
        named.add(found)
    notes.extend(
        f"the part {content_id[:64]!r} is not named in the Manifest"
        for content_id in content_ids
        if content_id not in named
    )

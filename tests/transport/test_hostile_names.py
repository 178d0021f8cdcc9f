"""Names, headers and addresses that somebody chose to hurt: no second command, nothing outside."""

import random
import re
from collections.abc import AsyncIterator
from email.message import Message
from email.parser import BytesParser
from typing import Any

import pytest

from oncewire.errors import OncewireError
from oncewire.transport.contract import read_block, write_block
from oncewire.transport.files.remote import claimed_id, place_of, ready_id
from oncewire.transport.smtp.relay import is_mail_safe, mail_address, open_mail, write_mail

PIECES = (
    "\r\n", "\n", "\r", "\0", "\r\n.\r\n", "\n.\n", "..", "../", "/", "\\", "%2e%2e/", "%0d%0a",
    "DELE x", "QUIT", "RCPT TO:<x@y>", "Bcc: x@y", "PORT 10,0,0,1,0,25", "a", "b.parcel", "@", "<",
    "mailto:", "sftp://", "ftp://", "host", ":21", "?", "#", " ", "\t", "é", "\u2028", "\x7f",
    "%00", ">",
    "x@y.example", "sftp://h/", "ftps://h/in", ".claimed-me", "\ud800", ";", "\"", "'", "$(x)", "|",
)  # fmt: skip


def texts(seed: int, count: int) -> Any:
    chance = random.Random(seed)
    for _ in range(count):
        yield "".join(chance.choices(PIECES, k=chance.randint(1, 7)))


def hold(seed: int, count: int) -> None:
    """Every text in every place where a partner's word becomes part of a command or a path."""
    schemes = {"sftp": 22, "ftps": 21, "ftp": 21}
    for text in texts(seed, count):
        try:
            mailbox = mail_address(text)
        except OncewireError:
            pass
        else:
            assert re.fullmatch(r"[!-;=?-~]+@[!-;=?-~]+", mailbox), text
        for address in (text, f"sftp://h/{text}"):
            try:
                place = place_of(address, schemes)
            except OncewireError:
                continue
            path = place.path("x.parcel")
            assert path.isprintable(), text
            assert path.startswith("/"), text
            assert ".." not in path.split("/"), text
        for found in (ready_id(text), claimed_id(text, "me")):
            assert found is None or re.fullmatch(r"[A-Za-z0-9_-]+", found), text
        try:
            block = write_block([("X-A", text)])
        except OncewireError:
            continue
        assert block.count(b"\r\n") == 1, text
        assert b"\n" not in block[:-2], text
        assert list(read_block(block)) == ["x-a"]


def test_a_few_thousand_of_them() -> None:
    hold(1, 5_000)


@pytest.mark.soak
def test_a_million_of_them() -> None:
    hold(2, 1_000_000)


def one_mail(body: bytes, **headers: str) -> bytes:
    return write_mail(
        "text/xml", tuple(headers.items()), body, sender="a@a.test", recipient="b@b.test",
        message_id="1@a.test",
    )  # fmt: skip


async def body_of(mail: bytes, each: int) -> bytes:
    """The parcel in a mail that comes in pieces of so many bytes."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(mail), each):
            yield mail[start : start + each]

    return b"".join([piece async for piece in (await open_mail(pieces())).body])


@pytest.mark.parametrize("seed", range(5))
async def test_a_body_never_ends_the_mail_and_never_begins_another(seed: int) -> None:
    """Dot-smuggling: whatever stands in a body, each line end of the mail is CR LF, and what
    comes out is what went in."""
    chance = random.Random(seed)
    bits = (
        b"\r\n.\r\n",
        b"\n.\n",
        b"\r.\r",
        b"\n.\r\n",
        b"\r\n.",
        b"MAIL FROM:<x@y>",
        b"\0",
        b"\xff",
        b"x",
    )
    for _ in range(400):
        body = b"".join(chance.choices(bits, k=chance.randint(0, 8)))
        mail = one_mail(body)
        assert not re.search(rb"(?<!\r)\n|\r(?!\n)|[^\t\r\n -~]", mail)
        assert await body_of(mail, chance.randint(1, 20)) == body
        if not is_mail_safe(body):
            assert b"\r\n.\r\n" not in mail


def test_others_read_our_mail_as_we_mean_it() -> None:
    mail = one_mail(b"<a>\xc3\xbc</a>", SOAPAction='"ebXML"', Subject="mine", Bcc="x@y")
    parsed: Message = BytesParser().parsebytes(mail)
    assert parsed.get_payload(decode=True) == b"<a>\xc3\xbc</a>"
    assert (parsed["To"], parsed["Subject"], parsed["Bcc"]) == ("<b@b.test>", "ebXML", None)
    assert parsed["SOAPAction"] == '"ebXML"'

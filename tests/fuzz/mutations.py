"""Ways to damage a message: blind ones, and ones that know XML, MIME and ebXML."""

import random
import re

TOKENS = [
    b"<", b">", b"&", b"&amp;", b"&#0;", b"&#x41;", b"&x;", b"<!--", b"-->", b"<![CDATA[", b"]]>",
    b"<?pi ?>", b"<!DOCTYPE a [", b'<!ENTITY x "y">', b"<!DOCTYPE a []>", b"\x00", b"\xff",
    b"\xfe\xff", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"--", b"=", b'"',
    b"'", b"%41", b"cid:", b"cid:order-1@alpha.example", b"\xf0\x9f\xa7\xb8", b"\xc3", b"=3D",
    b"=\r\n", b"AAAA", b"====", b";", b":", b" ", b"\t", b"0", b"-1", b"4294967296", b"9" * 40,
    b"true", b"Reset", b"Signed", b"2.0", b"1.0", b"2026-02-30T25:61:61Z", b"20260105T100000",
    b"urn:x", b"not a uri", b"a" * 300, b"../../etc/passwd", b"${jndi}", b"UTF-16", b"UTF-7",
    b"iso-8859-1", b"multipart/mixed", b"multipart/related", b"text/xml", b"quoted-printable",
    b"base64", b"chunked", b"Transfer-Encoding: chunked\r\n", b"Content-ID: <x>\r\n",
    b"Content-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\n\r\n", b"start=", b"boundary=",
    b'xmlns="urn:x"', b'xmlns:eb="urn:x"',
    b'SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:nextMSH"',
    b'SOAP:mustUnderstand="1"', b"<eb:MessageHeader/>", b"<x:y xmlns:x='urn:x'/>",
    b"http://schemas.xmlsoap.org/soap/actor/next",
]  # fmt: skip
_ELEMENT = re.compile(
    rb"<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>[^<]*</\1>|<[A-Za-z][\w:.-]*(?:\s[^<>]*)?/>"
)
_ATTRIBUTE = re.compile(rb"""\s[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*')""")
_VALUE = re.compile(rb""""([^"<]*)"|>([^<>]+)<""")
_LINE = re.compile(rb"[^\n]{0,500}\n")
_TAG_NAME = re.compile(rb"</?([\w:.-]+)")


def _spot(chance: random.Random, data: bytes) -> int:
    return chance.randrange(len(data) + 1)


def _match(chance: random.Random, pattern: re.Pattern[bytes], data: bytes) -> tuple[int, int]:
    found = [match.span() for match in pattern.finditer(data[:50_000])]
    if not found:
        at = _spot(chance, data)
        return at, at
    return chance.choice(found)


def flip_bits(chance: random.Random, data: bytes) -> bytes:
    """A few bits become others."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def drop(chance: random.Random, data: bytes) -> bytes:
    """A stretch is gone."""
    start = _spot(chance, data)
    return data[:start] + data[start + chance.choice([1, 2, 10, 100, 1000]) :]


def truncate(chance: random.Random, data: bytes) -> bytes:
    """The rest never came."""
    return data[: _spot(chance, data)]


def repeat(chance: random.Random, data: bytes) -> bytes:
    """A stretch comes twice, or a hundred times."""
    start = _spot(chance, data)
    piece = data[start : start + chance.choice([1, 5, 50, 500])]
    return data[:start] + piece * chance.choice([2, 3, 120]) + data[start:]


def insert(chance: random.Random, data: bytes) -> bytes:
    """A word that means something somewhere."""
    at = _spot(chance, data)
    return data[:at] + chance.choice(TOKENS) + data[at:]


def swap(chance: random.Random, data: bytes) -> bytes:
    """Two stretches change places."""
    first, second = sorted((_spot(chance, data), _spot(chance, data)))
    size = chance.choice([1, 20, 200])
    return (
        data[:first] + data[second : second + size] + data[first + size : second]
        + data[first : first + size] + data[second + size :]
    )  # fmt: skip


def element(chance: random.Random, data: bytes) -> bytes:
    """An element is gone, doubled, moved, wrapped or emptied."""
    start, end = _match(chance, _ELEMENT, data)
    piece, rest = data[start:end], data[:start] + data[end:]
    choice = chance.randrange(6)
    if choice == 0:
        return rest
    if choice == 1:
        return data[:start] + piece * chance.choice([2, 3, 70]) + data[end:]
    if choice == 2:
        other, _ = _match(chance, _ELEMENT, rest)
        return rest[:other] + piece + rest[other:]
    if choice == 3:
        depth = chance.choice([1, 3, 70])
        return data[:start] + b"<w>" * depth + piece + b"</w>" * depth + data[end:]
    if choice == 4:
        other, past = _match(chance, _ELEMENT, data)
        return data[:start] + data[other:past] + data[end:]
    return data[:start] + re.sub(rb">[^<>]*<", b"><", piece) + data[end:]


def attribute(chance: random.Random, data: bytes) -> bytes:
    """An attribute is gone, doubled, or found on another element."""
    start, end = _match(chance, _ATTRIBUTE, data)
    piece = data[start:end]
    choice = chance.randrange(3)
    if choice == 0:
        return data[:start] + data[end:]
    if choice == 1:
        return data[:end] + piece + data[end:]
    many = b"".join(b' a%d="%d"' % (n, n) for n in range(chance.choice([1, 3, 80])))
    return data[:end] + many + data[end:]


def value(chance: random.Random, data: bytes) -> bytes:
    """A value becomes another one, likely of the right kind for another place."""
    start, end = _match(chance, _VALUE, data)
    if end - start < 2:
        return insert(chance, data)
    other, past = _match(chance, _VALUE, data)
    new = chance.choice([chance.choice(TOKENS), data[other + 1 : max(past - 1, other + 1)], b""])
    return data[: start + 1] + new + data[end - 1 :]


def line(chance: random.Random, data: bytes) -> bytes:
    """A line is gone, doubled, moved, or ends otherwise."""
    start, end = _match(chance, _LINE, data)
    piece, rest = data[start:end], data[:start] + data[end:]
    choice = chance.randrange(5)
    if choice == 0:
        return rest
    if choice == 1:
        return data[:end] + piece + data[end:]
    if choice == 2:
        other, _ = _match(chance, _LINE, rest)
        return rest[:other] + piece + rest[other:]
    if choice == 3:
        return (
            data[:start] + piece.rstrip(b"\r\n") + chance.choice([b"\n", b"\r", b""]) + data[end:]
        )
    return data.replace(b"\r\n", b"\n")


def name(chance: random.Random, data: bytes) -> bytes:
    """An element takes another's name, at both its ends or at one."""
    names = list({match.group(1) for match in _TAG_NAME.finditer(data[:20_000])})
    if not names:
        return insert(chance, data)
    old, new = chance.choice(sorted(names)), chance.choice([*sorted(names), b"x:y", b"Odd"])
    if chance.random() < 0.7:
        return data.replace(b"<" + old, b"<" + new).replace(b"</" + old, b"</" + new)
    return data.replace(b"<" + old, b"<" + new, 1)


def encoding(chance: random.Random, data: bytes) -> bytes:
    """The bytes and what is said about them part ways."""
    choice = chance.randrange(4)
    if choice == 0:
        return data.replace(b"UTF-8", chance.choice([b"UTF-16", b"UTF-7", b"x", b"ISO-8859-1"]))
    if choice == 1:
        start = data.find(b"<?xml")
        if start >= 0:
            wide = (
                data[start:]
                .decode("utf-8", "replace")
                .encode(chance.choice(["utf-16", "utf-16-be"]))
            )
            return data[:start] + wide
        return data
    if choice == 2:
        return data.replace(b"charset=UTF-8", b"charset=" + chance.choice([b"utf-7", b'"x"', b""]))
    return data.replace(b"binary", b"base64").replace(b"8bit", b"quoted-printable")


BLIND = [flip_bits, drop, truncate, repeat, insert, swap]
AWARE = [element, attribute, value, line, name, encoding]


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The message after one to four mishaps."""
    for _ in range(chance.choice([1, 1, 1, 2, 2, 4])):
        way = chance.choice(AWARE if chance.random() < 0.7 else BLIND)
        data = way(chance, data)[:300_000]
    return data

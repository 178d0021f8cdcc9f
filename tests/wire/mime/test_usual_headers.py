"""The short way to read usual MIME headers says what the long way says."""

import random

import pytest

from oncewire.errors import MimeProblem
from oncewire.wire.mime.multipart import PartHeaders, header_lines, parameters
from oncewire.wire.reader import usual_headers

CASES = 3_000
_LINES = [
    b"Content-ID: <a@b>", b"Content-Type: text/xml; charset=UTF-8", b"content-id: <x>",
    b"Content-ID: <a b>", b"Content-Type:  x/y ", b"Content-Type: x/y", b"Content-ID: a@b",
    b"Content-ID: <<a>>", b"Content-Transfer-Encoding: base64", b"Content-Type: \xc3\xa9",
    b"Content-ID: <" + b"x" * 255 + b">", b"Content-ID: <" + b"x" * 256 + b">", b" folded",
    b"Content-ID: <>", b"Content-Type: ", b"CONTENT-TYPE: a/b; c=\"d\"",
]  # fmt: skip


def test_the_first_of_two_parameters_counts() -> None:
    assert parameters('a/b; boundary="first"; Boundary="second"')[1] == {"boundary": "first"}


def test_the_usual_two_headers() -> None:
    chance, short = random.Random(8), 0
    for _ in range(CASES):
        lines = [chance.choice(_LINES) for _ in range(chance.randrange(1, 4))]
        found = usual_headers(b"\r\n".join(lines))
        if found is not None:
            short += 1
            assert found == PartHeaders.of(header_lines(lines)), lines
    assert short > CASES // 200


def test_a_name_that_is_too_long_is_left_to_the_long_way() -> None:
    lines = [b"Content-ID: <" + b"x" * 256 + b">", b"Content-Type: a/b"]
    assert usual_headers(b"\r\n".join(lines)) is None
    with pytest.raises(MimeProblem):
        PartHeaders.of(header_lines(lines))

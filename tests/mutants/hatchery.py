"""A process that has loaded what the product needs, but nothing of the product.

Each mutant wants a fresh interpreter, and most of its time would go into loading lxml,
cryptography and pytest. This one loads them once and forks for every mutant: a line with a
name in, a line of JSON out.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from types import TracebackType

import aiohttp
import apsw
import cryptography.x509
import hypothesis
import lxml.etree

from tests.mutants.collection import ALL
from tests.mutants.run import caught

LOADED = (aiohttp, apsw, cryptography.x509, hypothesis, lxml.etree)


def hatch(name: str) -> dict[str, str | None]:
    """Run the mutant in a child and bring back what noticed it."""
    mutant = next(one for one in ALL if one.name == name)
    return in_a_child(lambda: caught(mutant))


def in_a_child(look: Callable[[], str | None]) -> dict[str, str | None]:
    """Fork, look there, and bring back what was seen: the bug goes with the child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            json.dump(_seen(look), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"caught": None, "problem": "its process died"}


def _seen(look: Callable[[], str | None]) -> dict[str, str | None]:
    with contextlib.redirect_stdout(io.StringIO()), _Trouble() as trouble:
        return {"caught": look(), "problem": None}
    return {"caught": None, "problem": trouble.words}


class _Trouble:
    """Keeps what ended the run, whatever it was."""

    words = ""

    def __enter__(self) -> _Trouble:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if problem is not None:
            self.words = f"{type(problem).__name__}: {problem}"
        return True


def main() -> None:
    """Serve until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        out.write(json.dumps(hatch(line.strip())) + "\n")
        out.flush()


if __name__ == "__main__":
    main()

"""Arguments: what a verb may be given, checked in one place for every way to ask it.

A program calls a verb with whatever it has, and another process writes whatever it likes into the
control socket. Both come through here, so both hear the same: the argument that is wrong, and what
it should be. What a Submission holds checks itself, where it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import BoundArguments
from typing import Any

from oncewire.entry.control.verb import Verb
from oncewire.entry.control.verbs import MEANINGS
from oncewire.errors import InvalidValue
from oncewire.handler.sending.submit import Submission
from oncewire.message.ids import check_text

TEXT_MAX = 4096
"""The longest text that a verb takes: ids are shorter, and a reason needs no more."""


def checked(verb: Verb[..., Any], given: BoundArguments) -> BoundArguments:
    """The arguments as the verb takes them; InvalidValue names the one that is wrong."""
    for argument in verb.arguments:
        if argument.name in given.arguments:
            value = given.arguments[argument.name]
            optional = argument.type.endswith(" | None")
            if not (optional and value is None):
                check = CHECKS[argument.type.removesuffix(" | None")]
                given.arguments[argument.name] = check(argument.name, value)
    return given


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _is_no(name, "str", value, "give it as a text that is not empty")
    return check_text(value, name, TEXT_MAX)


def _whole(name: str, value: Any) -> int:
    # To Python a truth is a number.
    if not isinstance(value, int) or isinstance(value, bool):
        raise _is_no(name, "int", value, "give it as a whole number")
    least = MEANINGS[name].least
    if least is not None and value < least:
        # It means something to whoever writes it: all, or none. Here it has no meaning.
        raise InvalidValue(f"{name} is {value}", remedy=f"give a whole number, {least} or more")
    return int(_within_bounds(name, value))


def _number(name: str, value: Any) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or (isinstance(value, float) and math.isnan(value)):
        raise _is_no(name, "float", value, "give it as a number")
    return _within_bounds(name, value)


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _is_no(name, "bool", value, "say true or false")
    return value


def _submission(name: str, value: Any) -> Submission:
    if not isinstance(value, Submission):
        raise _is_no(name, "Submission", value, "give an oncewire.Submission")
    return value


def _within_bounds(name: str, value: float) -> float:
    meaning = MEANINGS[name]
    if meaning.least is not None:
        value = max(meaning.least, value)
    return value if meaning.most is None else min(meaning.most, value)


def _is_no(name: str, kind: str, value: Any, remedy: str) -> InvalidValue:
    return InvalidValue(f"{name} is no {kind}: {repr(value)[:32]}", remedy=remedy)


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "bool": _truth,
    "Submission": _submission,
}
"""What is checked of each type that an argument may have, under its annotation."""

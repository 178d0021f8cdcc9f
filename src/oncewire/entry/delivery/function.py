"""Delivery to a Python function of your own.

Guarantee: what the function returns counts exactly once. The submissions it returns are stored
in the same commit that confirms the message, so each message has its responses once, whatever
crashes in between. The function itself may be called again if the process dies before that
commit; the message then says `redelivered`, and whatever the function does elsewhere is up to
it, with the MessageId as its key. In order per channel.

It is called as `function(message)` with a `ReceivedMessage`, in a thread if it is a plain
function, and returns nothing or a list of `Submission`s. To raise is to ask for it again. Where
responses on the connection of the request are agreed, the one whose `ref_to_message_id` is the
message's goes back there, if the function returns in time.

Failures of messages that this party sent go to the function's attribute `failed`, if it has one,
at least once; to raise is to be told again.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from oncewire.entry.delivery.received_message import ReceivedMessage, message_of
from oncewire.entry.files import check_folder
from oncewire.entry.party.settings import ApplicationWay, Settings
from oncewire.errors import InvalidValue, NotAllowed, OncewireError
from oncewire.handler.actions import Notice, Submission
from oncewire.handler.delivering.deliver import Application, GivenMessage


def split_name(name: str) -> tuple[str, str]:
    """`package.module:function` as its two halves."""
    module_name, colon, path = name.partition(":")
    if not colon or not path or not module_name:
        raise InvalidValue(
            f"application.function {name[:200]!r} names no function",
            remedy="write it as package.module:function",
        )
    return module_name, path


def find_function(name: str) -> Callable[[ReceivedMessage], Any]:
    """The function that `package.module:function` names."""
    module_name, path = split_name(name)
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidValue(
            f"application.function {name!r} cannot be found: {error}",
            remedy="check the name, and that its folder is in PYTHONPATH",
        ) from None
    except Exception as error:  # noqa: BLE001  (software we do not control)
        raise InvalidValue(
            f"{module_name} cannot be imported: {type(error).__name__}: {error}",
            remedy=f"correct it; `python -c 'import {module_name}'` shows where it breaks",
        ) from None
    if not callable(found):
        raise InvalidValue(f"{name} cannot be called", remedy="name a function")
    return found  # type: ignore[no-any-return]


class Function:
    """An application that is a Python function. See the module for the guarantee."""

    batch = 8

    def __init__(self, function: Callable[[ReceivedMessage], Any]) -> None:
        self._function = function
        self._failed = getattr(function, "failed", None)
        self.hears = callable(self._failed)

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission]:
        """Call it; what it returns is stored with the confirmation."""
        message = message_of(taken)
        answers = await _called(self._function, message)
        if answers is None:
            return ()
        if isinstance(answers, Submission):
            return (answers,)
        found = tuple(answers)
        for answer in found:
            if not isinstance(answer, Submission):
                raise InvalidValue(
                    f"the function returned a {type(answer).__name__}",
                    remedy="return nothing, or a list of Submissions",
                )
        return found

    async def notify(self, notice: Notice) -> None:
        """Call its attribute `failed`; without one (`hears`) the notice waits in the store."""
        if self._failed is not None:
            await _called(self._failed, notice)


async def _called(function: Callable[[Any], Any], what: object) -> Any:
    """What it returns: a plain function is called in a thread, a coroutine function here.

    A function that wants to end the process only refuses: the handler is not its to end.
    """
    try:
        if inspect.iscoroutinefunction(function):
            return await function(what)
        return await asyncio.to_thread(_contained, function, what)
    except (SystemExit, KeyboardInterrupt) as problem:
        raise _left(problem) from None


def _contained(function: Callable[[Any], Any], what: object) -> Any:
    try:
        return function(what)
    except (SystemExit, KeyboardInterrupt) as problem:
        # From a thread it would end the event loop before anybody could look at it.
        raise _left(problem) from None


def _left(problem: BaseException) -> NotAllowed:
    return NotAllowed(
        f"the function raised {type(problem).__name__}",
        remedy="raise an error to be called again; `oncewire stop` ends the handler",
    )


# Which way the settings choose for documents that arrive.


def application_of(settings: Settings) -> Application | None:
    """The application to call; None where it asks by itself (pull)."""
    chosen = settings.application
    if chosen.way is ApplicationWay.DIRECTORY:
        from oncewire.entry.delivery.directory import Directory

        return Directory(settings.path(chosen.folder))
    if chosen.way is ApplicationWay.WEBHOOK:
        from oncewire.entry.delivery.webhook import Webhook

        return Webhook(chosen.url, chosen.secret)
    if chosen.way is ApplicationWay.FUNCTION:
        return Function(find_function(chosen.function))
    return None


def check_choice(settings: Settings) -> Iterator[tuple[str, OncewireError]]:
    """What keeps the chosen way from working, by setting; nothing is called or delivered."""
    chosen = settings.application
    checks: dict[str, Callable[[], object]] = {}
    if chosen.way is ApplicationWay.WEBHOOK:
        from oncewire.entry.delivery.webhook import check_url, secret_bytes

        checks["application.url"] = lambda: check_url(chosen.url)
        checks["application.secret"] = lambda: secret_bytes(chosen.secret)
    elif chosen.way is ApplicationWay.FUNCTION:
        checks["application.function"] = lambda: find_function(chosen.function)
    elif chosen.way is ApplicationWay.DIRECTORY:
        checks["application.folder"] = lambda: check_folder(settings.path(chosen.folder))
    for name, check in checks.items():
        try:
            check()
        except OncewireError as error:
            yield name, error

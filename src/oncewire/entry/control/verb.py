"""Verb: one thing that may be asked of a party, defined once for every way to ask it.

A verb is a method under `@verb`. Its name, its arguments with their types and defaults, what it
returns and its docstring are read from the method; the decorator adds what Python cannot say:
what it needs, whom it is for, and which commands offer it. The control socket, both its ends,
the Python API with and without an event loop and the command line are made from that.

This module is read at every start of the command line, so it imports nothing heavy.
"""

from __future__ import annotations

import functools
import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from oncewire.errors import InvalidValue

if TYPE_CHECKING:
    from inspect import BoundArguments

    from oncewire.store.records import StoredIncoming, StoredOutgoing

P = ParamSpec("P")
R = TypeVar("R")

Body = Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]


class Need(StrEnum):
    """What a verb cannot do without."""

    STORE = "store"
    """The party's store; where no handler runs, the caller opens it."""
    HANDLER = "handler"
    """A handler that runs: something has to be sent or heard before there is an answer."""


class Permission(StrEnum):
    """Whom a verb is for: the roles that a token of the admin port may have. Who may open the
    control socket has all of them."""

    LOOK = "read"
    """Whoever watches: it changes nothing, so asking again is harmless."""
    SUBMIT = "submit"
    """The application that sends."""
    TAKE = "take"
    """The application that receives."""
    OPERATE = "operate"
    """Whoever answers for the party and decides."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a verb, as its signature has it."""

    name: str
    # The annotation as it is written: `str`, `str | None`, `Submission`.
    type: str
    default: Any = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Told:
    """What a command says of a verb's result."""

    facts: Mapping[str, Any]
    sentence: str
    # Whether all is well; if not, the command ends with status 1.
    good: bool = True


def _nothing_to_tell(_result: Any, _sent: StoredOutgoing | None) -> Told:
    return Told({}, "")


@dataclass(frozen=True, slots=True)
class Command:
    """A command that is made from the verb: MessageIds and channels are found by parts of their
    names, the other arguments are options."""

    # As it is typed after `oncewire`: `hold`, `clock accept`.
    name: str
    # What is said when it is done: `held`.
    done: str = ""
    # What its help says, where that is not the verb's docstring.
    help: str = ""
    # Arguments that this command gives by itself.
    fixed: Mapping[str, Any] = field(default_factory=dict)
    # Without a handler it takes effect only when one runs.
    later: bool = False
    # What a person is asked before it is done to a message that arrived here; `--yes` answers it.
    asks: Callable[[StoredIncoming], str] | None = None
    # How a result is told, beside what is stored of the message that it is about, if it was sent
    # from here; where a verb returns nothing, `done` is all.
    tell: Callable[[Any, StoredOutgoing | None], Told] = _nothing_to_tell


@dataclass(frozen=True, slots=True)
class Within:
    """A command that is written by hand offers the verb, as part of more."""

    # As it is typed after `oncewire`: `inbox take`.
    name: str


@dataclass(frozen=True, slots=True)
class NoCommand:
    """No command offers the verb."""

    why: str


Offer = tuple[Command | Within, ...] | NoCommand


class Awaiting(ABC):
    """A face of the verbs whose calls are awaited."""

    @abstractmethod
    async def _perform(
        self, method: Method[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        """Do it, or have it done."""


class Performing(Awaiting):
    """One that may also be given a verb itself: by a caller that has the verb, and not its name."""

    @abstractmethod
    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        """Do it, or have it done."""

    async def _perform(
        self, method: Method[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        return await self.perform(method, method.bound(args, kwargs))


class Blocking(ABC):
    """A face of the verbs whose calls return when they are done."""

    @abstractmethod
    def _perform_blocking(
        self, method: Method[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        """Have it done, and wait for it."""


class Method(Generic[P, R]):
    """A method that is written once and that two faces have: an `Awaiting` one with `await`, a
    `Blocking` one without. Both have the signature and the docstring of its definition."""

    def __init__(self, body: Body[P, R]) -> None:
        self.name: str = body.__name__
        self.body = body
        signature = inspect.signature(body)
        # The signature of a call: without the face that it is a method of.
        self.signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        self._awaited, self._blocking = _awaited(self), _blocking(self)
        kinds = {parameter.kind for parameter in self.signature.parameters.values()}
        self._fixed = inspect.Parameter.VAR_POSITIONAL not in kinds
        # Names of the arguments of calls, by how many come without a name and the other's names.
        self._shapes: dict[tuple[int, tuple[str, ...]], tuple[str, ...]] = {}

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundArguments:
        """The arguments of a call by their names, as `inspect` finds them; it is asked once for
        all calls that are alike, for it takes longer than many a verb."""
        shape = len(args), tuple(kwargs)
        names = self._shapes.get(shape)
        if names is not None:
            values = zip(names, (*args, *kwargs.values()), strict=True)
            return inspect.BoundArguments(self.signature, dict(values))
        given = self.signature.bind(*args, **kwargs)
        if self._fixed:
            self._shapes[shape] = (*list(self.signature.parameters)[: len(args)], *kwargs)
        return given

    @overload
    def __get__(self, face: None, kind: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, face: Blocking, kind: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, face: Awaiting, kind: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, face: object, kind: type) -> Any:
        # Real functions, so that `help` and completion find what they know.
        function = self._blocking if Blocking in kind.__mro__ else self._awaited
        return function if face is None else types.MethodType(function, face)


def _awaited(method: Method[P, R]) -> Callable[..., Coroutine[Any, Any, R]]:
    @functools.wraps(method.body)
    async def call(self: Awaiting, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._perform(method, args, kwargs)

    return call


def _blocking(method: Method[P, R]) -> Callable[..., R]:
    @functools.wraps(method.body)
    def call(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._perform_blocking(method, args, kwargs)

    return call


class Verb(Method[P, R]):
    """One verb."""

    def __init__(
        self, body: Body[P, R], needs: Need, permission: Permission, offered: Offer
    ) -> None:
        super().__init__(body)
        self.needs, self.permission, self.offered = needs, permission, offered
        self.help = inspect.getdoc(body) or ""
        self.arguments = tuple(
            Argument(parameter.name, str(parameter.annotation), parameter.default)
            for parameter in self.signature.parameters.values()
        )
        self.returns = str(self.signature.return_annotation)

    @property
    def commands(self) -> tuple[Command | Within, ...]:
        """The commands that offer it."""
        return () if isinstance(self.offered, NoCommand) else self.offered

    def bind(self, values: Mapping[str, Any]) -> BoundArguments:
        """Arguments by name, as a call has them; InvalidValue names what is wrong."""
        takes = ", ".join(argument.name for argument in self.arguments) or "none"
        known = {argument.name for argument in self.arguments}
        for name in values:
            if name not in known:
                raise InvalidValue(
                    f"{self.name} has no argument {name[:32]!r}",
                    remedy=f"its arguments: {takes}; use the same version of Oncewire for the "
                    "handler and for commands",
                )
        for argument in self.arguments:
            if argument.required and argument.name not in values:
                raise InvalidValue(
                    f"{self.name}: {argument.name} is missing", remedy=f"give {argument.name}"
                )
        return self.signature.bind(**values)


def verb(
    needs: Need, permission: Permission, *offered: Command | Within | NoCommand
) -> Callable[[Body[P, R]], Verb[P, R]]:
    """Make a method a verb. It is offered by at least one command, or says why by none."""

    def define(body: Body[P, R]) -> Verb[P, R]:
        commands = tuple(offer for offer in offered if not isinstance(offer, NoCommand))
        without = [offer for offer in offered if isinstance(offer, NoCommand)]
        if len(without) + bool(commands) != 1:
            raise TypeError(f"{body.__name__}: name its commands, or say why it has none")
        found: Verb[P, R] = Verb(body, needs, permission, without[0] if without else commands)
        if not found.help.partition("\n")[0].endswith((".", ":")):
            raise TypeError(f"{body.__name__}: its docstring begins with no sentence of help")
        return found

    return define


def verbs_of(face: type) -> dict[str, Verb[..., Any]]:
    """Every verb of a face, by name, in the order of definition."""
    return {
        name: value
        for kind in reversed(face.__mro__)
        for name, value in vars(kind).items()
        if isinstance(value, Verb)
    }

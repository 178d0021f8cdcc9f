"""Quick: frozen values that every message makes many of, made in less than half the time.

A frozen dataclass sets each of its fields past its own lock, which takes longer than everything
else that making it takes. A quick one is made as a value of its open twin, which has the same slots
and no lock, and then becomes what it is: Python lets a value change its class where both have the
same slots. Nobody ever holds an open one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

T = TypeVar("T")

_twins: dict[type, Callable[[Any], Any]] = {}
"""How an open twin is made of a value, by the value's class."""


def quick(kind: type[T]) -> type[T]:
    """Let a frozen dataclass with slots be made quickly. Its fields are given to it in order and
    have plain defaults; nobody else's `__init__` calls its own."""
    own: tuple[str, ...] = kind.__slots__  # type: ignore[attr-defined]
    body = {"__slots__": own, "__setattr__": object.__setattr__, "__module__": kind.__module__}
    known: dict[str, Any] = {
        "become": object.__setattr__,
        "new": object.__new__,
        "Kind": kind,
        "Open": type(f"Open{kind.__name__}", kind.__bases__, body),
    }
    given, names = ["self"], []
    for field in fields(kind):  # type: ignore[arg-type]
        if not field.init or field.kw_only or field.default_factory is not MISSING:
            raise TypeError(f"{kind.__name__}.{field.name} is not given in order")
        names.append(field.name)
        known[f"default_{field.name}"] = field.default
        plain = field.default is MISSING
        given.append(field.name if plain else f"{field.name}=default_{field.name}")
    checks = ["self.__post_init__()"] if hasattr(kind, "__post_init__") else []
    made = [
        f"def __init__({', '.join(given)}):",
        "become(self, '__class__', Open)",
        *(f"self.{name} = {name}" for name in names),
        "self.__class__ = Kind",
        *checks,
    ]
    twin = ["def twin(value):", "made = new(Open)", *(f"made.{n} = value.{n}" for n in names)]
    source = "\n    ".join(made) + "\n" + "\n    ".join([*twin, "return made"])
    exec(compile(source, f"<{kind.__qualname__}>", "exec"), known)  # noqa: S102 - as dataclasses do
    init: Any = known["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    init.__annotations__ = kind.__init__.__annotations__
    kind.__init__ = init  # type: ignore[method-assign]
    _twins[kind] = known["twin"]
    return kind


def opened(value: T) -> Any:
    """An open twin of a quick value; None: it is none. Whoever asks for it closes it again, by
    giving it the class of the value."""
    twin = _twins.get(type(value))
    return None if twin is None else twin(value)


# Variant: a frozen value with some of its fields changed.


def variant(value: T, **changes: object) -> T:
    """What `dataclasses.replace` gives, and as strict, in a fraction of its time where the value is
    a quick one: for those that every message changes several of."""
    made = opened(value)
    if made is None:
        return replace(value, **changes)  # type: ignore[type-var]
    for name, change in changes.items():
        setattr(made, name, change)
    made.__class__ = type(value)
    if hasattr(made, "__post_init__"):
        made.__post_init__()
    closed: T = made
    return closed

"""A quick value is the frozen dataclass it was, only sooner."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from oncewire.errors import InvalidValue
from oncewire.message import Header, Party, Service
from oncewire.message.quick import quick, variant
from oncewire.protocol.notes import Submitted


@quick
@dataclass(frozen=True, slots=True)
class Parcel:
    weight: int
    label: str = "fragile"
    stamps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise InvalidValue("a parcel weighs nothing", remedy="weigh it")


HEADER = Header(Party.of("urn:a"), Party.of("urn:b"), "cpa", "talk", Service("urn:s"), "Do", "m", 7)


def test_it_is_made_compared_and_shown_as_any_other() -> None:
    parcel = Parcel(3, stamps=("red",))
    assert (parcel.weight, parcel.label, parcel.stamps) == (3, "fragile", ("red",))
    assert type(parcel) is Parcel
    assert parcel == Parcel(3, "fragile", ("red",))
    assert hash(parcel) == hash(Parcel(3, "fragile", ("red",)))
    assert repr(parcel) == "Parcel(weight=3, label='fragile', stamps=('red',))"
    assert replace(parcel, weight=4) == variant(parcel, weight=4) == Parcel(4, stamps=("red",))


def test_nobody_changes_it() -> None:
    parcel = Parcel(3)
    for name in ("weight", "label"):
        with pytest.raises(FrozenInstanceError):
            setattr(parcel, name, 5)
        with pytest.raises(FrozenInstanceError):
            delattr(parcel, name)
        with pytest.raises(FrozenInstanceError):
            setattr(variant(parcel, weight=4), name, 5)


def test_what_is_wrong_with_it_is_found_as_before() -> None:
    with pytest.raises(InvalidValue):
        Parcel(-1)
    with pytest.raises(InvalidValue):
        variant(Parcel(1), weight=-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'weight'"):
        Parcel()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Parcel(1, colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [HEADER, Submitted("a", "b", "c", "d", "e", "f"), Parcel(3)])
def test_it_is_copied_and_carried_to_other_processes(value: object) -> None:
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


def test_what_is_not_given_in_order_cannot_be_quick() -> None:
    @dataclass(frozen=True, slots=True)
    class Late:
        weight: int
        found: list[int] = field(default_factory=list)

    with pytest.raises(TypeError, match=r"Late\.found"):
        quick(Late)

"""Ids, free text and parties are checked where they are made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.errors import InvalidValue
from oncewire.message.form import ID_LENGTH_MAX
from oncewire.message.ids import Party, PartyId, Service, check_id, check_text, is_uri


@pytest.mark.requirement("RM-10")
@pytest.mark.parametrize("value", ["m", "20001209-133003-28572@example.com", "x" * ID_LENGTH_MAX])
def test_an_ordinary_id_passes_unchanged(value: str) -> None:
    assert check_id(value, "MessageId") == value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "MessageId is empty"),
        ("  \t", "MessageId is empty"),
        ("x" * (ID_LENGTH_MAX + 1), "has 256 characters, more than 255"),
        ("a\nb", "control character"),
        ("a\x00b", "control character"),
        ("a\x85b", "control character"),
        ("a\u2028b", "control character"),
        ("a\ud800b", "control character"),
    ],
)
def test_a_bad_id_is_refused_by_its_name(value: str, says: str) -> None:
    with pytest.raises(InvalidValue, match=says) as caught:
        check_id(value, "MessageId")
    assert caught.value.remedy


@given(st.text(max_size=300))
def test_an_accepted_id_is_one_short_line(value: str) -> None:
    try:
        check_id(value, "id")
    except InvalidValue:
        return
    assert len(value) <= ID_LENGTH_MAX
    assert len(value.splitlines()) == 1
    value.encode()


def test_free_text_may_have_lines_but_nothing_xml_cannot_carry() -> None:
    assert check_text("a\r\n\tb", "Description") == "a\r\n\tb"
    for char in "\x00\x0b\x1f\ud800\ufffe\uffff":
        with pytest.raises(InvalidValue, match="XML cannot carry"):
            check_text(f"a{char}", "Description")
    with pytest.raises(InvalidValue, match="5 characters, more than 4") as caught:
        check_text("12345", "Description", 4)
    assert caught.value.remedy == "shorten Description"


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("urn:duns:123", True),
        ("http://example.com/x", True),
        ("mailto:a@example.com", True),
        ("bare", False),
        ("has space: x", False),
        ("urn:with space", False),
        (":x", False),
        ("urn:", False),
    ],
)
def test_a_uri_is_told_from_a_bare_word(value: str, answer: bool) -> None:
    assert is_uri(value) is answer


@pytest.mark.requirement("HDR-1")
def test_a_party_is_named_by_a_value_and_its_type() -> None:
    assert str(PartyId("123456789", "urn:duns")) == "urn:duns:123456789"
    assert str(PartyId("urn:buyer")) == "urn:buyer"
    assert str(Party.of("b", "urn:x", role="Buyer")) == "urn:x:b"


def test_several_ids_of_one_party_are_equivalent() -> None:
    one = Party((PartyId("a"), PartyId("b")))
    assert one.shares_id_with(Party.of("b"))
    assert not one.shares_id_with(Party.of("b", "urn:other"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: PartyId(""),
        lambda: PartyId("a", ""),
        lambda: Party(()),
        lambda: Party.of("a", role="\n"),
        lambda: Service(""),
        lambda: Service("a", "\x00"),
    ],
)
def test_a_nameless_party_or_service_is_refused(make: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()  # type: ignore[operator]
    assert caught.value.remedy


def test_a_service_shows_its_type() -> None:
    assert str(Service("orders", "bpid")) == "bpid:orders"
    assert str(Service("urn:orders")) == "urn:orders"

"""What the messages of an agreement have in common is written once, and never for another one."""

import pytest
from msgspec.structs import replace

from oncewire.errors import InvalidValue
from oncewire.message import Dialect, Header, Party, Service
from oncewire.wire import codec
from oncewire.wire.xml import slotted
from oncewire.wire.xml.slotted import Templates
from tests.wire import samples

EACH = pytest.mark.parametrize("dialect", list(Dialect))


@EACH
def test_other_parties_agreements_services_and_actions_are_written_as_they_are(
    dialect: Dialect,
) -> None:
    message = samples.order_message(dialect)
    said = message.header
    others = [
        said,
        replace(said, from_party=Party.of("urn:x:other")),
        replace(said, to_party=Party.of("urn:x:other")),
        replace(said, cpa_id="other"),
        replace(said, action="Other"),
        replace(said, service=Service("urn:x:other")),
        replace(said, service=Service("other", "of a type")),
        said,
    ]
    form = samples.form(dialect)
    for header in [*others, *others]:
        written = codec.write(replace(message, header=header), form)
        found = codec.read(written).message.header
        assert (found.from_party, found.to_party) == (header.from_party, header.to_party)
        assert (found.cpa_id, found.service, found.action) == (
            header.cpa_id,
            header.service,
            header.action,
        )


def _counted() -> tuple[Templates, list[Header]]:
    written: list[Header] = []

    def write(header: Header) -> tuple[str, str]:
        if header.action == "Wrong":
            raise InvalidValue("it is wrong", remedy="right it")
        written.append(header)
        return f"<{header.from_party}", f"{header.action}>"

    return Templates(write), written


def test_it_is_written_once() -> None:
    templates, written = _counted()
    header = samples.order_message(Dialect.EBMS2).header
    first = templates.of(header)
    assert templates.of(replace(header, message_id="another")) == first
    # The same party in the same role, made anew.
    party = Party(header.from_party.ids, header.from_party.role)
    assert templates.of(replace(header, from_party=party)) == first
    assert len(written) == 1
    assert templates.of(replace(header, from_party=Party(party.ids, "Other role"))) == first
    assert len(written) == 2


def test_what_may_not_be_written_is_refused_each_time() -> None:
    templates, _ = _counted()
    header = replace(samples.order_message(Dialect.EBMS2).header, action="Wrong")
    for _ in range(2):
        with pytest.raises(InvalidValue):
            templates.of(header)


def test_the_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slotted, "TEMPLATES_MAX", 3)
    templates, written = _counted()
    header = samples.order_message(Dialect.EBMS2).header
    for number in range(20):
        # Parties that nothing else holds: the next one may lie where the last one lay.
        other = replace(header, from_party=Party.of(f"urn:x:{number}"))
        assert templates.of(other)[0] == f"<urn:x:{number}"
    assert len(written) == 20
    assert len(templates._known) <= 3

"""Our tables give the verdict of the official schema, on real messages and on broken ones."""

import copy
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from oncewire.errors import EbxmlError, SoapFault
from oncewire.message.form import Dialect, Validation
from oncewire.wire import codec, schema
from oncewire.wire.codec import Parcel, ReadFault
from oncewire.wire.ebms2.blocks import EB, ENVELOPE, XLINK
from oncewire.wire.inspection import open_capture
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.xml import parse
from tests.examples import examples
from tests.wire import samples
from tests.wire.roots import envelope_of
from tests.wire.samples import ACK_REQUESTED, MESSAGE_HEADER, corpus_bytes, corpus_messages, soap
from tests.wire.strategies import messages

MUTATIONS_PER_MESSAGE = 60


def _official(corpus: Path) -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(str(corpus / "ebms-core/xsd/msg-header-2_0.xsd")))


def _envelopes(corpus: Path) -> list[etree._Element]:
    found = []
    for name in corpus_messages(corpus):
        try:
            data = envelope_of(open_capture(corpus_bytes(corpus, name)).parcel)
            root = parse(data, None, DEFAULT_LIMITS)
        except (EbxmlError, ReadFault):
            continue
        if root.tag == ENVELOPE:
            found.append(root)
    return found


def test_the_same_verdict_on_every_corpus_message(corpus: Path) -> None:
    official = _official(corpus)
    verdicts = set()
    for root in _envelopes(corpus):
        valid = official.validate(root)
        verdicts.add(valid)
        assert (schema.problems(root, Dialect.EBMS2) == ()) is valid, etree.tostring(root)[:300]
    assert verdicts == {True, False}


def _mutate(root: etree._Element, chance: random.Random) -> None:
    """Break, or change harmlessly, one thing that the tables speak of."""
    ours = list(root.iter(f"{{{EB}}}*"))
    element = chance.choice(ours)
    parent = element.getparent()
    names = ["MessageId", "PartyId", "Role", "Error", "Reference", "Description", "Invented"]
    kind = chance.randrange(11)
    if kind == 0 and parent is not None:
        parent.remove(element)
    elif kind == 1 and parent is not None:
        parent.insert(parent.index(element), copy.deepcopy(element))
    elif kind == 2 and parent is not None and element.getnext() is not None:
        element.getnext().addnext(element)
    elif kind == 3 and element.attrib:
        del element.attrib[chance.choice(list(element.attrib))]
    elif kind == 4 and element.attrib:
        values = ["", "1", "true", "Error", "Odd", "2.0", "9a", "http://x", "en", " 0 "]
        element.set(chance.choice(list(element.attrib)), chance.choice(values))
    elif kind == 5:
        element.set(chance.choice(["plain", f"{{{EB}}}odd", "{urn:x}y", f"{{{EB}}}id"]), "v1")
    elif kind == 6:
        texts = ["", " ", "x", "0007", "-1", "2026-01-05T10:00:00Z", "2026-1-5", "24:00"]
        element.text = chance.choice(texts)
    elif kind == 7:
        element.append(etree.Element(f"{{{EB}}}{chance.choice(names)}"))
    elif kind == 8:
        element.insert(0, etree.Element("{urn:x}Foreign"))
    elif kind == 9:
        element.append(etree.Element("NoNamespace"))
    elif kind == 10:
        element.tail = chance.choice(["", "stray", "\n"])


def test_the_same_verdict_on_thousands_of_mutations(corpus: Path) -> None:
    seed = 20260105
    print(f"seed {seed}")
    chance = random.Random(seed)
    official = _official(corpus)
    judged = {True: 0, False: 0}
    for root in _envelopes(corpus):
        if root.find(f".//{{{EB}}}MessageHeader") is None:
            continue
        for _ in range(MUTATIONS_PER_MESSAGE):
            broken = copy.deepcopy(root)
            for _ in range(chance.choice([1, 1, 2])):
                _mutate(broken, chance)
            valid = official.validate(broken)
            judged[valid] += 1
            ours = schema.problems(broken, Dialect.EBMS2)
            assert (ours == ()) is valid, (
                ours,
                str(official.error_log),
                etree.tostring(broken).decode(),
            )
    assert judged[True] > 300
    assert judged[False] > 1000


@settings(max_examples=examples(40))
@given(st.data())
def test_the_same_verdict_on_what_we_write(corpus: Path, data: st.DataObject) -> None:
    message = data.draw(messages(Dialect.EBMS2))
    root = etree.fromstring(codec.write_envelope(message, samples.form(Dialect.EBMS2)))
    assert schema.problems(root, Dialect.EBMS2) == ()


def test_a_problem_says_where_and_what() -> None:
    root = etree.fromstring(soap(MESSAGE_HEADER.replace("<eb:Action>PlaceOrder</eb:Action>", "")))
    (problem,) = schema.problems(root, Dialect.EBMS2)
    assert problem.startswith("line 1: Element 'MessageData'")
    assert "Action" in problem
    assert "{" not in problem


INVALID = soap(MESSAGE_HEADER + ACK_REQUESTED.replace('Understand="1"', 'Understand="true"'))


def test_a_breach_is_reported_enforced_or_ignored() -> None:
    parcel = Parcel("text/xml", INVALID)
    reported = codec.read(parcel, validation=Validation.REPORT)
    assert len(reported.schema_problems) == 1
    assert codec.read(parcel, validation=Validation.OFF).schema_problems == ()
    with pytest.raises(ReadFault) as caught:
        codec.read(parcel, validation=Validation.ENFORCE)
    assert isinstance(caught.value.error, SoapFault)
    assert caught.value.known.message_id == "m-1@alpha.example"


def test_the_number_of_problems_is_bounded() -> None:
    blocks = ACK_REQUESTED.replace('eb:signed="false"', "") * 50
    root = etree.fromstring(soap(MESSAGE_HEADER + blocks))
    assert len(schema.problems(root, Dialect.EBMS2)) == schema.PROBLEMS_MAX


def test_the_tables_name_xlink_by_its_namespace() -> None:
    body = (
        '<eb:Manifest eb:version="2.0"><eb:Reference xlink:type="odd" xlink:href="x"/>'
        "</eb:Manifest>"
    )
    root = etree.fromstring(soap(MESSAGE_HEADER, body))
    assert root.nsmap["xlink"] == XLINK
    assert schema.problems(root, Dialect.EBMS2)

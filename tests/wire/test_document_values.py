"""Values in documents: what a path finds, what it refuses to mean, and hostile documents."""

from __future__ import annotations

import pytest

from oncewire.errors import InvalidValue
from oncewire.message.document_path import DocumentPath
from oncewire.wire import document_values
from oncewire.wire.document_values import VALUES_MAX, values_in

ORDER = (
    b'<?xml version="1.0"?><o:orders xmlns:o="urn:orders" xmlns:x="urn:x"><o:order id="4711" '
    b'x:ref="r"><o:line><sku> a-1 </sku></o:line><sku>a-2</sku></o:order><order id="4712"/>'
    b"</o:orders>"
)


def _values(path: str, data: bytes = ORDER, media_type: str = "application/xml") -> list[str]:
    return [value for _, value in values_in(data, media_type, [DocumentPath(path)])]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("//order/@id", ["4711", "4712"]),
        ("/orders/order/@id", ["4711", "4712"]),
        ("/o:orders/o:order/@x:ref", ["r"]),
        ("/order/@id", []),
        ("//@id", ["4711", "4712"]),
        ("//sku", ["a-1", "a-2"]),
        ("//sku/text()", ["a-1", "a-2"]),
        ("/orders//line/*", ["a-1"]),
        ("/*/*/sku", ["a-2"]),
        ("//order//sku", ["a-1", "a-2"]),
    ],
)
def test_a_path_finds_values_in_xml(path: str, values: list[str]) -> None:
    assert _values(path) == values


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/order/id", ["4711"]),
        ("/order/lines/1/sku", ["b"]),
        ("/order/lines/7/sku", []),
        ("/a~1b", ["slash"]),
        ("/paid", ["true"]),
        ("/order", []),
        ("//order/@id", []),
    ],
)
def test_a_pointer_finds_a_value_in_json(path: str, values: list[str]) -> None:
    text = (
        b'{"order": {"id": 4711, "lines": [{"sku": "a"}, {"sku": "b"}]}, "a/b": "slash", '
        b'"paid": true}'
    )
    assert _values(path, text, "application/json; charset=utf-8") == values


@pytest.mark.parametrize(
    "path",
    ["", "order", "//", "/~2", "//order[@id]", "//order[1]/@id", "count(//a)", "//ancestor::a/b[1]",
     "//a | //b", "/" + "a/" * 20 + "b", "/" + "a" * 300, "//a/@b/c", "//a\n//b"],
)  # fmt: skip
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        DocumentPath(path)
    assert refused.value.remedy


def test_hostile_documents_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    whole = document_values.local_name

    def counted(element: document_values.Element) -> str:
        nonlocal looked_at
        looked_at += 1
        return whole(element)

    monkeypatch.setattr(document_values, "local_name", counted)
    bomb = b'<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a id="1">&c;</a>'
    hostile = {
        "matches": b"<a>" + b'<a id="1"/>' * 900 + b"</a>",
        "a million matches": b"<a>" + b"<a/>" * 1_000_000 + b"</a>",
        "deep": b"<a>" * 60 + b"</a>" * 60,
        "too deep": b"<a>" * 20_000 + b"</a>" * 20_000,
        "entities": bomb,
        "broken": b"<a><b>",
        "no bytes": b"",
        "not utf-8": b"<a>\xff\xfe</a>",
    }
    path = DocumentPath("//a//a//a//a//a//*//a//@id")
    found = {name: values_in(data, "text/xml", [path] * 8) for name, data in hostile.items()}
    assert looked_at < 1_000
    assert {name for name, values in found.items() if values} == set()
    assert len(values_in(hostile["matches"], "text/xml", [DocumentPath("//@id")])) == VALUES_MAX
    for data in (b"[" * 100_000, b'{"a": "\\ud800"}', b'{"a": NaN}', b"\xff", b'{"a": 1e999999}'):
        assert len(values_in(data, "application/json", [DocumentPath("/a")])) <= 1

"""The admin port, called as programs and strangers call it."""

import json

import httpx
import pytest

from oncewire.entry.control.verb import Permission
from tests.entry.admin.conftest import Rest

pytestmark = pytest.mark.process

READ, SUBMIT, TAKE, OPERATE = (
    Permission.LOOK, Permission.SUBMIT, Permission.TAKE, Permission.OPERATE,
)  # fmt: skip


def test_a_document_is_submitted_taken_and_confirmed(rest: Rest) -> None:
    sent = rest.call(
        SUBMIT, "POST", "/messages?to=globex&file_name=o.xml", content=b"<order/>",
        headers={"Content-Type": "application/xml", "Idempotency-Key": "order-17"},
    )  # fmt: skip
    assert sent.status_code == 201, sent.text
    message_id = sent.json()["result"]["message_id"]
    waited = rest.call(READ, "GET", f"/messages/{message_id}/wait?timeout=30")
    assert waited.json() == {"result": "delivered"}
    again = rest.call(
        SUBMIT, "POST", "/messages?to=globex&file_name=o.xml", content=b"<order/>",
        headers={"Content-Type": "application/xml", "Idempotency-Key": "order-17"},
    )  # fmt: skip
    assert (again.status_code, again.json()) == (201, sent.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    other = rest.call(
        SUBMIT, "POST", "/messages?to=globex", content=b"<other/>",
        headers={"Content-Type": "application/xml", "Idempotency-Key": "order-17"},
    )  # fmt: skip
    assert (other.status_code, other.json()["type"]) == (422, "urn:oncewire:problem:key-reused")
    content = rest.call(TAKE, "GET", f"/messages/{message_id}/payloads/1")
    assert (content.content, content.headers["content-type"]) == (b"<order/>", "application/xml")
    part = rest.call(
        TAKE, "GET", f"/messages/{message_id}/payloads/1", headers={"Range": "bytes=1-5"}
    )
    assert (part.status_code, part.content) == (206, b"order")
    rows = [json.loads(line) for line in rest.call(READ, "GET", "/journal").text.splitlines()]
    submitted = next(row for row in rows if row["kind"] == "submitted")
    assert json.loads(submitted["detail"])["by"] == "submit"

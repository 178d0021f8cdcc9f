"""`agreement show`: every value is there, with its origin."""

import json
from pathlib import Path

from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.keys import KEYS, rows
from oncewire.agreement.toml import read_toml
from tests.agreement import samples


def test_every_value_is_shown_with_its_origin() -> None:
    text = samples.toml(
        "digikoppeling-osb-rm",
        '[delivery]\nretries = 4\n[via]\nparty_id = "hub"\nhttp = "https://hub.example/"\n'
        "retries = 1\nretry_interval = 2\nsync_timeout = 3\n",
        top="start = 2026-01-01",
    )
    shown = rows(read_toml(text, name="alpha.toml"))
    by_key = {row.key: row for row in shown if row.scope == "agreement"}
    assert set(KEYS) <= set(by_key)
    assert (by_key["delivery.retries"].value, by_key["delivery.retries"].origin) == ("4", "file")
    assert by_key["delivery.retries"].where == "alpha.toml"
    assert by_key["delivery.retry_interval"].value == "PT3H"
    assert by_key["delivery.retry_interval"].where == "digikoppeling-osb-rm"
    assert by_key["delivery.timeout"].origin == "default"
    assert by_key["ack.request"].says
    assert by_key["start"].value == "2026-01-01T00:00:00Z"
    assert by_key["partner.addresses"].value == "http https://alpha.example/msh"
    assert by_key["via"].value == (
        "hub, http https://hub.example/, gives up after PT4S, waits PT3S for a synchronous reply"
    )
    assert by_key["end"].value == "none"
    assert by_key["delivery.time_to_live"].value == "none"


def test_what_differs_is_shown_where_it_holds() -> None:
    shown = rows(
        samples.agreement(
            rest="""
            [[actions]]
            direction = "receive"
            [actions.delivery]
            retries = 7
            [[actions]]
            service = "urn:ex:orders"
            action = "Place"
            direction = "send"
            role = "Buyer"
            http = {error = "https://alpha.example/e"}
            [actions.sync]
            mode = "mshSignalsOnly"
            """
        )
    )
    apart = {(row.scope, row.key): row.value for row in shown if row.scope != "agreement"}
    assert apart == {
        ("receive: any message", "delivery.retries"): "7",
        ("send: urn:ex:orders / Place", "from_role"): "Buyer",
        ("send: urn:ex:orders / Place", "addresses"): "http https://alpha.example/e (error)",
        ("send: urn:ex:orders / Place", "sync.mode"): "mshSignalsOnly",
    }


def test_rows_are_json_and_show_no_certificate_in_full(corpus: Path) -> None:
    path = corpus / "ebms-core/cpa/cpaStubEBF.rm.https.signed.encrypted.xml"
    shown = rows(read_cpa(path.read_bytes(), own="Logius"))
    text = json.dumps([row.as_dict() for row in shown])
    assert "sha256:" in text
    assert "MIID" not in text
    assert "BEGIN CERTIFICATE" not in text
    assert {row.origin for row in shown} == {"CPA", "profile", "default"}

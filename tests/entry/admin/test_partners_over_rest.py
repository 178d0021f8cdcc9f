"""Invitations, partners' files and keys over the admin port."""

import json
import shutil
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from oncewire.entry.admin.routes import Meeting
from oncewire.entry.admin.server import admin_port
from oncewire.entry.control.verb import Permission
from oncewire.entry.party.folder import FILE_MAX, card_of
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.errors import TransportProblem
from tests.entry.admin.conftest import Rest
from tests.entry.served import Served
from tests.ports import free_port

pytestmark = pytest.mark.process

OPERATE = Permission.OPERATE
WEAK = {"insecure": "true"}


@pytest.fixture
def sides(pattern: Path, tmp_path: Path) -> Iterator[tuple[Rest, Rest]]:
    """acme and globex run, each with an admin port, and know nothing of each other."""
    folder = tmp_path / "parties"
    shutil.copytree(pattern, folder)
    for name in ("acme", "globex"):
        file = folder / name / "oncewire.toml"
        said = {"http.port": str(free_port()), "log.file": '"data/handler.log"'}
        file.write_text(with_values(file.read_text(), said))
    with Served(folder, "acme", "globex") as served:
        doors, found = [], []
        try:
            for name in ("acme", "globex"):
                flags = {"admin.port": free_port()}
                settings = load(folder / name, environ={}, flags=flags).settings
                doors.append(admin_port(settings, flags))
                served.do(doors[-1].__aenter__())
                found.append(Rest(settings, served))
            yield found[0], found[1]
        finally:
            for door in doors:
                served.do(door.__aexit__(None, None, None))


def _invited(rest: Rest, **given: object) -> bytes:
    answer = rest.call(OPERATE, "POST", "/invite", json={"insecure": True, "sign": True, **given})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/toml"
    assert "attachment" in answer.headers["content-disposition"]
    return answer.content


def _taken(rest: Rest, file: bytes) -> dict[str, object]:
    """Look at a file, then have it written."""
    seen = rest.call(OPERATE, "POST", "/accept", content=file, params=WEAK)
    assert seen.status_code == 200, seen.text
    shown = seen.json()["result"]
    assert shown["written"] is False
    done = rest.call(
        OPERATE, "POST", "/accept", content=file, params=WEAK | {"digest": shown["digest"]}
    )
    assert done.status_code == 200, done.text
    found: dict[str, object] = done.json()["result"]
    assert {name: found[name] for name in shown if name != "written"} == {
        name: shown[name] for name in shown if name != "written"
    }
    return found


def _files(rest: Rest) -> dict[str, bytes]:
    """Agreements, certificates and keys of a party."""
    folder = rest.settings.folder
    places = [*(folder / "agreements").rglob("*"), *(folder / "keys").rglob("*")]
    return {str(each): each.read_bytes() for each in places if each.is_file()}


def _pings(rest: Rest, partner: str) -> bool:
    answer = rest.call(OPERATE, "POST", "/ping", json={"partner": partner})
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["result"])


def test_two_parties_meet_over_rest_and_are_known_at_once(sides: tuple[Rest, Rest]) -> None:
    acme, globex = sides
    invitation = _invited(acme, ordered=True, profile="window")
    seen = globex.call(OPERATE, "POST", "/accept", content=invitation, params=WEAK).json()["result"]
    assert _files(globex).keys() == {
        name for name in _files(globex) if "partners" not in name and "agreements" not in name
    }
    assert (seen["kind"], seen["party_id"]) == ("invitation", "urn:oncewire:party:acme")
    assert seen["address"] == acme.settings.endpoint_url
    assert seen["fingerprints"] == [card_of(acme.settings).fingerprint]
    assert seen["agreement"]["profile"] == "window"
    assert seen["agreement"]["tls"] is False
    accepted = _taken(globex, invitation)
    assert accepted["file_name"] == "globex-acme.acceptance.toml"
    assert _taken(acme, str(accepted["acceptance"]).encode())["kind"] == "acceptance"
    assert _pings(acme, "globex")
    assert _pings(globex, "acme")
    assert [_told(each) for each in sides] == [
        [
            ("an invitation was written", "operate"),
            ("the acceptance of a partner was taken", "operate"),
        ],
        [("the invitation of a partner was taken", "operate")],
    ]


def _told(rest: Rest) -> list[tuple[str, str]]:
    """What the log says of who did something."""
    lines = (rest.settings.folder / "data" / "handler.log").read_text().splitlines()
    rows = [json.loads(line) for line in lines if '"by"' in line]
    return [(row["event"], row["by"]) for row in rows]


def test_a_file_that_is_wrong_swapped_or_hostile_changes_nothing(sides: tuple[Rest, Rest]) -> None:
    acme, globex = sides
    file, other = _invited(acme), _invited(acme)
    digest = globex.call(OPERATE, "POST", "/accept", content=file, params=WEAK).json()["result"][
        "digest"
    ]
    before = _files(globex)
    text = file.decode()
    refused = {
        "swapped": (other, {"digest": digest}, 409),
        "no digest of anything": (file, {"digest": "x"}, 409),
        "weak": (file, {"insecure": "false"}, 409),
        "no bool": (file, {"replace": "maybe"}, 422),
        "no option": (file, {"evil": "1"}, 422),
        "empty": (b"", {}, 422),
        "no UTF-8": (b"\xff" + file, {}, 422),
        "no TOML": (b"<script>alert(1)</script>", {}, 422),
        "another name": (text.replace('name = "acme"', 'name = "../acme"').encode(), {}, 422),
        "no address": (text.replace("http://", "javascript://").encode(), {}, 422),
        "another key": (text.replace('fingerprint = "', 'fingerprint = "00').encode(), {}, 422),
        "no profile": (text.replace('"ebms2"', '"none"').encode(), {}, 422),
        "more than it should have": (f"evil = 1\n{text}".encode(), {}, 422),
        "deep": (b"a = " + b"[" * 5_000 + b"]" * 5_000, {}, 422),
        "a card of a stranger": (acme.call(OPERATE, "GET", "/card").content, {}, 404),
        "itself": (_invited(globex), {}, 422),
        "large": (b"#" * (FILE_MAX + 1), {}, 413),
    }  # fmt: skip
    for what, (content, given, status) in refused.items():
        before |= {name: data for name, data in _files(globex).items() if "invitations" in name}
        for more in ({}, {"digest": _digest(content)}) if "digest" not in given else ({},):
            answer = globex.call(
                OPERATE, "POST", "/accept", content=content, params=WEAK | given | more
            )
            assert (answer.status_code, answer.headers["content-type"]) == (
                status,
                "application/problem+json",
            ), (what, answer.text)
            assert "fault" not in answer.json()["type"]
        assert _files(globex) == before, what
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    assert globex.call(OPERATE, "POST", "/accept", content=file, headers=form).status_code == 415
    said = {"Content-Type": "application/json"}
    for given in (
        '{"profile": "none"}', '{"profile": 1}', '{"evil": 1}', r'{"cpa_id": "\ud800"}',
        '{"transports": ["pigeon"]}', "[]",
    ):  # fmt: skip
        kept = _files(acme)
        answer = acme.call(OPERATE, "POST", "/invite", content=given, headers=said)
        assert answer.status_code == 422, given
        assert _files(acme) == kept


async def test_an_acceptance_is_answered_though_the_handler_is_mute(parties: Path) -> None:
    acme, globex = (load(parties / name, environ={}).settings for name in ("acme", "globex"))

    async def mute() -> None:
        raise TransportProblem("the handler has not answered for 5 seconds")

    _, invitation = await Meeting(acme, mute).invite({"insecure": True}, "alice")
    data = invitation.encode()
    accepted = await Meeting(globex, mute).accept(data, _digest(data), "bob", insecure=True)
    assert "answers = " in str(accepted["acceptance"])


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def test_a_key_follows_another_over_rest(sides: tuple[Rest, Rest]) -> None:
    acme, globex = sides
    _taken(acme, str(_taken(globex, _invited(acme))["acceptance"]).encode())
    switch = {"fingerprint": "none"}
    assert acme.call(OPERATE, "POST", "/keys/switch", json=switch).status_code == 404
    old = acme.call(Permission.LOOK, "GET", "/keys").json()["result"]
    assert old["next"] is None
    made = acme.call(OPERATE, "POST", "/keys/next").json()["result"]
    assert acme.call(OPERATE, "POST", "/keys/next").status_code == 409
    card = acme.call(OPERATE, "GET", "/card").content
    assert tomllib.loads(card.decode())["fingerprint"].endswith(made["fingerprint"])
    taken = _taken(globex, card)
    assert (taken["kind"], taken["fingerprints"]) == ("card", [made["fingerprint"]])
    # It has no other certificate than those that are believed now.
    assert globex.call(OPERATE, "POST", "/accept", content=card).status_code == 409
    switch["fingerprint"] = old["fingerprint"]
    assert acme.call(OPERATE, "POST", "/keys/switch", json=switch).status_code == 409
    assert acme.call(Permission.LOOK, "GET", "/keys").json()["result"]["next"] == made
    switch["fingerprint"] = made["fingerprint"]
    used = acme.call(OPERATE, "POST", "/keys/switch", json=switch)
    assert used.json()["result"]["fingerprint"] == made["fingerprint"], used.text
    assert _pings(acme, "globex")
    assert _pings(globex, "acme")

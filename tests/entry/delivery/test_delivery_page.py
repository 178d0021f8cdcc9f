"""docs/howto/delivery.md against the code: names, figures, examples that run as printed."""

import asyncio
import io
import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from oncewire.agreement.compose import profile_values
from oncewire.agreement.keys import KEYS as AGREEMENT_KEYS
from oncewire.entry.cli.main import build
from oncewire.entry.delivery import webhook
from oncewire.entry.delivery.function import Function
from oncewire.entry.delivery.received_message import ReceivedMessage, message_from
from oncewire.entry.messages.submitting import SendOptions
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import KEYS, ApplicationWay
from oncewire.entry.running.open_party import open_party
from oncewire.handler.actions import Notice, Submission
from oncewire.handler.delivering.deliver import LEASE
from oncewire.handler.runtime import offers
from oncewire.message.envelope import Payload, Severity
from oncewire.message.ids import Service
from oncewire.message.instant import SECOND
from oncewire.protocol.states import Outcome, OutgoingState
from oncewire.protocol.synchronous import patience
from oncewire.protocol.terms import Terms
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.parts import ROOT

TEXT = (ROOT / "docs" / "howto" / "delivery.md").read_text(encoding="utf-8")
PLAIN = " ".join(TEXT.split())
NAMED = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)))

MESSAGE = ReceivedMessage(
    "urn:a", "m-1", "talk", "cpa", "urn:a", "urn:b", "retail:orders", "New",
    "2026-01-05T10:00:00Z",
    payloads=(Payload.of("x@test", "text/xml", b"<a/>"),),
    service_type="retail",
)  # fmt: skip
NOTICE = Notice("m-2", Severity.WARNING, Outcome.UNKNOWN, "no acknowledgement", "m-2#1")


def example(word: str) -> str:
    """The Python block of the page that has this word in it."""
    (found,) = (one for one in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if word in one)
    return str(found)


def posted(secret: str, work: Any) -> list[tuple[dict[str, str], bytes]]:
    """What a webhook with that secret is called with."""
    calls = []

    class Session:
        """Where the webhook posts to."""

        closed = False

        async def post(self, _url: str, *, data: bytes, headers: dict[str, str], **_: Any) -> Any:
            calls.append((headers, data))
            return Answer()

    class Answer:
        """204."""

        status = 204

        async def __aenter__(self) -> None:
            return

        async def __aexit__(self, *_: object) -> None:
            return

    async def post() -> None:
        hook = webhook.Webhook("https://application.example/in", secret)
        hook._posts._session = Session()  # type: ignore[assignment]
        await work(hook)

    asyncio.run(post())
    return calls


async def _deliver(hook: webhook.Webhook) -> None:
    await hook._posts.post(webhook.event_of(MESSAGE))


async def _notify(hook: webhook.Webhook) -> None:
    await hook.notify(NOTICE)


# --- names and figures -------------------------------------------------------------------------


def test_every_way_and_every_setting_of_the_application_is_documented() -> None:
    assert {way.value for way in ApplicationWay} <= NAMED
    spoken = set(re.findall(r"\bapplication\.[a-z_]+", TEXT))
    assert spoken == {name for name in KEYS if name.startswith("application.")}
    for variable in re.findall(r"ONCEWIRE_\w+", TEXT):
        assert variable in {key.variable for key in KEYS.values()}


def test_the_agreement_keys_on_the_page_exist_and_take_these_values() -> None:
    said = re.findall(r"`((?:sync|delivery)\.[a-z_]+)(?: = (\"\w+\"))?`", TEXT)
    spoken = {"sync.mode", "sync.timeout", "sync.retries", "sync.bundle", "delivery.on_exhausted"}
    assert spoken == {name for name, _ in said}
    for name, value in said:
        key = AGREEMENT_KEYS[name]
        if value:
            key.kind.read(tomllib.loads(f"x = {value}")["x"])
    assert profile_values("ebms2")["sync.retries"].value.value == "same_message"


def test_the_facts_of_a_message_are_documented() -> None:
    facts = MESSAGE.facts()
    assert set(facts) | set(facts["payloads"][0]) <= NAMED
    assert {one.name for one in fields(Notice)} <= NAMED
    states = {OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN, OutgoingState.SUSPENDED}
    assert {state.value for state in states} <= NAMED


def test_the_figures_are_those_of_the_code() -> None:
    pauses = [offers.FIRST_PAUSE * 2**count for count in range(offers.REFUSALS_MAX - 1)]
    in_all = sum(min(one, offers.LONGEST_PAUSE) for one in pauses)
    assert f"After {offers.REFUSALS_MAX} refusals in a row, some three minutes" in PLAIN
    assert round(in_all / 60) == 3
    assert f"after {offers.FIRST_PAUSE} seconds, then after twice as long each time, at" in PLAIN
    assert ("at most a minute" in PLAIN, offers.LONGEST_PAUSE) == (True, 60)
    assert ("confirms it within a minute" in PLAIN, LEASE) == (True, 60 * SECOND)
    assert f"no answer within {webhook.TIMEOUT:.0f} seconds" in PLAIN
    assert ("up to eight at a time" in PLAIN, Function.batch) == (True, 8)
    terms = Terms()
    assert f"which is {terms.sync_timeout // SECOND} seconds if nothing is said" in PLAIN
    assert ("four fifths" in PLAIN, patience(terms) * 5) == (True, terms.sync_timeout * 4)


def test_the_commands_and_the_log_lines_on_the_page_exist() -> None:
    known = {one.name or one.callback.__name__ for one in build().registered_commands}  # type: ignore[union-attr]
    known |= {str(one.name) for one in build().registered_groups}
    for spoken in (one for one in NAMED if one.startswith("oncewire ")):
        assert spoken.split()[1] in known, spoken
    handler = ROOT / "src" / "oncewire" / "handler"
    for line, file in (
        ("a message failed", "runtime/handler.py"),
        ("the application did not take a message", "runtime/offers.py"),
        ("the application did not take the notice of a failure", "runtime/offers.py"),
    ):
        assert line in PLAIN
        assert f'"{line}"' in (handler / file).read_text(encoding="utf-8")


# --- the webhook -------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", ["hush", "whsec_c2VjcmV0"])
def test_the_check_on_the_page_knows_a_genuine_call(secret: str) -> None:
    scope: dict[str, Any] = {}
    exec(example("is_genuine"), scope)
    ((headers, body),) = posted(secret, _deliver)
    assert scope["is_genuine"](headers, body, secret)
    assert not scope["is_genuine"](headers, body + b" ", secret)
    assert not scope["is_genuine"]({**headers, "webhook-timestamp": "0"}, body, secret)
    assert not scope["is_genuine"](headers, body, "other")
    # Somebody recorded it an hour ago.
    then = int(headers["webhook-timestamp"]) - 3600
    signed = webhook.signature(webhook.secret_bytes(secret), headers["webhook-id"], then, [body])
    late = {**headers, "webhook-timestamp": str(then), "webhook-signature": signed}
    assert not scope["is_genuine"](late, body, secret)


def test_headers_and_fields_of_an_event_are_documented() -> None:
    ((headers, body),) = posted("hush", _deliver)
    event = json.loads(body)
    assert set(headers) | set(event) <= NAMED
    assert {headers["Content-Type"], event["type"], event["datacontenttype"]} <= NAMED
    assert "data_base64" in event["data"]["payloads"][0]
    assert "`data_base64`" in TEXT
    assert set(webhook.event_of(MESSAGE)["data"]) <= NAMED
    ((_, body),) = posted("hush", _notify)
    event = json.loads(body)
    assert event["type"] in NAMED
    assert set(event["data"]) <= NAMED


# --- the function ------------------------------------------------------------------------------


def test_the_function_on_the_page_hears_of_failures(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    exec(example("def take"), scope)
    asyncio.run(Function(scope["take"]).notify(NOTICE))
    assert capsys.readouterr().out == "m-2 unknown Warning no acknowledgement\n"


def test_a_response_answers_its_message() -> None:
    ready = Payload.of("y@test", "text/csv", b"1,2")
    found = MESSAGE.response("Accept", b"<b/>", io.BytesIO(b"<c/>"), ready, media_type="text/xml")
    assert found == Submission(
        "cpa",
        Service("orders", "retail"),
        "Accept",
        (
            Payload.of("payload-1@oncewire", "text/xml", b"<b/>"),
            Payload.of("payload-2@oncewire", "text/xml", b"<c/>"),
            ready,
        ),
        conversation_id="talk",
        ref_to_message_id="m-1",
    )
    again = message_from(MESSAGE.facts(), [b"<a/>"])
    assert again.response("Accept", message_id="re-m-1").message_id == "re-m-1"
    assert again.response("Accept").service == Service("orders", "retail")


@pytest.mark.requirement("SYNC-6", "SYNC-7")
def test_the_function_on_the_page_answers_on_the_connection_of_its_request(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_of_the_page.py").write_text(example("def take"))
    monkeypatch.syspath_prepend(str(tmp_path))
    agree(pair, {"sync.mode": '"signalsAndResponse"', "delivery.timeout": '"PT30S"'})
    file = pair / "globex" / "oncewire.toml"
    chosen = {"application.way": '"function"', "application.function": '"shop_of_the_page:take"'}
    file.write_text(with_values(file.read_text(), chosen))
    order = Payload.of("order@acme", "application/xml", b"<order/>")
    with Served(pair) as served:
        globex = served.start("globex")
        acme = served.start("acme")
        options = Submission("acme-globex", Service("orders", "retail"), "New", (order,))
        sent = served.do(acme.send(options))
        outcome = served.do(acme.wait(sent.message_id, 30))
        (reply,) = served.do(acme.take(16))
        served.do(acme.confirm(reply.sender, reply.message_id))
        with globex.handler.engine.context.store.reader() as reader:
            rows = reader.journal_of(sent.message_id)
    assert outcome is Outcome.DELIVERED
    assert (reply.action, reply.ref_to_message_id) == ("Accept", sent.message_id)
    assert (reply.service, reply.conversation_id) == ("retail:orders", sent.conversation_id)
    (receipt,) = reply.payloads
    assert (receipt.media_type, receipt.data) == ("application/xml", b"<accepted/>")
    # The acknowledgement came in the answer itself: there was one reply, on one connection.
    assert [row.ref_to for row in rows if row.kind == "ack_sent"] == [reply.message_id]


@pytest.mark.usefixtures("served")
async def test_the_program_on_the_page_takes_answers_and_confirms(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pair)
    facts = {"message_id": "m-1@acme", "cpa_id": "acme-globex"}
    scope: dict[str, Any] = {}
    exec(example("party.take"), scope)
    async with open_party("acme") as acme, open_party("globex") as globex:
        sent = await acme.send("globex", b"<order/>", options=SendOptions(message_id="m-1@acme"))
        assert await acme.wait(sent.message_id, 30) is Outcome.DELIVERED
        await scope["work"]()
        assert await globex.wait("re-m-1@acme", 30) is Outcome.DELIVERED
        (answer,) = await acme.take()
        # The loop begins anew: the same answer under the same id is no second message.
        talk = {name: getattr(answer, name) for name in ("conversation_id", "service")}
        kind = {"service_type": answer.service_type}
        order = {**MESSAGE.facts(), **facts, **talk, **kind}
        again = message_from(order, [b"<order/>"])
        repeated = again.response("Accept", b"<accepted/>", message_id="re-m-1@acme")
        assert (await globex.submit(repeated)).repeated
        assert (await globex.status()).counts["in.confirmed"] == 1
    assert (answer.message_id, answer.ref_to_message_id) == ("re-m-1@acme", "m-1@acme")

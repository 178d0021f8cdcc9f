"""A party set up for more than HTTP: its settings, its card, its agreements, its handler."""

import asyncio
import re
from pathlib import Path

import pytest

from oncewire.agreement.agreement import TRANSPORTS, Requested
from oncewire.agreement.check import Severity
from oncewire.agreement.check.dangers import check
from oncewire.agreement.compose import PROFILES, profile_values
from oncewire.agreement.toml import transport_of
from oncewire.entry.doctor.checkup import probe_inboxes
from oncewire.entry.doctor.ping import Echo, Reached, ping, probe_ways
from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import able, load_all, load_readable
from oncewire.entry.party.folder import Card, KeyKind, card_of, make_party, read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.serving import make_handler
from oncewire.entry.running.transports import other_transports, reader_name
from oncewire.errors import AgreementProblem, InvalidValue, OncewireError
from oncewire.handler.world import RealWorld
from oncewire.message.envelope import Payload
from oncewire.message.form import SyncReplyMode
from oncewire.protocol.states import OutgoingState
from tests.entry.terminal import run as run_cli
from tests.entry.terminal import run_json
from tests.parts import ROOT
from tests.ports import free_port
from tests.transport.file_servers import PASSWORD, USER, ftp_server
from tests.transport.mailboxes import mailboxes

NAMES = ("acme", "globex")


def parties(folder: Path) -> dict[str, Settings]:
    """Two parties, each the mail server of the other."""
    ports = {name: free_port() for name in NAMES}
    made = {}
    for name, other in zip(NAMES, reversed(NAMES), strict=True):
        place = folder / name
        now = RealWorld().now()
        make_party(
            place, name, now=now, port=free_port(), key_kind=KeyKind.EC, transports=("smtp",)
        )
        file = place / "oncewire.toml"
        text = file.read_text().replace("relay_port = 25\n", f"relay_port = {ports[other]}\n")
        text = text.replace('relay = "localhost"', 'relay = "127.0.0.1"')
        file.write_text(text.replace("port = 2525", f"port = {ports[name]}"))
        made[name] = load(place, environ={}).settings
    for name, other in zip(NAMES, reversed(NAMES), strict=True):
        options = PartnerOptions(sign=True)
        add_partner(made[name], read_card(made[other].folder), options)
    return made


@pytest.mark.long
@pytest.mark.requirement("TRN-3", "CPA-16")
@pytest.mark.within(100)
async def test_two_parties_talk_by_mail_when_they_cannot_over_http(tmp_path: Path) -> None:
    made = parties(tmp_path)
    (kept,) = load_all(made["acme"])
    assert kept.agreement.sending.terms.transports == ("http", "smtp")
    text = kept.file.read_text()
    # Patience of two days is not a test's.
    text = text.replace('timeout = "PT1M"', 'timeout = "PT0.3S"')
    text = text.replace("retries = 288", "retries = 1")
    kept.file.write_text(text.replace('retry_interval = "PT5M"', 'retry_interval = "PT0.3S"'))

    acme, globex = make_handler(made["acme"]), make_handler(made["globex"])
    assert sorted(acme.transports) == ["http", "smtp"]
    async with acme, globex:
        assert (await ping(made["acme"], load_all(made["acme"])))[0].reached in (
            Reached.ANSWERED,
            Reached.TAKEN,
        )
        (way,) = await probe_ways(made["acme"], load_all(made["acme"]))
        assert (way.reached, way.address) == (Reached.TAKEN, "mailto:globex@localhost")
        await globex.transports["http"].stop()
        agreement = find_agreement(load_readable(made["acme"]), "globex")
        payload = Payload.of("order", "text/plain", b"an order")
        options = SendOptions("urn:test:orders", "New")
        sent = await acme.send(submission_of(agreement, (payload,), options))
        assert await acme.wait(sent.message_id, 40) is OutgoingState.DELIVERED
        (given,) = await globex.take()
        assert given.payloads[0].data == b"an order"
    (way,) = await probe_ways(made["acme"], load_all(made["acme"]), 2.0)
    assert way.reached is Reached.UNREACHABLE


@pytest.mark.long
@pytest.mark.process
@pytest.mark.requirement("TRN-3", "TRN-4")
def test_doctor_and_ping_try_the_places_that_we_look_into(tmp_path: Path) -> None:
    make_party(
        tmp_path / "acme", "acme", now=RealWorld().now(), port=free_port(),
        key_kind=KeyKind.EC, transports=("smtp", "ftp"),
    )  # fmt: skip
    make_party(tmp_path / "globex", "globex", now=RealWorld().now(), transports=("smtp",))
    (tmp_path / "root" / "acme").mkdir(parents=True)
    file = tmp_path / "acme" / "oncewire.toml"
    with mailboxes(user="acme") as server, ftp_server(tmp_path / "root") as port:
        at = f"ftp://127.0.0.1:{port}/acme"
        text = file.read_text().replace("ftps://localhost/acme", at)
        text = re.sub(r"(?m)^(user|password) = .*\n", "", text)
        text = text.replace("[ftp]\n", f'[ftp]\nuser = "{USER}"\npassword = "{PASSWORD}"\n')
        text = text.replace(
            "[smtp]\n",
            f'[smtp]\nimap = "127.0.0.1"\nimap_port = {server.port}\nimap_user = "acme"\n'
            f'imap_protection = "none"\nimap_password = "{PASSWORD}"\n',
        )
        file.write_text(text)
        settings = load(tmp_path / "acme", environ={}).settings
        tried = asyncio.run(probe_inboxes(settings))
        assert [(inbox.transport, inbox.problem) for inbox in tried] == [("ftp", ""), ("smtp", "")]
        add_partner(settings, read_card(tmp_path / "globex"), PartnerOptions())
        told = run_json("ping", "globex", "--config", file, exit_code=None)
        assert list(told["inboxes"]) == [tried[1].address]
        # No mail server of this test takes what we send.
        assert any("smtp.relay" in step for step in told["next"])
        found = {row["what"]: row for row in checks(file)}
        assert found["inbox over smtp"]["grade"] == found["inbox over ftp"]["grade"] == "good"
        wrong = file.read_text().replace(f'imap_password = "{PASSWORD}"', 'imap_password = "wr0ng"')
        file.write_text(wrong)
        bad = {row["what"]: row for row in checks(file)}["inbox over smtp"]
        assert bad["grade"] == "bad"
        assert "smtp.imap_password" in bad["fix"]
        assert "wr0ng" not in str(bad)


def checks(file: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = run_json(
        "doctor", "--timeout", "60", "--config", file, exit_code=None
    )["checks"]
    return found


def test_a_card_tells_every_address_and_both_sides_use_what_both_have(tmp_path: Path) -> None:
    now = RealWorld().now()
    ways = ("smtp", "sftp", "ftp", "broker")
    for name, transports in (("acme", ways), ("globex", ("smtp", "broker"))):
        make_party(tmp_path / name, name, now=now, key_kind=KeyKind.EC, transports=transports)
    acme = load(tmp_path / "acme", environ={}).settings
    card = card_of(acme)
    assert dict(card.addresses) == {
        "smtp": "mailto:acme@localhost",
        "sftp": "sftp://localhost/acme",
        "ftp": "ftps://localhost/acme",
        "broker": "nats:oncewire.acme",
    }
    file = tmp_path / "acme.card.toml"
    file.write_text(card.to_toml())
    assert read_card(file) == card
    assert sorted(other_transports(acme)) == sorted(ways)
    add_partner(acme, read_card(tmp_path / "globex"), PartnerOptions())
    (kept,) = load_all(acme)
    assert kept.agreement.sending.terms.transports == ("http", "smtp", "broker")
    assert {end.transport for end in kept.agreement.own.endpoints} == {"http", "smtp", "broker"}


@pytest.mark.parametrize(
    "told", ['"x"', '{ smtp = "http://x" }', "{ smtp = 1 }", '{ gopher = "gopher://x" }']
)
def test_a_card_with_an_address_that_is_none_is_refused(told: str, tmp_path: Path) -> None:
    make_party(tmp_path / "acme", "acme", now=RealWorld().now(), key_kind=KeyKind.EC)
    card: Card = read_card(tmp_path / "acme")
    file = tmp_path / "acme.card.toml"
    file.write_text(
        card.to_toml().replace("certificate =", f"addresses = {told}\ncertificate =", 1)
    )
    with pytest.raises(OncewireError):
        read_card(file)


def test_a_transport_that_is_not_there_cannot_be_set_up(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no transport 'pigeon'"):
        make_party(tmp_path / "a", "a", now=RealWorld().now(), transports=("pigeon",))
    assert not (tmp_path / "a").exists()


def test_a_new_party_is_told_which_settings_of_a_transport_are_still_to_be_made(
    tmp_path: Path,
) -> None:
    steps = run_json("init", tmp_path / "acme", "--transport", "sftp", "--transport", "smtp")[
        "next"
    ]
    assert "[sftp] and [smtp]" in steps[0]
    assert str(tmp_path / "acme" / "oncewire.toml") in steps[0]
    assert "oncewire doctor" in steps[1]
    assert not any("[s" in step for step in run_json("init", tmp_path / "globex")["next"])


def test_a_reader_has_one_name_for_one_store(tmp_path: Path) -> None:
    now = RealWorld().now()
    for name in NAMES:
        make_party(tmp_path / name, name, now=now, key_kind=KeyKind.EC)
    names = [reader_name(load(tmp_path / name, environ={}).settings) for name in (*NAMES, "acme")]
    assert names[0] == names[2] != names[1]


async def test_a_partner_without_http_is_asked_by_the_handler(tmp_path: Path) -> None:
    made = parties(tmp_path)
    (kept,) = load_all(made["acme"])
    text = "\n".join(
        line for line in kept.file.read_text().splitlines() if not line.startswith("http = ")
    )
    kept.file.write_text(text.replace('["http", "smtp"]', '["smtp"]'))

    (echo,) = await ping(made["acme"], load_all(made["acme"]))
    assert (echo.reached, echo.address) == (Reached.TAKEN, "mailto:globex@localhost")
    acme, globex = make_handler(made["acme"]), make_handler(made["globex"])
    async with acme, globex:
        assert await acme.ping("acme-globex", 20)
        await asyncio.sleep(0)


# --- what `partner add`, `invite` and `accept` write ---------------------------------------------


def both_sides(folder: Path, ways: tuple[str, ...], key: KeyKind) -> dict[str, Settings]:
    """Two parties that have not met."""
    for name in NAMES:
        make_party(
            folder / name, name, now=RealWorld().now(), tls=True, key_kind=key, transports=ways
        )
    return {name: load(folder / name, environ={}).settings for name in NAMES}


def blamed(settings: Settings) -> list[tuple[str, str]]:
    """What our own check has against the one agreement there is, beside hints."""
    (kept,) = load_all(settings)
    found = check(kept.agreement, now=RealWorld().now(), abilities=able(settings))
    return [(one.key, one.sentence) for one in found if one.severity is not Severity.HINT]


def added(settings: Settings, card: Card, options: PartnerOptions) -> OncewireError | None:
    """Add a partner anew; what was refused comes back."""
    try:
        add_partner(settings, card, options, replace=True)
    except OncewireError as problem:
        return problem
    return None


OTHERS = tuple(way for way in TRANSPORTS if way != "http")


@pytest.mark.parametrize("way", OTHERS)
def test_a_transport_is_known_wherever_people_meet_it(way: str, tmp_path: Path) -> None:
    """Settings, addresses, help and pages: what a new transport needs beside its own folder."""
    make_party(
        tmp_path, "acme", now=RealWorld().now(), key_kind=KeyKind.EC, transports=(way,)
    )  # fmt: skip
    settings = load(tmp_path, environ={}).settings
    assert settings.transports == ("http", way)
    assert list(other_transports(settings)) == [way]
    address = settings.addresses[way]
    assert transport_of(address) == way
    with pytest.raises(AgreementProblem) as refused:
        transport_of("gopher:x")
    assert f"{address.partition(':')[0]}:" in str(refused.value.remedy)
    unreached = Echo("globex", "acme-globex", address, Reached.UNREACHABLE, "refused")
    assert f"{way}." in unreached.next_step
    assert re.search(rf"\b{way}\b", run_cli("init", "--help").stdout)
    page = (ROOT / "docs" / "howto" / "transports.md").read_text(encoding="utf-8")
    assert f"\n| `{way}` |" in page


@pytest.mark.long
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("ways", "key"),
    [*(((way,), KeyKind.EC) for way in OTHERS), *((way, KeyKind.RSA) for way in ((), OTHERS))],
)
def test_what_partner_add_writes_passes_our_own_check(
    tmp_path: Path, ways: tuple[str, ...], key: KeyKind, ordered: bool
) -> None:
    """Every profile over every transport that the two parties have, alone and all together."""
    made = both_sides(tmp_path, ways, key)
    card = read_card(made["globex"].folder)
    file = made["acme"].path("agreements") / "globex.toml"
    for profile in PROFILES:
        for chosen in ((), ("http",), *((way,) for way in ways)):
            file.unlink(missing_ok=True)
            options = PartnerOptions(
                profile, sign=True, ordered=ordered, insecure=False, transports=chosen
            )
            problem = added(made["acme"], card, options)
            expected = cannot_be(profile, ways, chosen, key, ordered)
            assert (problem is not None) is expected, (profile, chosen, problem)
            if problem is not None:
                assert problem.remedy
                assert not file.exists()
                continue
            assert blamed(made["acme"]) == [], (profile, chosen)
            (kept,) = load_all(made["acme"])
            assert not chosen or kept.agreement.sending.terms.transports == chosen


def cannot_be(
    profile: str, ways: tuple[str, ...], chosen: tuple[str, ...], key: KeyKind, ordered: bool
) -> bool:
    """What contradicts itself: order without acknowledgements or with a reply on the connection,
    payloads encrypted for an elliptic key, mail without mail, a reply on a connection of mail."""
    terms = {name: value.value for name, value in profile_values(profile).items()}
    unreliable = terms.get("ack.request") is Requested.NEVER
    synchronous = terms.get("sync.mode") not in (None, SyncReplyMode.NONE)
    if ordered and (unreliable or synchronous or profile == "nhs-fragments"):
        return True
    if terms.get("security.encrypt") and key is KeyKind.EC:
        return True
    if profile == "norway-smtp" and "smtp" not in ways and not chosen:
        return True
    return synchronous and bool(chosen) and "http" not in chosen


@pytest.mark.parametrize("profile", ["rm-0.78", "ms-0.9x", "ebms2"])
def test_an_invitation_says_over_which_transports(profile: str, tmp_path: Path) -> None:
    made = both_sides(tmp_path, ("smtp",), KeyKind.EC)
    first, second = tmp_path / "invitation.toml", tmp_path / "acceptance.toml"
    words = ("--profile", profile, "--transport", "smtp")
    run_cli("partner", "invite", "-o", first, *words, "-c", tmp_path / "acme")
    assert 'transports = ["smtp"]' in first.read_text()
    run_cli("partner", "accept", first, "-o", second, "-c", tmp_path / "globex")
    changed = tmp_path / "changed.toml"
    changed.write_text(second.read_text().replace('["smtp"]', '["http"]'))
    refused = run_cli("partner", "accept", changed, "-c", tmp_path / "acme", exit_code=None)
    assert refused.exit_code == 2
    assert "transports" in refused.stderr
    run_cli("partner", "accept", second, "-c", tmp_path / "acme")
    for name in NAMES:
        (kept,) = load_all(made[name])
        assert kept.agreement.sending.terms.transports == ("smtp",)
        assert blamed(made[name]) == []


def test_numbers_per_transport_go_over_one_of_several(tmp_path: Path) -> None:
    """rm-0.78 numbers messages per transport: over HTTP, unless another one is chosen."""
    made = both_sides(tmp_path, ("smtp",), KeyKind.EC)
    run_cli("partner", "add", tmp_path / "globex", "--both", "--profile", "rm-0.78",
            "-c", tmp_path / "acme")  # fmt: skip
    for name in NAMES:
        (kept,) = load_all(made[name])
        assert kept.agreement.sending.terms.transports == ("http",)
        assert blamed(made[name]) == []
    refused = run_cli("partner", "add", tmp_path / "globex", "--transport", "sftp", "--replace",
                      "-c", tmp_path / "acme", exit_code=None)  # fmt: skip
    assert refused.exit_code == 2
    assert "sftp" in refused.stderr


def test_two_transports_are_remembered_for_longer_than_both_are_tried(tmp_path: Path) -> None:
    made = both_sides(tmp_path, ("smtp",), KeyKind.EC)
    add_partner(made["acme"], read_card(made["globex"].folder), PartnerOptions(sign=True))
    (kept,) = load_all(made["acme"])
    terms = kept.agreement.sending.terms
    assert terms.transports == ("http", "smtp")
    assert terms.persist_duration >= terms.longest_retry
    assert blamed(made["acme"]) == []


def test_what_our_own_check_calls_wrong_is_not_written(tmp_path: Path) -> None:
    made = both_sides(tmp_path, (), KeyKind.EC)
    options = PartnerOptions("phinms", sign=True, ordered=True)
    problem = added(made["acme"], read_card(made["globex"].folder), options)
    assert problem is not None
    assert "SyncReply and MessageOrder exclude each other" in problem.problem
    assert list(made["acme"].path("agreements").iterdir()) == []

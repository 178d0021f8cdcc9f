"""Two parties meet by invitation, and see what works between them: `oncewire partner ...`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.agreement.certificates import read_certificates, spoken_fingerprint
from oncewire.entry.cli import output
from oncewire.entry.party.folder import KeyKind, fingerprints_of, make_keys
from oncewire.entry.party.partners import with_values
from oncewire.handler.world import RealWorld
from oncewire.message.envelope import TRIAL_MARK, TRIAL_SERVICE
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.ports import free_port

WORKING = [
    "ping",
    "a message",
    "signatures",
    "status",
    "a copy",
    "a lost acknowledgement",
    "a large message",
    "a late copy",
]


@pytest.fixture
def strangers(parties: Path) -> Path:
    """Two parties on free ports that know nothing of each other."""
    for name in ("acme", "globex"):
        file = parties / name / "oncewire.toml"
        file.write_text(with_values(file.read_text(), {"http.port": str(free_port())}))
    return parties


def meet(folder: Path, *options: str) -> None:
    invitation, acceptance = folder / "i.toml", folder / "a.toml"
    weak = ("--insecure",) if "--insecure" in options else ()
    run("partner", "invite", "-o", invitation, *options)
    run("partner", "accept", invitation, "-o", acceptance, *weak, "-c", folder / "globex")
    run("partner", "accept", acceptance, *weak)


@pytest.fixture
def met(strangers: Path) -> Iterator[Served]:
    meet(strangers, "--insecure", "--sign")
    with Served(strangers, "acme", "globex") as served:
        yield served


def test_one_file_each_way_makes_the_same_agreement_at_both(strangers: Path) -> None:
    meet(strangers, "--insecure", "--sign", "--ordered", "--profile", "ebms2")
    found = {
        name: (strangers / name / "agreements" / f"{other}.toml").read_text()
        for name, other in (("acme", "globex"), ("globex", "acme"))
    }
    ours, theirs = (tomllib.loads(found[name]) for name in ("acme", "globex"))
    assert ours["cpa_id"] == theirs["cpa_id"] == "acme-globex"
    assert ours["own"]["party_id"] == theirs["partner"]["party_id"]
    assert ours["own"]["http"] == theirs["partner"]["http"]
    for key in ("ack", "sequence", "delivery"):
        assert ours[key] == theirs[key]
    assert ours["sequence"]["ordered"] is True
    invited = tomllib.loads((strangers / "i.toml").read_text())
    assert invited["card"]["fingerprint"]
    assert invited["agreement"]["sign"] is True


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("9" * 5_000, "number is too long"),
        ("[" * 5_000 + "]" * 5_000, "nested too deeply"),
        ("{a=" * 5_000 + "1" + "}" * 5_000, "nested too deeply"),
    ],
    ids=["digits", "lists", "tables"],
)
def test_a_file_that_is_made_to_break_its_reader_is_refused_in_words(
    strangers: Path, value: str, problem: str
) -> None:
    invitation, card = strangers / "i.toml", strangers / "c.toml"
    run("partner", "invite", "-o", invitation)
    run("partner", "card", "-o", card)
    for verb, file in (("accept", invitation), ("add", card)):
        file.write_text(f"hostile = {value}\n{file.read_text()}")
        told = run(
            "partner", verb, file, "-c", strangers / "globex", exit_code=output.BAD_INPUT
        ).output
        assert problem in told
        assert "next:" in told
    assert list((strangers / "globex" / "agreements").glob("*.toml")) == []


def test_an_acceptance_of_another_invitation_is_not_taken(strangers: Path) -> None:
    invitation, acceptance = strangers / "i.toml", strangers / "a.toml"
    run("partner", "invite", "-o", invitation, "--insecure")
    words = (invitation, "-o", acceptance, "--insecure", "-c", strangers / "globex")
    run("partner", "accept", *words)
    text = acceptance.read_text()
    fingerprint = tomllib.loads(text)["answers"]
    acceptance.write_text(text.replace(fingerprint, "0" * len(fingerprint)))
    told = run_json("partner", "accept", acceptance, "--insecure", exit_code=output.BAD_INPUT)
    assert "accepts an invitation with the certificate 000" in told["problems"][0]["problem"]
    card = strangers / "card.toml"
    run("partner", "card", "-o", card)
    told = run_json("partner", "accept", card, exit_code=output.BAD_INPUT)
    assert "is no invitation" in told["problems"][0]["problem"]


@pytest.mark.long
def test_everything_works_between_two_of_ours_and_none_of_it_counts(met: Served) -> None:
    found = run_json("partner", "test", "globex", "--timeout", "60")
    assert [row["what"] for row in found["tried"]] == WORKING
    assert {row["works"] for row in found["tried"]} == {"works"}, found["tried"]
    said = {row["what"]: row["finding"] for row in found["tried"]}
    assert said["a copy"] == said["a late copy"] == "it is known, and answered as the first one was"
    assert "signed for exactly what was sent" in said["signatures"]
    assert "4,194,304 bytes" in said["a large message"]
    for name in ("acme", "globex"):
        place = met.folder / name
        status = run_json("status", "-c", place)
        assert (status["kept"], status["incidents"], status["notices"]) == (0, 0, 0), status
        assert run_json("outbox", "-c", place)["messages"] == []
        assert run_json("inbox", "-c", place)["messages"] == []
        assert run_json("inbox", "take", "-c", place)["messages"] == []
        assert run_json("incidents", "-c", place)["incidents"] == []
    judged = run_json("verify", met.folder / "acme", met.folder / "globex")
    counted = ("messages", "submitted", "delivered", "confirmed_once", "duplicates_stopped")
    assert {judged[name] for name in counted} == {0}, judged
    assert judged["rows"] > 0
    assert judged["ok"]


@pytest.mark.long
def test_what_does_not_work_is_said_and_leaves_nothing_behind(met: Served) -> None:
    met.stop("globex")
    found = run_json("partner", "test", "globex", "--timeout", "0.5", exit_code=output.WRONG)
    assert [row["works"] for row in found["tried"]] == ["does not work", "not tried"]
    assert found["next"][0].startswith("oncewire ping globex")
    assert run_json("notices", "-c", met.folder / "acme")["notices"] == []


def test_no_business_hides_behind_a_trial(met: Served, tmp_path: Path) -> None:
    order = tmp_path / "order.xml"
    order.write_text("<order/>")
    for words in (
        ("--service", str(TRIAL_SERVICE), "--action", "Order"),
        ("--message-id", f"{TRIAL_MARK}1@acme"),
    ):
        told = run_json("send", order, "--to", "globex", *words, exit_code=output.BAD_INPUT)
        assert "are for trials" in told["problems"][0]["problem"]


# --- what a stranger's file may not do ---------------------------------------------------------


def changed(file: Path, old: str, new: str) -> Path:
    """The same file with a passage changed on its way."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return file


def certificate_of(folder: Path, name: str) -> str:
    make_keys(folder, name, now=RealWorld().now(), kind=KeyKind.EC)
    return (folder / f"{name}.crt").read_text().strip()


def files_of(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def believed(folder: Path, name: str, partner: str) -> list[str]:
    text = (folder / name / "keys" / "partners" / f"{partner}.crt").read_text()
    return [spoken_fingerprint(der) for der in read_certificates(text)]


def test_every_certificate_that_becomes_believed_is_asked_of_by_telephone(strangers: Path) -> None:
    evil = certificate_of(strangers, "mallory")
    invitation, card = strangers / "i.toml", strangers / "card.toml"
    run("partner", "invite", "-o", invitation, "--insecure", "--sign")
    run("partner", "card", "-o", card)
    for file, words in (
        (invitation, ("accept", invitation, "-o", strangers / "a.toml", "--insecure")),
        (card, ("add", card, "--insecure")),
    ):
        # What the file says of itself must be of every certificate in it.
        changed(file, "-----BEGIN", f"{evil}\n-----BEGIN")
        command = ("partner", *words, "-c", strangers / "globex")
        told = run_json(*command, exit_code=output.BAD_INPUT)
        assert "fingerprint" in told["problems"][0]["problem"]
        assert not (strangers / "globex" / "keys" / "partners" / "acme.crt").exists()
        # Who changes the one can change the other: then people are asked about both.
        (own,) = fingerprints_of(evil)
        changed(file, 'fingerprint = "', f'fingerprint = "{own}, ')
        hints = " ".join(run_json(*command, "--replace")["next"])
        shown = believed(strangers, "globex", "acme")
        assert len(shown) == 2
        assert all(f"is {one} your fingerprint?" in hints for one in (own, *shown))
        (strangers / "globex" / "agreements" / "acme.toml").unlink()
        (strangers / "globex" / "keys" / "partners" / "acme.crt").unlink()


def test_a_card_has_no_more_certificates_than_a_roll_over_needs(strangers: Path) -> None:
    run("keys", "next")
    card, more = strangers / "card.toml", certificate_of(strangers, "mallory")
    run("partner", "card", "-o", card)
    shown = run_json("partner", "card")["fingerprint"]
    assert shown.count(", ") == 1
    added = run_json("partner", "add", card, "--insecure", "-c", strangers / "globex")
    assert ", ".join(believed(strangers, "globex", "acme")) == shown
    assert added["added"][0]["fingerprint"] == shown
    changed(card, "-----BEGIN", f"{more}\n-----BEGIN")
    words = ("partner", "add", card, "--insecure", "--replace", "-c", strangers / "globex")
    told = run_json(*words, exit_code=output.BAD_INPUT)
    assert "3 certificates" in told["problems"][0]["problem"]


@pytest.fixture
def guarded(strangers: Path) -> Path:
    """Both listen with TLS."""
    for name in ("acme", "globex"):
        file = strangers / name / "oncewire.toml"
        said = {"http.tls": "true", "http.client_certificates": '"required"'}
        file.write_text(with_values(file.read_text(), said))
    return strangers


def answered(folder: Path, *options: str) -> Path:
    """An acceptance of our invitation, as it is on its way back."""
    run("partner", "invite", "-o", folder / "i.toml", *options)
    words = ("-o", folder / "a.toml", "-c", folder / "globex")
    run("partner", "accept", folder / "i.toml", *words)
    return folder / "a.toml"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("sign = true", "sign = false", "sign = false, and we invited with sign = true"),
        ("insecure = false", "insecure = true", "insecure = true"),
        ('"ebms2"', '"window"', 'profile = "window", and we invited with profile = "ebms2"'),
        ("ordered = false", "ordered = true", "ordered = true"),
        ('"acme-globex"', '"other"', 'cpa_id = "other"'),
    ],
)
def test_an_acceptance_says_yes_to_what_we_invited_with_and_no_more(
    guarded: Path, old: str, new: str, named: str
) -> None:
    acceptance = changed(answered(guarded), old, new)
    words = ("partner", "accept", acceptance, "--insecure")
    told = run_json(*words, exit_code=output.BAD_INPUT)
    assert named in told["problems"][0]["problem"]
    assert not list((guarded / "acme" / "agreements").glob("*.toml"))


def test_an_acceptance_of_plain_http_or_of_what_we_never_wrote_is_refused(guarded: Path) -> None:
    acceptance = answered(guarded)
    whole = acceptance.read_text()
    changed(acceptance, "https://", "http://")
    told = run_json("partner", "accept", acceptance, exit_code=output.BAD_INPUT)
    assert "listens without TLS" in told["problems"][0]["problem"]
    acceptance.write_text(whole)
    number = tomllib.loads(whole)["id"]
    for other, problem in (("0" * len(number), "did not write"), ("../x", "is no invitation")):
        acceptance.write_text(whole.replace(number, other))
        told = run_json("partner", "accept", acceptance, exit_code=output.BAD_INPUT)
        assert problem in told["problems"][0]["problem"]
    acceptance.write_text(whole)
    run("partner", "accept", acceptance)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("sign = true", "sign = false", "without signatures"),
        ("insecure = false", "insecure = true", "without TLS"),
    ],
)
def test_what_is_less_than_secure_is_agreed_by_nobody_who_did_not_say_so(
    guarded: Path, old: str, new: str, named: str
) -> None:
    run("partner", "invite", "-o", guarded / "i.toml")
    changed(guarded / "i.toml", old, new)
    words = ("partner", "accept", guarded / "i.toml", "-o", guarded / "a.toml")
    at_globex = ("-c", guarded / "globex")
    told = run_json(*words, *at_globex, exit_code=output.NOT_ALLOWED)
    assert named in told["problems"][0]["problem"]
    assert "--insecure" in told["problems"][0]["next"]
    assert not (guarded / "a.toml").exists()
    run(*words, *at_globex, "--insecure")


@pytest.mark.parametrize(
    ("name", "party_id", "cpa_id", "claims"),
    [
        ("aaa", "urn:oncewire:party:globex", "", "urn:oncewire:party:globex is our partner globex"),
        ("aaa", "urn:test:aaa", "acme-globex", "acme-globex is the agreement with globex"),
        ("aaa", "urn:oncewire:party:globex", "acme-globex", "urn:oncewire:party:globex is our"),
        ("hub", "urn:test:hub", "", "hub.crt"),
    ],
)
def test_nobody_becomes_a_partner_under_what_is_another_s(
    strangers: Path, name: str, party_id: str, cpa_id: str, claims: str
) -> None:
    meet(strangers, "--insecure", "--sign")
    acme = strangers / "acme"
    # Believed under an agreement of another name, as a hub's is.
    (acme / "keys" / "partners" / "hub.crt").write_text(certificate_of(strangers, "other"))
    run("init", strangers / name, "--insecure", "--port", str(free_port()), "--party-id", party_id)
    invitation, card = strangers / "i2.toml", strangers / "card.toml"
    at = ("-c", strangers / name)
    run("partner", "invite", "-o", invitation, "--insecure", "--cpa-id", cpa_id, *at)
    run("partner", "card", "-o", card, *at)
    before = files_of(acme)
    for words in (
        ("accept", invitation, "--insecure", "-o", strangers / "a2.toml"),
        ("add", card, "--insecure", "--cpa-id", cpa_id),
    ):
        told = run_json("partner", *words, exit_code=output.NOT_ALLOWED)
        assert claims in told["problems"][0]["problem"]
    assert files_of(acme) == before
    assert not (strangers / "a2.toml").exists()


def test_who_accepts_sees_whom(strangers: Path) -> None:
    run("partner", "invite", "-o", strangers / "i.toml", "--insecure", "--profile", "window")
    words = ("-o", strangers / "a.toml", "--insecure", "-c", strangers / "globex")
    seen = run_json("partner", "accept", strangers / "i.toml", *words)
    assert seen["party_id"] == "urn:oncewire:party:acme"
    assert seen["profile"] == "window"
    assert seen["address"].startswith("http://127.0.0.1:")


def test_what_cannot_be_answered_is_not_agreed(strangers: Path) -> None:
    run("partner", "invite", "-o", strangers / "i.toml", "--insecure")
    taken = strangers / "a.toml"
    taken.write_text("an acceptance for somebody else")
    before = files_of(strangers)
    words = ("partner", "accept", strangers / "i.toml", "--insecure", "-c", strangers / "globex")
    for place in (taken, strangers / "nowhere" / "a.toml"):
        run_json(*words, "-o", place, exit_code=output.NOT_ALLOWED)
        assert files_of(strangers) == before
    # Nor is an acceptance written where there is no agreement.
    changed(strangers / "i.toml", 'profile = "ebms2"', 'profile = "ebsm2"')
    before = files_of(strangers)
    run_json(*words, "-o", strangers / "b.toml", exit_code=output.BAD_INPUT)
    assert files_of(strangers) == before
    changed(strangers / "i.toml", 'profile = "ebsm2"', 'profile = "ebms2"')
    folder = strangers / "globex" / "agreements"
    folder.rmdir()
    folder.write_text("in the way")
    run_json(*words, "-o", strangers / "b.toml", exit_code=output.NOT_ALLOWED)
    assert not (strangers / "b.toml").exists()
    folder.unlink()
    run(*words, "-o", strangers / "b.toml")


def test_files_for_different_partners_have_different_names(strangers: Path) -> None:
    """Two invitations of ours, and the acceptances for two partners, in one folder."""
    run("init", strangers / "third", "--insecure", "--port", str(free_port()))
    invitations = [
        Path(run_json("partner", "invite", "--insecure", "-c", strangers / name)["file"])
        for name in ("acme", "third", "acme")
    ]
    assert len(set(invitations)) == 3
    at_globex = ("--insecure", "-c", strangers / "globex")
    written = [
        run_json("partner", "accept", file, *at_globex)["acceptance"] for file in invitations[:2]
    ]
    assert written == ["globex-acme.acceptance.toml", "globex-third.acceptance.toml"]

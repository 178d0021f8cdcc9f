"""The commands as people and programs use them."""

import inspect
import json
from pathlib import Path

import pytest
import typer

from oncewire.agreement.toml import read_toml
from oncewire.entry.cli import output
from oncewire.entry.cli.main import GROUPS, build
from oncewire.message.instant import DAY
from tests.entry.terminal import process, run, run_json, whole_command
from tests.house_rules import modules_pulled


def commands(app: typer.Typer, path: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = [
        (f"{path} {command.name}".strip(), command.callback) for command in app.registered_commands
    ]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        found += commands(group.typer_instance, f"{path} {group.name}".strip())
    return found


COMMANDS = commands(build())


# --- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "work"), COMMANDS)
def test_every_command_has_json_and_words_for_a_newcomer(name: str, work: object) -> None:
    assert callable(work)
    parameters = inspect.signature(work).parameters
    assert "json" in parameters, name
    assert inspect.getdoc(work), name
    # A report that nobody shows: `@answers` is missing.
    assert hasattr(work, "__wrapped__") or work.__annotations__.get("return") in (None, "None")
    shown = run(*name.split(), "--help").stdout
    assert "--json" in shown


@pytest.mark.parametrize(("name", "work"), COMMANDS)
def test_every_option_is_explained(name: str, work: object) -> None:
    assert callable(work)
    command = whole_command()
    for word in name.split():
        command = command.commands[word]
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        assert getattr(parameter, "help", None), f"{name}: {parameter.name}"


@pytest.mark.parametrize("word", sorted({word for words in GROUPS.values() for word in words}))
def test_a_start_with_a_command_brings_all_of_it(word: str) -> None:
    beginning = [name for name, _ in COMMANDS if name.split()[0] == word]
    assert beginning == [name for name, _ in commands(build(word)) if name.split()[0] == word] != []


@pytest.mark.process
def test_starting_up_loads_nothing_heavy() -> None:
    heavy = {"aiohttp", "apsw", "lxml", "xmlsec", "cryptography", "pyspark", "asyncio", "rich"}
    code = "from oncewire.entry.cli.main import build; build()"
    assert modules_pulled(code, heavy) == set()


@pytest.mark.process
def test_help_and_exit_codes_as_a_real_process(tmp_path: Path) -> None:
    shown = process("--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert "Exit status" in shown.stdout
    assert "no handler runs" in " ".join(shown.stdout.split())
    assert process(cwd=tmp_path).returncode == 2
    assert process("no-such-command", cwd=tmp_path).returncode == 2
    missing = process("config", "show", cwd=tmp_path)
    assert missing.returncode == output.NOT_FOUND
    assert "oncewire init" in missing.stderr
    assert missing.stdout == ""


@pytest.mark.process
def test_a_fault_of_our_own_is_told_without_a_traceback(tmp_path: Path) -> None:
    code = (
        "import oncewire.entry.cli.main as m\n"
        "def broken(): raise RuntimeError('inner')\n"
        "m.build = lambda word: broken\n"
        "m.main()\n"
    )
    import subprocess
    import sys

    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 70
    assert "Traceback" not in ended.stderr
    assert "a fault in Oncewire itself (RuntimeError): inner" in ended.stderr
    assert "ONCEWIRE_DEBUG" in ended.stderr


def test_version_names_what_it_stands_on() -> None:
    found = run_json("version")
    assert found["oncewire"] == "0.1.0"
    assert found["aiohttp"].startswith("3.")


# --- a new user --------------------------------------------------------------------------------


@pytest.mark.process
def test_two_parties_in_three_commands_as_real_processes(tmp_path: Path) -> None:
    for name, port in (("acme", "8601"), ("globex", "8602")):
        made = process("init", name, "--port", port, cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        assert f"The party {name} is ready" in made.stdout
    added = process("partner", "add", "globex", "--both", "-c", "acme", cwd=tmp_path)
    assert added.returncode == 0, added.stderr
    for name in ("acme", "globex"):
        good = process("config", "check", "-c", name, "--json", cwd=tmp_path)
        assert good.returncode == 0, good.stdout
        assert json.loads(good.stdout)["ok"] is True
    ours = process("agreement", "show", "acme-globex", "-c", "acme", "--json", cwd=tmp_path)
    values = {row["key"]: row["value"] for row in json.loads(ours.stdout)["values"]}
    assert values["ack.request"] == "always"


def test_init_refuses_a_second_time(parties: Path) -> None:
    found = run_json("init", parties / "acme", exit_code=output.NOT_ALLOWED)
    assert "holds a party already" in found["problems"][0]["problem"]


def test_init_takes_all_options(tmp_path: Path) -> None:
    words = ["--name", "acme", "--party-id", "123", "--party-type", "urn:x:duns", "--rsa"]
    found = run_json("init", tmp_path / "p", *words, "--host", "localhost", "--port", "8443")
    assert found["url"] == "https://localhost:8443/msh"
    assert found["party_id"] == "123"
    shown = {row["setting"]: row["value"] for row in run_json(
        "config", "show", "-c", tmp_path / "p")["settings"]}  # fmt: skip
    assert shown["http.client_certificates"] == "required"


def test_a_file_in_the_place_of_the_folder_for_documents_is_a_problem(parties: Path) -> None:
    (parties / "taken").write_text("")
    words = ("--set", "application.way=directory", "--set", f"application.folder={parties}/taken")
    (found,) = run_json("config", "check", *words, exit_code=output.WRONG)["problems"]
    assert "taken is no folder" in found["problem"]


def test_cards_are_exchanged_by_file(parties: Path, tmp_path: Path) -> None:
    card = tmp_path / "globex.card.toml"
    run("partner", "card", "-c", parties / "globex", "-o", card)
    shown = run("partner", "card", "-c", parties / "globex").stdout
    assert shown == card.read_text()
    assert run_json("partner", "card", "-c", parties / "globex")["party"] == "globex"
    found = run_json(
        "partner", "add", card, "--insecure", "--sign", "--profile", "window", "--cpa-id", "x"
    )
    assert found["added"][0]["partner"] == "globex"
    assert "fingerprint" in found["next"][0]
    assert "--profile window --insecure --sign --cpa-id x" in found["next"][1]
    listed = run_json("partner", "list")["partners"]
    assert [row["partner"] for row in listed] == ["globex"]
    assert run_json("partner", "add", card, "--both", exit_code=2)["problems"][0]["next"]


def test_no_partners_yet(parties: Path) -> None:
    assert "No partners yet" in run("partner", "list").stdout
    assert run_json("partner", "list")["partners"] == []


# --- config ------------------------------------------------------------------------------------


def test_config_show_tells_origins(parties: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEWIRE_LOG_LEVEL", "debug")
    monkeypatch.setenv("ONCEWIRE_APPLICATION_SECRET", "hush")
    words = ("config", "show", "--origin", "--set", "http.port=9999")
    rows = {row["setting"]: row for row in run_json(*words)["settings"]}
    assert rows["http.port"]["origin"] == "flag"
    assert rows["http.port"]["value"] == "9999"
    assert rows["log.level"]["origin"] == "ONCEWIRE_LOG_LEVEL"
    assert rows["party.name"]["origin"] == "oncewire.toml"
    assert rows["http.path"]["origin"] == "default"
    assert rows["http.path"]["variable"] == "ONCEWIRE_HTTP_PATH"
    shown = run(*words, "--meaning").stdout
    assert "hush" not in shown
    assert "The port to listen on." in shown


def test_config_check_finds_what_is_wrong(parties: Path) -> None:
    run("config", "check")
    (parties / "acme" / "keys" / "acme.key").chmod(0o644)
    (parties / "acme" / "agreements" / "bad.toml").write_text("nonsense = 1\n")
    (parties / "acme" / "data").rmdir()
    words = ["--set", "http.path=msh", "--set", "http.allow=moon"]
    words += ["--set", "application.way=webhook", "--set", "party.party_id="]
    found = run_json("config", "check", *words, exit_code=output.WRONG)
    places = " ".join(problem["where"] for problem in found["problems"])
    for place in ("keys.key", "http.path", "http.allow", "application.url", "party"):
        assert place in places
    assert "store.path" in places
    assert any("bad.toml" in problem["problem"] for problem in found["problems"])
    assert all(problem["next"] for problem in found["problems"])
    text = run("config", "check", *words, exit_code=output.WRONG).stdout
    assert "chmod 600" in text


@pytest.mark.parametrize("command", [("config", "check"), ("serve",)])
def test_a_port_above_the_last_is_refused_before_anything_listens(
    parties: Path, command: tuple[str, ...]
) -> None:
    port = ("--set", "http.port=70000")
    told = run(*command, *port, exit_code=output.BAD_INPUT).stderr
    assert "70000 is not a whole number from 0 to 65535" in told


def test_config_check_knows_whose_agreements_they_are(parties: Path) -> None:
    run("partner", "add", parties / "globex", "--both", "--insecure")
    file = parties / "acme" / "agreements" / "globex.toml"
    file.write_text((parties / "globex" / "agreements" / "acme.toml").read_text()
                    .replace("partners/acme.crt", "partners/globex.crt"))  # fmt: skip
    found = run_json("config", "check", exit_code=output.WRONG)
    assert "is an agreement of urn:oncewire:party:globex" in found["problems"][0]["problem"]


def test_config_check_without_keys(parties: Path) -> None:
    (parties / "acme" / "keys" / "acme.key").unlink()
    found = run_json("config", "check", exit_code=output.WRONG)
    assert "acme.key" in found["problems"][0]["problem"]


def test_bad_settings_end_with_2(parties: Path) -> None:
    found = run_json("config", "show", "--set", "http.prot=1", exit_code=output.BAD_INPUT)
    assert "http.port" in found["problems"][0]["next"]


# --- agreements --------------------------------------------------------------------------------


@pytest.fixture
def agreed(parties: Path) -> Path:
    run("partner", "add", parties / "globex", "--insecure")
    return parties / "acme" / "agreements" / "globex.toml"


def test_agreement_check_names_dangers(agreed: Path) -> None:
    found = run_json("agreement", "check")
    assert found["checked"] == 1
    assert {row["severity"] for row in found["findings"]} == {"danger"}
    assert all(row["fix"] and row["sentence"] for row in found["findings"])
    run("agreement", "check", "--strict", exit_code=output.WRONG)
    assert "plain HTTP" in run("agreement", "check", "globex").stdout


def test_agreement_check_of_a_bad_file_is_a_finding(agreed: Path) -> None:
    agreed.write_text(agreed.read_text().replace("[delivery]", "[delivery]\nretrys = 3"))
    found = run_json("agreement", "check", agreed, exit_code=output.WRONG)
    (finding,) = [row for row in found["findings"] if row["severity"] == "error"]
    assert "delivery.retries" in finding["fix"]
    assert finding["file"] == "agreements/globex.toml"


def test_agreement_check_outside_any_party(
    agreed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_json("agreement", "check", agreed)["checked"] == 1
    run("agreement", "check", exit_code=output.NOT_FOUND)


def test_agreement_check_reads_cpas(corpus: Path, parties: Path) -> None:
    cpa = corpus / "ebms-core" / "cpa" / "cpaStubEBF.rm.http.signed-sha256.xml"
    run_json("agreement", "check", cpa, "--own", "00000000000000000000", exit_code=None)
    found = run_json("agreement", "show", cpa, "--own", "00000000000000000000")
    assert found["cpa_id"]
    wrong = run_json("agreement", "show", cpa, "--own", "nobody", exit_code=output.BAD_INPUT)
    assert wrong["problems"][0]["next"]


def test_agreement_show_explains_values(agreed: Path) -> None:
    found = run_json("agreement", "show", "globex", "--only", "delivery.retries")
    assert [row["key"] for row in found["values"]][:1] == ["delivery.retries"]
    assert found["values"][0]["says"]
    text = run("agreement", "show", "globex", "--toml").stdout
    assert text.startswith("cpa_id")
    missing = run_json("agreement", "show", "nobody", exit_code=output.NOT_FOUND)
    assert "globex" in missing["problems"][0]["next"]


def test_agreement_new_writes_what_check_accepts(parties: Path, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    words = ("--partner", "urn:x:globex", "--address", "https://globex.example/msh")
    run("agreement", "new", *words, "-o", file)
    checked = run_json("agreement", "check", file)
    assert checked["checked"] == 1
    # A partner may be away for a night.
    assert read_toml(file.read_text()).sending.terms.longest_retry >= DAY
    assert "delivery.retries" not in [finding["key"] for finding in checked["findings"]]
    shown = run("agreement", "new", *words).stdout
    assert shown == file.read_text()
    run("agreement", "new", *words, "-o", file, exit_code=output.NOT_ALLOWED)
    bad = run_json("agreement", "new", *words, "--profile", "ebsm2", exit_code=output.BAD_INPUT)
    assert "ebms2" in bad["problems"][0]["next"]


def test_profiles_are_listed() -> None:
    names = [row["profile"] for row in run_json("agreement", "profiles")["profiles"]]
    assert {"ebms2", "ms-0.9x", "rm-0.78"} <= set(names)

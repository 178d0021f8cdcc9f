"""Settings: the last one who speaks wins, and every value can say who that was."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from oncewire.entry.party import settings
from oncewire.entry.party.settings import KEYS, ApplicationWay, find_file, flags_of, load
from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.message.instant import seconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "oncewire.toml").write_text(
        '[party]\nname = "acme"\nparty_id = "urn:x:acme"\n[http]\nport = 9000\n'
    )
    return tmp_path


def test_file_then_environment_then_flag(folder: Path) -> None:
    variables = {"ONCEWIRE_HTTP_PORT": "9001", "ONCEWIRE_HTTP_PATH": "/in"}
    loaded = load(folder, environ=variables, flags={"http.path": "/flag"})
    assert loaded.settings.party.name == "acme"
    assert loaded.settings.http.port == 9001
    assert loaded.settings.http.path == "/flag"
    origins = {said.key.name: said.origin for said in loaded.said}
    assert origins["party.name"] == str(folder / "oncewire.toml")
    assert origins["http.port"] == "ONCEWIRE_HTTP_PORT"
    assert origins["http.path"] == "flag"
    assert origins["http.host"] == "default"


def test_settings_do_not_change(folder: Path) -> None:
    loaded = load(folder, environ={})
    with pytest.raises(FrozenInstanceError):
        loaded.settings.http.port = 1  # type: ignore[misc]


def test_every_key_has_one_variable_and_a_sentence() -> None:
    assert len({key.variable for key in KEYS.values()}) == len(KEYS)
    for key in KEYS.values():
        assert key.says.endswith("."), key.name
        assert key.kind.show(key.default) is not None


@pytest.mark.parametrize("name", sorted(KEYS))
def test_every_default_can_be_written_and_read_back(name: str, tmp_path: Path) -> None:
    key = KEYS[name]
    if key.default in (None, ""):
        return
    section, _, tail = name.partition(".")
    (tmp_path / "oncewire.toml").write_text(
        f"[{section}]\n{tail} = {key.kind.literal(key.default)}\n"
    )
    loaded = load(tmp_path, environ={})
    said = next(said for said in loaded.said if said.key.name == name)
    assert said.value == key.default
    assert said.origin != "default"


def test_a_secret_is_never_shown(folder: Path) -> None:
    loaded = load(folder, environ={"ONCEWIRE_APPLICATION_SECRET": "hush-hush"})
    assert loaded.settings.application.secret == "hush-hush"
    said = next(said for said in loaded.said if said.key.name == "application.secret")
    assert said.shown == "[secret]"


def test_a_password_in_an_address_is_never_shown(tmp_path: Path) -> None:
    url = "https://hook:hush@shop.example/in?number=7"
    (tmp_path / "oncewire.toml").write_text(f'[application]\nurl = "{url}"\n')
    found = load(tmp_path, environ={})
    assert found.settings.application.url == url
    (shown,) = (said.shown for said in found.said if said.key.name == "application.url")
    assert shown == "https://[secret]@shop.example/in?number=7"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[http]\nprot = 1\n", ["http.prot", "http.port"]),
        ("[htp]\nport = 1\n", ["'htp'", "http"]),
        ("port = 1\n", ["'port'"]),
        ("[http]\nport = true\n", ["http.port", "not a whole number"]),
        ("[http]\nport = -5\n", ["http.port", "from 0 to"]),
        ("[http]\ntls = 3\n", ["http.tls", "not true or false"]),
        ("[http]\nhost = 5\n", ["http.host", "not text"]),
        ("[http]\nallow = 5\n", ["http.allow", "not a list"]),
        ("[budget]\nprocessor = 'soon'\n", ["budget.processor", "not a duration"]),
        ("[budget]\nprocessor = 0\n", ["budget.processor", "zero"]),
        ("[budget]\nprocessor = false\n", ["budget.processor", "not a duration"]),
        ("[application]\nway = 'pigeon'\n", ["application.way", "pull, directory, webhook"]),
        ("[store]\npath = ''\n", ["store.path", "empty"]),
        ('[party]\nname = "a\\u0007"\n', ["party.name", "control character"]),
        ("[http]\nport = 65536\n", ["http.port", "from 0 to 65535"]),
        ("[smtp]\nrelay_port = 65536\n", ["smtp.relay_port", "from 0 to 65535"]),
        ("[party\n", ["is not TOML"]),
        (f"[http]\nport = {'9' * 5_000}\n", ["is not TOML", "number is too long"]),
        (f"[http]\nallow = {'[' * 5_000}{']' * 5_000}\n", ["is not TOML", "nested too deeply"]),
        ('[party]\nname = "a\x07b"\n', ["is not TOML"]),
    ],
)
def test_bad_settings_are_named_with_the_remedy(
    tmp_path: Path, text: str, names: list[str]
) -> None:
    (tmp_path / "oncewire.toml").write_text(text)
    with pytest.raises(InvalidValue) as caught:
        load(tmp_path, environ={})
    for name in names:
        assert name in str(caught.value)
    assert caught.value.remedy


def test_a_setting_of_an_earlier_version_that_did_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "oncewire.toml").write_text("[http]\ntimeout = 5\nport = 8501\n")
    flags = flags_of(["http.timeout=5"])
    loaded = load(tmp_path, environ={"ONCEWIRE_HTTP_TIMEOUT": "5"}, flags=flags)
    assert loaded.settings.http.port == 8501
    assert "http.timeout" not in [said.key.name for said in loaded.said]


def test_a_misspelt_variable_is_an_error_and_a_foreign_one_is_not(folder: Path) -> None:
    load(folder, environ={"ONCEWIRE_CORPUS": "/x", "ONCEWIRE_KILL_POINT": "y", "HTTP_PORT": "z"})
    with pytest.raises(InvalidValue, match="ONCEWIRE_HTTP_PROT") as caught:
        load(folder, environ={"ONCEWIRE_HTTP_PROT": "1"})
    assert "http.port" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("http.tls", "yes", True),
        ("http.tls", "OFF", False),
        ("http.allow", "public, 10.0.0.0/8", ("public", "10.0.0.0/8")),
        ("budget.processor", "PT5M", seconds(300)),
        ("budget.processor", "90", seconds(90)),
        ("application.way", "Directory", ApplicationWay.DIRECTORY),
        ("log.file", "x.log", Path("x.log")),
    ],
)
def test_text_from_the_environment_is_read_by_kind(
    folder: Path, name: str, text: str, value: object
) -> None:
    loaded = load(folder, environ={KEYS[name].variable: text})
    assert next(said.value for said in loaded.said if said.key.name == name) == value


def test_flags_are_checked(folder: Path) -> None:
    assert flags_of(["http.port=1", "log.level = debug"]) == {
        "http.port": "1",
        "log.level": " debug",
    }
    with pytest.raises(InvalidValue, match="has no value"):
        flags_of(["http.port"])
    with pytest.raises(InvalidValue, match=r"http\.prot") as caught:
        load(folder, environ={}, flags=flags_of(["http.prot=1"]))
    assert "http.port" in caught.value.remedy


def test_the_file_is_found_here_above_or_where_it_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = folder / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert find_file(environ={}) == folder / "oncewire.toml"
    assert find_file(folder / "oncewire.toml", environ={}) == folder / "oncewire.toml"
    assert find_file(environ={"ONCEWIRE_CONFIG": str(folder)}) == folder / "oncewire.toml"
    with pytest.raises(NotHere) as caught:
        find_file(deep, environ={})
    assert "oncewire init" in caught.value.remedy


def test_no_file_anywhere_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotHere) as caught:
        find_file(environ={})
    assert "oncewire init" in caught.value.remedy


def test_an_unreadable_file_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(NotAllowed, match="Permission denied"):
        load(folder, environ={})


@pytest.mark.parametrize(
    ("http", "url"),
    [
        ("host = '127.0.0.1'\nport = 1", "http://127.0.0.1:1/msh"),
        ("host = '0.0.0.0'\nport = 1\ntls = true", "https://127.0.0.1:1/msh"),
        ("host = '::1'\nport = 1\npath = '/x'", "http://[::1]:1/x"),
        ("public_url = 'https://acme.example/in'", "https://acme.example/in"),
    ],
)
def test_the_endpoint_as_partners_write_it(tmp_path: Path, http: str, url: str) -> None:
    (tmp_path / "oncewire.toml").write_text(f"[http]\n{http}\n")
    assert load(tmp_path, environ={}).settings.endpoint_url == url


def test_paths_begin_at_the_partys_folder(folder: Path) -> None:
    found = load(folder, environ={}).settings
    assert found.path(found.store.path) == folder.resolve() / "data" / "oncewire.db"
    assert found.path(Path("/absolute")) == Path("/absolute")
    assert settings.FILE == "oncewire.toml"

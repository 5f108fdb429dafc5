"""Sources of settings, their precedence, and errors."""

import os
import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from keystead.kits.login import KIT as LOGIN
from keystead.parts.sizes import size_bytes
from keystead.server import MissingSettings, Settings, WrongSettings
from keystead.server.kit_loading import load_kits, refuse_memory_with_workers, require_settings
from keystead.server.secrets_file import new_seal_key
from keystead.server.settings import TABLES_FILE
from keystead.server.settings_errors import FIELDS, SECRETS_FILE
from tests.server.notes import KIT, NotesSettings

SECRET = "correct-horse-battery"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and an environment without settings."""
    for name in list(os.environ):
        if name.startswith(("KEYSTEAD_", "DISCORD_", "NOTES_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(folder: Path, text: str, name: str = "keystead.toml") -> None:
    (folder / name).write_text(text)


def settings_error(**flags: object) -> str:
    with pytest.raises(WrongSettings) as raised:
        Settings(**flags)
    return str(raised.value)


def test_defaults_without_any_settings() -> None:
    settings = Settings()
    assert (settings.store, settings.host, settings.port, settings.workers) == (
        "sqlite:///keystead.db",
        "127.0.0.1",
        8700,
        1,
    )
    assert settings.development
    assert settings.kits is None
    assert settings.max_body == 1_000_000
    assert settings.request_timeout == 30_000
    assert settings.origin == "http://127.0.0.1:8700"
    assert settings.logs_as == "text"


def test_settings_precedence_is_flags_environment_secrets_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(folder, 'port = 8701\nworkers = 2\nhost = "127.0.0.2"\nlog_level = "error"\n')
    monkeypatch.setenv("KEYSTEAD_PORT", "8703")
    monkeypatch.setenv("KEYSTEAD_WORKERS", "4")
    settings = Settings(port="8704")
    assert (settings.port, settings.workers, settings.host, settings.log_level) == (8704, 4, "127.0.0.2", "error")
    config(folder, '[notes]\napi_key = "file"\n[notes.providers.discord]\nclient_secret = "file"\n')
    config(folder, '[notes]\napi_key = "secrets"\n[notes.providers.discord]\nclient_secret = "secrets"\n', SECRETS_FILE)
    monkeypatch.setenv("NOTES_API_KEY", "environment")
    own: NotesSettings = Settings().of(KIT)
    assert own.api_key == SecretStr("environment")
    assert own.providers["discord"].client_secret == SecretStr("secrets")


def test_the_tables_of_a_kit_are_merged_setting_by_setting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(folder, '[notes]\nlongest = 7\n[notes.providers.discord]\nclient_id = "file"\n')
    config(folder, f'[notes.providers.discord]\nclient_secret = "{SECRET}"\n', SECRETS_FILE)
    monkeypatch.setenv("KEYSTEAD_NOTES__PROVIDERS__GITHUB__CLIENT_ID", "hub")
    own: NotesSettings = Settings().of(KIT)
    assert own.longest == 7
    assert own.providers["discord"].client_id == "file"
    secret = own.providers["discord"].client_secret
    assert secret is not None
    assert secret.get_secret_value() == SECRET
    assert own.providers["github"].client_id == "hub"


def test_document_variables_are_read_and_keystead_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCORD_CLIENT_ID", "document")
    assert Settings().of(KIT).providers["discord"].client_id == "document"
    monkeypatch.setenv("KEYSTEAD_NOTES__PROVIDERS__DISCORD__CLIENT_ID", "own")
    assert Settings().of(KIT).providers["discord"].client_id == "own"


def test_an_empty_variable_counts_as_unset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(folder, '[notes.providers.discord]\nclient_id = "file"\n')
    monkeypatch.setenv("DISCORD_CLIENT_ID", "")
    assert Settings().of(KIT).providers["discord"].client_id == "file"


def test_lists_are_separated_by_commas_and_stores_are_named_by_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYSTEAD_KITS", "login, myapp.kit:KIT")
    monkeypatch.setenv("KEYSTEAD_FORWARDED_ALLOW", "127.0.0.1,10.0.0.0/8")
    monkeypatch.setenv("KEYSTEAD_STORES__DURABLE", "sqlite:///durable.db")
    settings = Settings(stores={"cache": "memory://"})
    assert settings.kits == ("login", "myapp.kit:KIT")
    assert settings.forwarded_allow == ("127.0.0.1", "10.0.0.0/8")
    assert settings.store_urls == {
        "default": "sqlite:///keystead.db",
        "durable": "sqlite:///durable.db",
        "cache": "memory://",
    }


def test_the_role_default_may_be_among_the_stores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(folder, '[stores]\ndefault = "redis://localhost:6379/0"\ndurable = "sqlite:///durable.db"\n')
    assert Settings().store_urls == {"default": "redis://localhost:6379/0", "durable": "sqlite:///durable.db"}
    assert Settings(store="memory://").store == "memory://"  # a flag wins, however it is written below
    monkeypatch.setenv("KEYSTEAD_STORES__DEFAULT", "sqlite:///environment.db")
    assert Settings().store_urls == {"default": "sqlite:///environment.db", "durable": "sqlite:///durable.db"}


def test_the_role_default_cannot_be_set_twice(folder: Path) -> None:
    config(folder, f'store = "redis://:{SECRET}@a"\n[stores]\ndefault = "redis://:{SECRET}@b"\n')
    said = "stores.default in keystead.toml and store in keystead.toml: both set the store of the role default; "
    assert settings_error() == f"{said}use one of them"
    config(folder, '[stores]\ndefault = ""\n')
    assert settings_error().startswith("stores.default in keystead.toml: this is not the URL of a store")


def test_a_named_config_file_is_read_and_must_exist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(folder, "port = 8701\n")
    config(folder, "port = 8702\n", "other.toml")
    monkeypatch.setenv("KEYSTEAD_CONFIG", "other.toml")
    assert Settings().port == 8702
    monkeypatch.setenv("KEYSTEAD_CONFIG", "none.toml")
    assert settings_error() == "none.toml: cannot be read (No such file or directory)"


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("workers", "0", "'0' is not a number from 1 to 256"),
        ("mode", "prod", "'prod' is neither development nor production"),
        ("log_format", "xml", "'xml' is neither text nor json"),
        ("log_level", "loud", "'loud' is none of debug, info, warning and error"),
        ("max_body", "big", "'big' is not a size; write one such as 500kB or 2MB"),
        ("request_timeout", "30", "'30' is not a duration; write one with its unit, such as 500ms or 30s"),
        ("stop_timeout", "-1s", "'-1s' is not a duration; write one with its unit, such as 500ms or 5s"),
        ("forwarded_allow", "proxy", "'proxy' is not a list of addresses or networks; write some such as"),
        ("metrics", "perhaps", "'perhaps' is neither true nor false"),
    ],
)
def test_an_invalid_setting_is_reported_with_name_source_and_advice(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: str, said: str
) -> None:
    config(folder, f'{name} = "{given}"\n')
    assert settings_error().startswith(f"{name} in keystead.toml: {said}")
    monkeypatch.setenv(f"KEYSTEAD_{name.upper()}", given)
    assert settings_error().startswith(f"KEYSTEAD_{name.upper()}: {said}")


def test_all_invalid_settings_are_reported_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(folder, 'log_level = "loud"\n')
    monkeypatch.setenv("KEYSTEAD_WORKERS", "many")
    assert settings_error(port="x") == (
        "--port: 'x' is not a number from 1 to 65535; KEYSTEAD_WORKERS: 'many' is not a number from 1 to 256; "
        "log_level in keystead.toml: 'loud' is none of debug, info, warning and error"
    )


@pytest.mark.parametrize(
    "url", ["example.net", "ftp://example.com", "https://example.com/app", "https://a:b@example.com", "https://e.com?x"]
)
def test_a_public_url_is_an_origin(url: str) -> None:
    assert settings_error(public_url=url).startswith("--public-url: write where browsers reach this server")
    assert url not in settings_error(public_url=url)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("prot = 1", "prot in keystead.toml: there is no such setting; did you mean port?"),
        ("zebra = 1", "zebra in keystead.toml: there is no such setting; `keystead guide settings` lists all of them"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_one(folder: Path, line: str, said: str) -> None:
    config(folder, f"{line}\n")
    assert settings_error() == said


def test_a_table_that_belongs_to_no_kit_is_refused(folder: Path) -> None:
    config(folder, "[logn]\n")
    with pytest.raises(WrongSettings, match=r"logn in keystead.toml: there is no such setting; did you mean login\?"):
        load_kits(Settings())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[notes]\nlonget = 1\n", "notes.longet in keystead.toml: there is no such setting; did you mean longest?"),
        (
            "[notes.providers.discord]\nclient_ids = 1\n",
            "notes.providers.discord.client_ids in keystead.toml: there is no such setting; did you mean client_id?",
        ),
        ('[notes]\nlongest = "x"\n', "notes.longest in keystead.toml: this should be a valid integer"),
    ],
)
def test_invalid_kit_settings_are_reported_too(folder: Path, text: str, said: str) -> None:
    config(folder, text)
    with pytest.raises(WrongSettings) as raised:
        Settings().of(KIT)
    assert str(raised.value).startswith(said)


def test_an_invalid_setting_of_a_kit_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYSTEAD_NOTES__LONGEST", "-4")
    with pytest.raises(WrongSettings, match=r"^KEYSTEAD_NOTES__LONGEST: this should be greater than or equal to 1$"):
        Settings().of(KIT)


def test_a_typo_in_a_variable_is_reported_and_unrelated_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYSTEAD_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KEYSTEAD_PORT_8700_TCP", "tcp://10.0.0.1:8700")
    assert Settings().port == 8700
    monkeypatch.setenv("KEYSTEAD_WORKRES", "2")
    assert settings_error() == "KEYSTEAD_WORKRES: there is no such setting; did you mean KEYSTEAD_WORKERS?"


def test_invalid_toml_is_a_one_line_error(folder: Path) -> None:
    config(folder, "port = \n")
    assert re.fullmatch(r"keystead.toml is not TOML: .* \(at line 1, column 8\)", settings_error())


def test_messages_never_repeat_a_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(folder, f'port = "x"\nstores = "redis://:{SECRET}@h"\n[notes]\napi_key = ["{SECRET}"]\n')
    monkeypatch.setenv("KEYSTEAD_SEAL_KEYS", f"a:{SECRET}")
    said = settings_error(store="")
    assert "KEYSTEAD_SEAL_KEYS: the seal key after 'a'" in said or "seal key 'a'" in said
    assert SECRET not in said
    config(folder, f'[notes]\napi_key = ["{SECRET}"]\n')
    monkeypatch.delenv("KEYSTEAD_SEAL_KEYS")
    settings = Settings(store=f"redis://:{SECRET}@h")
    with pytest.raises(WrongSettings) as raised:
        settings.of(KIT)
    assert "notes.api_key in keystead.toml" in str(raised.value)
    for text in (str(raised.value), repr(settings), str(settings)):
        assert SECRET not in text


def test_seal_keys_in_the_config_file_are_refused(folder: Path) -> None:
    config(folder, f'seal_keys = "{new_seal_key()}"\n')
    said = settings_error()
    assert said.startswith("seal_keys in keystead.toml: this file may be shared")


def test_an_address_of_all_interfaces_is_reached_on_this_machine() -> None:
    assert Settings(host="0.0.0.0", port=1234).origin == "http://127.0.0.1:1234"
    assert Settings(host="::1", port=1234).origin == "http://[::1]:1234"
    assert Settings(public_url="https://Example.com/").origin == "https://example.com"


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://example.com:443", "https://example.com"),
        ("http://127.0.0.1:80/", "http://127.0.0.1"),
        ("https://example.com:8443", "https://example.com:8443"),
        ("https://b\u00fccher.example", "https://xn--bcher-kva.example"),
        ("http://[::1]:8700", "http://[::1]:8700"),
    ],
)
def test_the_public_url_is_written_as_browsers_write_an_origin(given: str, origin: str) -> None:
    assert Settings(public_url=given).origin == origin


def test_secrets_are_beside_the_database_or_in_the_working_directory() -> None:
    assert Settings().secrets_path == Path(SECRETS_FILE)
    assert Settings(store="sqlite:////var/lib/app/my.db").secrets_path == Path("/var/lib/app") / SECRETS_FILE
    assert Settings(store="redis://localhost").secrets_path == Path(SECRETS_FILE)
    assert Settings(secrets_file="elsewhere.toml").secrets_path == Path("elsewhere.toml")


def test_production_lists_all_missing_settings() -> None:
    with pytest.raises(MissingSettings) as raised:
        require_settings(Settings(mode="production"), [KIT])
    assert [sentence.partition(":")[0] for sentence in raised.value.sentences] == [
        "seal_keys",
        "public_url",
        "notes.api_key",
    ]
    assert "keystead secrets new" in str(raised.value)


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://example.com", True),
        ("http://127.0.0.1:8700", True),
        ("http://localhost:8700", True),
        ("http://example.com", False),
        ("http://localhost.example.com", False),
        ("http://127.0.0.1.example.com", False),
    ],
)
def test_production_allows_http_on_this_machine_only(url: str, taken: bool) -> None:
    settings = Settings(mode="production", public_url=url)
    if taken:
        require_settings(settings, [])
    else:
        with pytest.raises(MissingSettings, match="public_url: must be https"):
            require_settings(settings, [])


def test_production_refuses_a_secrets_file_that_others_can_read(folder: Path) -> None:
    config(folder, f'seal_keys = "{new_seal_key()}"\n[notes]\napi_key = "x"\n', SECRETS_FILE)
    (folder / SECRETS_FILE).chmod(0o640)
    with pytest.raises(MissingSettings, match=f"others can read {SECRETS_FILE}; run chmod 600"):
        require_settings(Settings(mode="production", public_url="https://example.com"), [KIT])
    (folder / SECRETS_FILE).chmod(0o600)
    require_settings(Settings(mode="production", public_url="https://example.com"), [KIT])


def test_production_refuses_a_secrets_file_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(folder, f'seal_keys = "{new_seal_key()}"\n[notes]\napi_key = "x"\n', SECRETS_FILE)
    (folder / SECRETS_FILE).chmod(0o600)
    owner = (folder / SECRETS_FILE).stat().st_uid
    if os.geteuid() == 0:
        os.chown(folder / SECRETS_FILE, 65534, 65534)
        owner = 65534
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    settings = Settings(mode="production", public_url="https://example.com")
    with pytest.raises(MissingSettings, match=rf"{SECRETS_FILE} belongs to another user \(uid {owner}\)"):
        require_settings(settings, [KIT])


def test_the_owner_is_checked_on_the_secrets_file_that_was_read(folder: Path) -> None:
    config(folder, f'seal_keys = "{new_seal_key()}"\n[notes]\napi_key = "x"\n', SECRETS_FILE)
    (folder / SECRETS_FILE).chmod(0o644)
    settings = Settings(mode="production", public_url="https://example.com")
    (folder / "private").write_text("")
    (folder / "private").chmod(0o600)
    (folder / "private").replace(folder / SECRETS_FILE)
    with pytest.raises(MissingSettings, match="others can read"):
        require_settings(settings, [KIT])


@pytest.mark.parametrize(
    ("text", "setting", "variable"),
    [
        ('kits = ["mallory.kit:KIT"]', "kits", "KEYSTEAD_KITS"),
        ('store = "sqlite:///other.db"', "store", "KEYSTEAD_STORE"),
        ('forwarded_allow = ["0.0.0.0/0"]', "forwarded_allow", "KEYSTEAD_FORWARDED_ALLOW"),
        ('[stores]\ncache = "memory://"', "stores", "KEYSTEAD_STORES"),
        ("[notes]\nlongest = 1", "notes.longest", "KEYSTEAD_NOTES__LONGEST"),
        (
            f'[notes.providers.discord]\nclient_id = "{SECRET}"\nclient_secret = "x"',
            "notes.providers.discord.client_id",
            "KEYSTEAD_NOTES__PROVIDERS__DISCORD__CLIENT_ID",
        ),
    ],
)
def test_the_secrets_file_may_only_contain_secrets(folder: Path, text: str, setting: str, variable: str) -> None:
    config(folder, f"{text}\n", SECRETS_FILE)
    with pytest.raises(WrongSettings) as raised:
        Settings().of(KIT)
    assert str(raised.value) == (
        f"{setting} in {SECRETS_FILE}: this file may only contain secrets; set it in keystead.toml or {variable}"
    )


def test_the_secrets_file_may_not_have_a_table_named_tables(folder: Path) -> None:
    config(folder, "[tables.notes]\nlongest = 1\n", SECRETS_FILE)
    assert settings_error().startswith(f"tables in {SECRETS_FILE}: there is no such setting")


def test_several_workers_cannot_share_a_memory_store() -> None:
    with pytest.raises(WrongSettings, match=r"^workers: 2 workers cannot share a store memory://"):
        refuse_memory_with_workers(Settings(store="memory://", workers=2))
    with pytest.raises(WrongSettings, match="role cache"):
        refuse_memory_with_workers(Settings(stores={"cache": "memory://"}, workers=2))
    refuse_memory_with_workers(Settings(store="memory://", workers=1))


@pytest.mark.parametrize(
    ("kits", "said"),
    [
        ("logn", "'logn' is not a kit with routes; did you mean login?"),
        ("myapp.kit", "is not a kit with routes"),
        ("no_such_module:KIT", "'no_such_module:KIT' cannot be imported"),
        ("tests.server.notes:Note", "is not a kit; tests.server.notes must have Note = Kit("),
        ("login,login", "'login' is listed twice"),
    ],
)
def test_an_invalid_kit_is_a_one_line_error(kits: str, said: str) -> None:
    with pytest.raises(WrongSettings) as raised:
        load_kits(Settings(kits=kits))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("given", "size"), [("1MB", 1_000_000), ("64KiB", 65_536), ("500 kB", 500_000), (12, 12), ("12", 12), ("3b", 3)]
)
def test_a_size_has_a_unit_or_is_in_bytes(given: object, size: int) -> None:
    assert size_bytes(given) == size


@pytest.mark.parametrize("given", ["", "MB", "-1", 0, "0MB", "1.5MB", True, None, "1XB"])
def test_invalid_sizes_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match="no size"):
        size_bytes(given)


@pytest.mark.parametrize(("variable", "near"), [("KEYSTEAD_PROT", "KEYSTEAD_PORT"), ("KEYSTEAD_HSOT", "KEYSTEAD_HOST")])
def test_swapped_letters_are_detected(variable: str, near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(WrongSettings, match=f"{variable}: .*{near}"):
        Settings()


def test_an_unknown_variable_of_a_kit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYSTEAD_LOGIN__CAPP", "1")
    with pytest.raises(WrongSettings, match=r"KEYSTEAD_LOGIN__CAPP: .*KEYSTEAD_LOGIN__CAP\?"):
        Settings().of(LOGIN)


# --- where relational tables are -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "database"),
    [
        ("sqlite:///keystead.db", "sqlite:///keystead.tables.db"),
        ("sqlite:////var/lib/app/my.db", "sqlite:////var/lib/app/my.tables.db"),
        ("postgresql://ann:secret@host/app", "postgresql://ann:secret@host/app"),
        ("mysql://ann:secret@host/app", "mysql://ann:secret@host/app"),
        ("memory://", "memory://"),
        ("redis://localhost", TABLES_FILE),
        ("redis+cluster://a:1,b:2", TABLES_FILE),
    ],
)
def test_tables_are_beside_the_store_or_in_development_in_a_file(store: str, database: str) -> None:
    assert Settings(store=store).database_url == database


def test_the_database_setting_has_all_sources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "keystead.toml").write_text('database = "sqlite:///of-the-file.db"\n')
    assert Settings().database_url == "sqlite:///of-the-file.db"
    monkeypatch.setenv("KEYSTEAD_DATABASE", "postgresql://ann:secret@host/app")
    assert Settings().database_url == "postgresql://ann:secret@host/app"
    assert Settings(database="memory://").database_url == "memory://"
    assert "secret@" not in repr(Settings())


def test_production_requires_a_database_if_the_store_cannot_hold_tables() -> None:
    from keystead.kits.membership import KIT as MEMBERSHIP

    def lacking(**given: str) -> list[str]:
        with pytest.raises(MissingSettings) as raised:
            require_settings(Settings(mode="production", **given), [MEMBERSHIP])
        return [one for one in raised.value.sentences if one.startswith("database")]

    [said] = lacking(store="redis://localhost")
    assert "for the tables of membership" in said
    assert lacking(store="redis://localhost", database="postgresql://ann@host/app") == []
    assert lacking(store="postgresql://ann@host/app") == []
    with pytest.raises(MissingSettings) as raised:
        require_settings(Settings(mode="production", store="redis://localhost"), [KIT])
    assert "database" not in str(raised.value)  # of a kit that has no tables


def test_several_workers_cannot_share_tables_in_memory() -> None:
    with pytest.raises(WrongSettings, match=r"^workers: 2 workers cannot share a database memory://"):
        refuse_memory_with_workers(Settings(database="memory://", workers=2))


def test_every_setting_has_advice_for_a_wrong_value() -> None:
    assert {*FIELDS, "tables"} == Settings.model_fields.keys()

"""What a running Keystead can be told: by flags, by the environment, by a secrets file and by `keystead.toml`."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretBytes, SecretStr, ValidationError, field_validator
from pydantic_settings import EnvSettingsSource, NoDecode, SettingsError

from keystead.errors import BadDeclaration, KeysteadError, shown
from keystead.kits import PARAMETERS
from keystead.parts.sizes import size_bytes
from keystead.schema import KeyRing
from keystead.schema.lifetime import duration_ms
from keystead.server.secrets_file import read_secrets

if TYPE_CHECKING:
    from keystead.kits.kit import Kit

CONFIG_FILE: Final = "keystead.toml"
SECRETS_FILE: Final = "keystead.secrets.toml"
TABLES_FILE: Final = "sqlite:///keystead.tables.db"  # of development, where the store has no place for tables
CONFIG_VARIABLE: Final = "KEYSTEAD_CONFIG"
PREFIX: Final = "KEYSTEAD_"
_NEAR: Final = 0.8  # a name of the environment this close to a setting is a slip of the pen, not somebody else's
_ALL_ADDRESSES: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class WrongSettings(KeysteadError):
    """Settings that cannot be used: a sentence for each, which names it, where it came from and what to write."""

    code = "wrong-settings"

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = tuple(sentences)


class MissingSettings(WrongSettings):
    """What production needs and nobody has set."""

    code = "missing-settings"

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(sentences)
        self.args = ("\n  - ".join(("production mode does not start without these settings:", *sentences)),)


@dataclass(frozen=True)
class SettingSource:
    """One place that settings come from, and how a person finds a setting there."""

    values: Mapping[str, Any]
    flags: bool = False
    environment: bool = False
    file: str = ""
    named: Mapping[str, str] = field(default_factory=dict)  # a setting written with dots -> where else it came from
    secrets: bool = False
    exposed: str = ""  # who else has a hand in a file of secrets

    def place_of(self, path: tuple[str, ...]) -> str:
        """`--port`, `KEYSTEAD_PORT`, `port in keystead.toml`, `RetentionPeriod in Session.json`."""
        if self.flags:
            return _flag(path)
        if ".".join(path) in self.named:
            return self.named[".".join(path)]
        if self.environment:
            return PREFIX + "__".join(path).upper()
        return f"{'.'.join(path)} in {self.file}"

    def holds(self, path: tuple[str, ...]) -> bool:
        values: Any = self.values
        for part in path:
            if not isinstance(values, Mapping) or part not in values:
                return False
            values = values[part]
        return True


class Settings(BaseModel):
    """What the server is told. Flags win over the environment, that over the secrets file, that over `keystead.toml`,
    and that over the files of `parameters`.

    `Settings(port=8800)` takes its arguments for flags and reads the rest as described. Raises `WrongSettings`, whose
    sentences never repeat a secret. What may hold one (`store`, `stores`, `database`, `seal_keys`, the tables of
    kits) is left out of the settings' own text form; show `store.url` of the opened store instead, which is redacted.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, extra="forbid", validate_default=True)

    store: str = Field(
        "sqlite:///keystead.db",
        min_length=1,
        repr=False,
        description="Where the keys live: the URL of the store of the role `default`.",
    )
    stores: dict[str, str] = Field(
        {},
        repr=False,
        description='Stores by role: `durable = "sqlite:///durable.db"` in the table `[stores]`. `default` there is '
        "`store`.",
    )
    database: str | None = Field(
        None,
        min_length=1,
        repr=False,
        description="Where kits that have relational tables keep them: the URL of a SQLite file, or of a database of "
        "PostgreSQL or MySQL. Without this, beside the data of `store`; see [tables.md](tables.md).",
    )
    host: str = Field("127.0.0.1", min_length=1, description="The address to listen on; `0.0.0.0` lets others in.")
    port: int = Field(8700, ge=1, le=65535, description="The port to listen on.")
    workers: int = Field(1, ge=1, le=256, description="How many processes answer requests.")
    kits: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None,
        description="Which kits run, divided by commas in the environment; one of your own as `myapp.kit:KIT`. Without "
        "this, all that have routes. In production, a kit that nobody has configured is off.",
    )
    mode: Literal["development", "production"] = Field(
        "development", description="`development` makes what is missing, `production` refuses to start without it."
    )
    public_url: str | None = Field(
        None,
        description="Where browsers reach this server, such as `https://example.com`. Without this, the address that "
        "is listened on; production wants it.",
    )
    log_format: Literal["text", "json"] | None = Field(
        None, description="One line a request, for people or for programs. Without this, `json` in production."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="What is logged; `warning` leaves the lines of requests out."
    )
    max_body: int = Field("1MB", description="The largest body of a request, such as `500kB` or `2MB`.")  # type: ignore[assignment]
    request_timeout: int = Field("30s", description="How long a request may take, such as `500ms` or `30s`.")  # type: ignore[assignment]
    header_timeout: int = Field(  # type: ignore[assignment]
        "10s",
        description="How long a connection may wait with the next request, or take to send its headers, such as `10s`.",
    )
    stop_timeout: int = Field("5s", description="How long requests under way may take to end when it is stopped.")  # type: ignore[assignment]
    slow_call: int = Field(  # type: ignore[assignment]
        "1s", description="A call to a store that takes this long is logged, with its family and procedure."
    )
    secrets_file: Path | None = Field(
        None,
        description="A file with secrets and nothing else, in the form of `keystead.toml`. Without this, "
        f"`{SECRETS_FILE}` beside the database file, or in the working directory.",
    )
    parameters: Path | None = Field(
        None,
        description="A folder with `Session.json` and `Kvs.json`, which say how long session data is kept and where, "
        "unless another setting does; see [sessiondata.md](sessiondata.md).",
    )
    forwarded_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Addresses and networks of proxies whose `X-Forwarded-For` and `-Proto` are believed."
    )
    metrics: bool = Field(True, description="Whether `/metrics` is there.")
    seal_keys: SecretStr | None = Field(
        None,
        repr=False,
        description="The keys that seal secrets in the store, `id:key,id2:key2`; the last one seals. "
        "`keystead secrets new` makes one.",
    )
    tables: dict[str, dict[str, Any]] = Field({}, repr=False, description="The tables of kits, by their names.")

    _origins: tuple[SettingSource, ...] = PrivateAttr(())

    def __init__(self, **flags: Any) -> None:
        origins = _origins(flags)
        values = _merged(origins)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise WrongSettings(list(_sentences(error, origins, values))) from None
        self._origins = tuple(origins)

    @field_validator("kits", "forwarded_allow", mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given

    @field_validator("forwarded_allow")
    @classmethod
    def _check_networks(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            ipaddress.ip_network(one, strict=False)
        return given

    @field_validator("max_body", mode="before")
    @classmethod
    def _read_size(cls, given: Any) -> int:
        return size_bytes(given)

    @field_validator("request_timeout", "header_timeout", "stop_timeout", "slow_call", mode="before")
    @classmethod
    def _read_duration(cls, given: Any) -> int:
        try:
            return duration_ms(given)
        except BadDeclaration as error:
            raise ValueError("no duration") from error

    @field_validator("public_url")
    @classmethod
    def _check_origin(cls, given: str | None) -> str | None:
        if given is None:
            return None
        url = urlsplit(given)
        if url.scheme not in ("http", "https") or not url.hostname or url.path not in ("", "/"):
            raise ValueError("no origin")
        if url.query or url.fragment or "@" in url.netloc:
            raise ValueError("no origin")
        if url.port == 0:
            raise ValueError("no origin")
        return _as_browsers_write(url.scheme, url.hostname, url.port)

    @field_validator("stores")
    @classmethod
    def _check_roles(cls, given: dict[str, str]) -> dict[str, str]:
        if any(not role.isidentifier() or role == "default" or not url for role, url in given.items()):
            raise ValueError("no role")
        return given

    @field_validator("seal_keys")
    @classmethod
    def _check_keys(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            try:
                KeyRing.from_text(given.get_secret_value())
            except BadDeclaration as error:  # whose sentence holds no key
                raise ValueError(str(error)) from None
        return given

    @property
    def development(self) -> bool:
        return self.mode == "development"

    @property
    def store_urls(self) -> dict[str, str]:
        """URLs by role."""
        return {"default": self.store, **self.stores}

    @property
    def database_url(self) -> str | None:
        """Where relational tables are: where it is said, or beside the store's own data.

        None: nobody said so, and the store is of a kind that has no such place. Development then takes a file in the
        working directory.
        """
        if self.database is not None:
            return self.database
        # Imported here, because few need it, and it takes its time.
        from keystead.parts.tables import url_beside

        return url_beside(self.store) or (TABLES_FILE if self.development else None)

    @property
    def origin(self) -> str:
        """Where browsers reach this server, as in https://example.com.

        Without `public_url` it is the very address that is said at the start: cookies belong to a host name, and
        `localhost` and `127.0.0.1` are two of them, so a login that began on one would not be known on the other.
        """
        return self.public_url or self.internal_url

    @property
    def internal_url(self) -> str:
        """Where this machine reaches this server."""
        host = reachable(self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def logs_as(self) -> Literal["text", "json"]:
        return self.log_format or ("text" if self.development else "json")

    @property
    def ring(self) -> KeyRing | None:
        return KeyRing.from_text(self.seal_keys.get_secret_value()) if self.seal_keys else None

    @property
    def secrets_path(self) -> Path:
        return secrets_path(self.secrets_file, self.store)

    @property
    def secrets_exposed(self) -> str:
        """Who else has a hand in the secrets file, in words; "" where nobody has, or there is none."""
        return next((one.exposed for one in self._origins if one.secrets), "")

    def of(self, kit: Kit) -> Any:
        """The settings of a kit: its table, with what the environment says of it. Raises `WrongSettings`."""
        environment, named = _kit_environment(kit)
        origins = (SettingSource({kit.name: environment}, environment=True, named=named), *self._origins)
        table = _deep({}, self.tables.get(kit.name, {}), environment)
        unknown = [
            _unknown_setting((kit.name, *path), near, origins) for path, near in _unknown_keys(kit.settings, table)
        ]
        if unknown:
            raise WrongSettings(unknown)
        for one in self._origins:
            if one.secrets:
                _refuse_open_settings(one, _open_keys(kit.settings, one.values.get(kit.name, {})), kit.name)
        try:
            return kit.settings.model_validate(table)
        except ValidationError as error:
            raise WrongSettings(
                [
                    f"{_place((kit.name, *_names(wrong['loc'])), origins)}: {_in_words(wrong['msg'])}"
                    for wrong in error.errors(include_input=False, include_url=False, include_context=False)
                ]
            ) from None

    def refuse_other_tables(self, names: Sequence[str], routed: Sequence[str]) -> None:
        """Raises `WrongSettings` for a table that belongs to no kit; one that does not run just now may stay."""
        for table in self.tables:
            if table not in names and table not in routed:
                raise WrongSettings(
                    [_unknown_setting((table,), _near(table, [*names, *routed, *_FIELDS]), self._origins)]
                )


_FIELDS: Final = tuple(name for name in Settings.model_fields if name != "tables")
# What the settings of a role, a store or a kit hold is never said again: it may be a secret.
_SHOWN: Final = frozenset(_FIELDS) - {"store", "stores", "database", "seal_keys", "public_url"}
_ADVICE: Final = {
    "store": "this is no URL of a store; write one such as sqlite:///keystead.db",
    "stores": 'write a table of roles and URLs of stores, such as durable = "sqlite:///durable.db"',
    "database": "this is no URL of a database; write one such as sqlite:///tables.db or postgresql://user@host/database",
    "host": "{given} is no address; write one such as 127.0.0.1",
    "port": "{given} is no number from 1 to 65535",
    "workers": "{given} is no number from 1 to 256",
    "kits": "{given} is no list of kits; write names such as login, divided by commas",
    "mode": "{given} is neither development nor production",
    "public_url": "write where browsers reach this server, such as https://example.com, without a path",
    "log_format": "{given} is neither text nor json",
    "log_level": "{given} is none of debug, info, warning and error",
    "max_body": "{given} is no size; write one such as 500kB or 2MB",
    "request_timeout": "{given} is no duration; write one with its unit, such as 500ms or 30s",
    "header_timeout": "{given} is no duration; write one with its unit, such as 500ms or 10s",
    "stop_timeout": "{given} is no duration; write one with its unit, such as 500ms or 5s",
    "slow_call": "{given} is no duration; write one with its unit, such as 500ms or 1s",
    "secrets_file": f"{{given}} is no path of a file; write one such as {SECRETS_FILE}",
    "parameters": "{given} is no path of a folder; write one such as App_Data/Parameters",
    "forwarded_allow": "{given} is no list of addresses or networks; write some such as 127.0.0.1,10.0.0.0/8",
    "metrics": "{given} is neither true nor false",
}


def reachable(address: str) -> str:
    """An address that a client on this machine can use, also when all addresses are listened on."""
    return _ALL_ADDRESSES.get(address, address)


def _as_browsers_write(scheme: str, host: str, port: int | None) -> str:
    """The origin as it stands in the header `SettingSource`: without the usual port, and other letters as xn--…"""
    if not host.isascii():
        host = host.encode("idna").decode()
    name = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}[scheme]
    return f"{scheme}://{name}" if port in (None, usual) else f"{scheme}://{name}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address that is listened on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def leads_to_loopback(url: str) -> bool:
    """Whether only a browser on this machine reaches this server under a URL."""
    host = urlsplit(url).hostname or ""
    return is_loopback(host) or host.endswith(".localhost")


def secrets_path(given: Path | None, store: str) -> Path:
    """Where the secrets are: beside the database file, or in the working directory."""
    if given is not None:
        return given
    file = Path(unquote(store.removeprefix("sqlite:///").partition("?")[0]))
    return (file.parent if store.startswith("sqlite:///") else Path()) / SECRETS_FILE


def _origins(flags: Mapping[str, Any]) -> list[SettingSource]:
    """Where settings come from, what wins first."""
    given = _with_default(
        SettingSource({name: value for name, value in flags.items() if value is not None}, flags=True)
    )
    environment = _with_default(SettingSource(_environment(), environment=True))
    config = _with_default(_config())
    parameters = _parameters(_merged([given, environment, config]))
    before = _merged([given, environment, config, parameters])
    path, store = before.get("secrets_file"), before.get("store")
    path = secrets_path(Path(path) if path else None, store if isinstance(store, str) else "")
    return [given, environment, _secrets(path), config, parameters]


def _with_default(origin: SettingSource) -> SettingSource:
    """`default` in the table of stores, which is the setting `store`."""
    stores = origin.values.get("stores")
    if not isinstance(stores, Mapping) or "default" not in stores:
        return origin
    place = origin.place_of(("stores", "default"))
    if "store" in origin.values:
        said = f"{place} and {origin.place_of(('store',))}"
        raise WrongSettings([f"{said}: both say where the role default lives; write one of them"])
    others = {role: url for role, url in stores.items() if role != "default"}
    values = {**origin.values, "store": stores["default"], "stores": others}
    return dataclasses.replace(origin, values=values, named={**origin.named, "store": place})


def _parameters(before: Mapping[str, Any]) -> SettingSource:
    """What the files of the folder `parameters` say. They are the last that is asked."""
    named = before.get("parameters")
    if not named or not isinstance(named, str | Path):
        return SettingSource({})
    module, _, function = PARAMETERS.partition(":")
    try:
        file, values, places = getattr(import_module(module), function)(Path(named), before)
    except ValueError as error:
        raise WrongSettings([f"parameters: {error}"]) from None
    return SettingSource(values, file=file, named=places)


def _secrets(path: Path) -> SettingSource:
    """The secrets file, if there is one. It may hold secrets only: others may be able to put one beside a database."""
    if not path.is_file():
        return SettingSource({})
    with _said_of(path):
        text, exposed = read_secrets(path)
        values = _with_tables(tomllib.loads(text), path.name)
    origin = SettingSource(values, file=path.name, secrets=True, exposed=exposed)
    if "tables" in values:  # the tables of kits stand for themselves; in here they would not be looked at
        raise WrongSettings([_unknown_setting(("tables",), "", [origin])])
    _refuse_open_settings(origin, ((name,) for name in values if name in _FIELDS and name != "seal_keys"))
    return origin


def _refuse_open_settings(secrets: SettingSource, paths: Iterable[tuple[str, ...]], *table: str) -> None:
    """Raises `WrongSettings` where these stand in the secrets file and are no secrets."""
    said = "only secrets may stand in this file; write it in"
    sentences = [
        f"{secrets.place_of((*table, *path))}: {said} {CONFIG_FILE} or {PREFIX}{'__'.join((*table, *path)).upper()}"
        for path in paths
    ]
    if sentences:
        raise WrongSettings(sentences)


def _environment() -> dict[str, Any]:
    for name in os.environ:
        setting = name.upper().removeprefix(PREFIX).lower()
        if not name.upper().startswith(PREFIX) or "__" in setting or setting in (*_FIELDS, "config"):
            continue
        swapped = [one for one in _FIELDS if sorted(one) == sorted(setting)]
        near = swapped or get_close_matches(setting, _FIELDS, 1, _NEAR)
        if near:
            raise WrongSettings([f"{name}: there is no such setting; did you mean {PREFIX}{near[0].upper()}?"])
    try:
        values: dict[str, Any] = EnvSettingsSource(
            Settings,  # type: ignore[arg-type]  # it reads the fields of any model
            env_prefix=PREFIX,
            env_nested_delimiter="__",
            case_sensitive=False,
        )()
    except SettingsError:
        raise WrongSettings([f"{PREFIX}STORES: {_ADVICE['stores']}"]) from None
    values.pop("tables", None)
    return values


def _config() -> SettingSource:
    """`keystead.toml`: the one that is named, which must be there, or the one in the working directory."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or CONFIG_FILE)
    if not named and not path.is_file():
        return SettingSource({})
    with _said_of(path):
        values = _with_tables(tomllib.loads(path.read_text("utf-8")), path.name)
    if "seal_keys" in values:
        raise WrongSettings(
            [f"seal_keys in {path.name}: this file is one to share; keep keys in {SECRETS_FILE} or {PREFIX}SEAL_KEYS"]
        )
    return SettingSource(values, file=path.name)


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    """What is wrong with a file that is read, as `WrongSettings`."""
    try:
        yield
    except tomllib.TOMLDecodeError as error:
        # Its sentence tells a line and a column, and may quote a character; never a value.
        raise WrongSettings([f"{path.name} is no TOML: {error}"]) from None
    except UnicodeDecodeError:
        raise WrongSettings([f"{path.name} is no TOML: it is not UTF-8"]) from None
    except OSError as error:
        raise WrongSettings([f"{path}: cannot be read ({error.strerror or error})"]) from None


def _with_tables(values: dict[str, Any], file: str) -> dict[str, Any]:
    """Tables that are no setting are those of kits; which kits there are is known later."""
    for name, value in values.items():
        if name not in _FIELDS and not isinstance(value, dict):
            raise WrongSettings([_unknown_setting((name,), _near(name, _FIELDS), [SettingSource(values, file=file)])])
    return values


def _merged(origins: Sequence[SettingSource]) -> dict[str, Any]:
    """All settings, with the tables of kits under `tables`."""
    merged = _deep({}, *(one.values for one in reversed(origins)))
    tables = {name: merged.pop(name) for name in list(merged) if name not in _FIELDS and isinstance(merged[name], dict)}
    given = tables.pop("tables", {})
    return {**merged, "tables": _deep(tables, given)} if tables or given else merged


def _deep(into: dict[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    for other in others:
        for name, value in other.items():
            there = into.get(name)
            into[name] = (
                _deep(dict(there), value) if isinstance(there, Mapping) and isinstance(value, Mapping) else value
            )
    return into


def _sentences(error: ValidationError, origins: Sequence[SettingSource], values: Mapping[str, Any]) -> Iterator[str]:
    said = set()
    for wrong in error.errors(include_input=False, include_url=False, include_context=False):
        name = str(wrong["loc"][0])
        if name in said:
            continue
        said.add(name)
        place = _place((name,), origins)
        if name == "seal_keys":
            yield f"{place}: {_in_words(wrong['msg'])}"
        elif name not in _ADVICE:
            yield f"{place}: there is no such setting"
        else:
            given = shown(repr(values.get(name))) if name in _SHOWN else ""
            yield f"{place}: {_ADVICE[name].format(given=given)}"


def _place(path: tuple[str, ...], origins: Sequence[SettingSource]) -> str:
    """Where a setting came from; one that nobody has set is named as in the file."""
    for length in range(len(path), 0, -1):
        for one in origins:
            if one.holds(path[:length]):
                return one.place_of(path if not one.flags else path[:length])
    return ".".join(path)


def _flag(path: tuple[str, ...]) -> str:
    if path[0] == "mode":
        return "--production/--development"
    return "--store" if path[0] == "stores" else f"--{path[0].replace('_', '-')}"


def _names(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    return tuple(str(part) for part in loc)


def _in_words(said: str) -> str:
    """Pydantic's own sentence, less its first word for what was given."""
    said = said.removeprefix("Value error, ")
    return re.sub(r"^[A-Z]\w+ should", "this should", said).replace("Field required", "this must be set", 1)


def _near(name: str, among: Sequence[str]) -> str:
    return next(iter(get_close_matches(name, among, 1)), "")


def _unknown_setting(path: tuple[str, ...], near: str, origins: Sequence[SettingSource]) -> str:
    advice = f"did you mean {near}?" if near else "docs/server.md lists all of them"
    return f"{_place(path, origins)}: there is no such setting; {advice}"


def _unknown_keys(model: type[BaseModel], table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paths in a table that are no setting of the model, each with the nearest that is one."""
    known = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
    for name, value in table.items():
        if name not in known:
            if model.model_config.get("extra") != "allow":
                yield (name,), _near(name, list(known))
        elif isinstance(value, Mapping):
            inner, by_name = _inner_model(known[name])
            for key, deeper in value.items() if by_name else [("", value)]:
                if inner is not None and isinstance(deeper, Mapping):
                    yield from (
                        ((name, *((key,) if by_name else ()), *path), near)
                        for path, near in _unknown_keys(inner, deeper)
                    )


def _open_keys(model: type[BaseModel], table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The paths in a table that are no secrets."""
    known = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
    for name, value in table.items():
        inner, by_name = _inner_model(known.get(name))
        if inner is None or not isinstance(value, Mapping):
            if not _is_secret(known.get(name)):
                yield (name,)
        elif by_name:
            for key, deeper in value.items():
                if isinstance(deeper, Mapping):  # or it is refused for being none
                    yield from ((name, key, *path) for path in _open_keys(inner, deeper))
        else:
            yield from ((name, *path) for path in _open_keys(inner, value))


def _is_secret(annotation: Any) -> bool:
    return annotation in (SecretStr, SecretBytes) or any(map(_is_secret, get_args(annotation)))


def _inner_model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model that a table is of, and whether it is a table of such tables by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    arguments = get_args(annotation)
    if get_origin(annotation) in (dict, Mapping) and len(arguments) == 2:
        return _inner_model(arguments[1])[0], True
    for one in arguments:  # Annotated, and unions with None
        found = _inner_model(one)
        if found[0] is not None:
            return found
    return None, False


def _refuse_unknown_variables(kit: Kit) -> None:
    """Raises `WrongSettings` for `KEYSTEAD_LOGIN__CAPP`: nobody but us begins a name so."""
    prefix = f"{PREFIX}{kit.name.upper()}__"
    known = [(info.alias or name).upper() for name, info in kit.settings.model_fields.items()]
    if kit.settings.model_config.get("extra") == "allow":
        return
    for name in os.environ:
        setting, _, _ = name.upper().removeprefix(prefix).partition("__")
        if name.upper().startswith(prefix) and setting not in known:
            near = _near(setting, known)
            advice = f"did you mean {prefix}{near}?" if near else "docs/server.md says where all of them are"
            raise WrongSettings([f"{name}: there is no such setting; {advice}"])


def _kit_environment(kit: Kit) -> tuple[dict[str, Any], dict[str, str]]:
    """What the environment says of a kit, and the variables whose names are not made from those of settings."""
    values: dict[str, Any] = {}
    named: dict[str, str] = {}
    for variable, setting in kit.environment.items():
        if os.environ.get(variable):  # an empty one is as good as none: files for containers often have such
            named[f"{kit.name}.{setting}"] = variable
            *path, last = setting.split(".")
            inner = values
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = os.environ[variable]
    _refuse_unknown_variables(kit)
    try:
        own = EnvSettingsSource(
            kit.settings,  # type: ignore[arg-type]
            env_prefix=f"{PREFIX}{kit.name.upper()}__",
            env_nested_delimiter="__",
            case_sensitive=False,
        )()
    except SettingsError as error:
        raise WrongSettings([f"{PREFIX}{kit.name.upper()}__…: {error}"]) from None
    return _deep(values, own), named

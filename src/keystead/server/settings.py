"""The settings of the server: from flags, the environment, a secrets file and `keystead.toml`."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError, field_validator
from pydantic_settings import NoDecode

from keystead.catalogue import Language
from keystead.errors import BadDeclaration
from keystead.parts.sizes import size_bytes
from keystead.schema import KeyRing
from keystead.schema.lifetime import duration_ms
from keystead.server.addresses import leads_to_loopback, origin_of, reachable
from keystead.server.kit_settings import kit_settings
from keystead.server.settings_errors import (
    FIELDS,
    SECRETS_FILE,
    SettingSource,
    WrongSettings,
    describe_errors,
    nearest,
    unknown_setting,
)
from keystead.server.settings_sources import merge_sources, read_sources, secrets_path
from keystead.stores.loopback import is_loopback

if TYPE_CHECKING:
    from keystead.kits.kit import Kit

TABLES_FILE: Final = "sqlite:///keystead.tables.db"  # in development, if the store cannot hold tables


class Settings(BaseModel):
    """The settings of the server. Precedence, strongest first: flags, the environment, the secrets file,
    `keystead.toml`, the files of `parameters`.

    Arguments, as in `Settings(port=8800)`, count as flags. Raises `WrongSettings`, whose messages never contain a
    secret. Settings that may hold one (`store`, `stores`, `database`, `seal_keys`, kit tables) are not in the repr; use
    the redacted `store.url` of the opened store instead.
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
        description='Stores by role: `durable = "sqlite:///durable.db"` in the table `[stores]`. `default` there '
        "equals `store`.",
    )
    database: str | None = Field(
        None,
        min_length=1,
        repr=False,
        description="The database of the kits' relational tables: the URL of a SQLite file, or of a PostgreSQL or "
        "MySQL database. Default: beside the data of `store`; see [tables.md](tables.md).",
    )
    host: str = Field("127.0.0.1", min_length=1, description="The address to listen on; `0.0.0.0` for all interfaces.")
    port: int = Field(8700, ge=1, le=65535, description="The port to listen on.")
    workers: int = Field(1, ge=1, le=256, description="The number of worker processes.")
    kits: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None,
        description="Which kits run, separated by commas in the environment; one of your own as `myapp.kit:KIT`. "
        "Default: all that have routes. In production, unconfigured kits are off.",
    )
    mode: Literal["development", "production"] = Field(
        "development", description="`development` creates missing secrets, `production` refuses to start without them."
    )
    public_url: str | None = Field(
        None,
        description="Where browsers reach this server, such as `https://example.com`. Required in production. Default: "
        "the address it listens on.",
    )
    language: Language = Field(
        "en",
        description="The language of pages for browsers that ask for none of `en`, `ja` and `ko`. In the environment "
        "also that of the command line, which else follows `LC_ALL`, `LC_MESSAGES` and `LANG`.",
    )
    log_format: Literal["text", "json"] | None = Field(
        None, description="The log format, `text` or `json`. Default: `json` in production."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The log level; `warning` omits the access log."
    )
    max_body: int = Field("1MB", description="The maximum size of a request body, such as `500kB` or `2MB`.")  # type: ignore[assignment]
    request_timeout: int = Field("30s", description="The time limit of a request, such as `500ms` or `30s`.")  # type: ignore[assignment]
    requests_at_once: int = Field(
        1000,
        ge=0,
        description="The maximum number of concurrent requests per worker; more get 503 with `Retry-After`. Streams, "
        "uploads and downloads do not count. 0: no limit.",
    )
    header_timeout: int = Field(  # type: ignore[assignment]
        "10s",
        description="The time limit for an idle connection, and for receiving request headers, such as `10s`.",
    )
    stop_timeout: int = Field("5s", description="How long running requests may take to finish at shutdown.")  # type: ignore[assignment]
    slow_call: int = Field(  # type: ignore[assignment]
        "1s", description="Store calls that take this long are logged, with family and procedure."
    )
    secrets_file: Path | None = Field(
        None,
        description="A file with only secrets, in the format of `keystead.toml`. Default: "
        f"`{SECRETS_FILE}` beside the database file, or in the working directory.",
    )
    parameters: Path | None = Field(
        None,
        description="A folder with `Session.json` and `Kvs.json`, the retention and location of session data unless "
        "another setting overrides them; see [sessiondata.md](sessiondata.md).",
    )
    forwarded_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Addresses and networks of trusted proxies, for `X-Forwarded-For` and `X-Forwarded-Proto`."
    )
    metrics: bool = Field(True, description="Whether `/metrics` is served.")
    seal_keys: SecretStr | None = Field(
        None,
        repr=False,
        description="The keys that seal secrets in the store, `id:key,id2:key2`; the last one seals. "
        "`keystead secrets new` creates one.",
    )
    tables: dict[str, dict[str, Any]] = Field({}, repr=False, description="The tables of kits, by their names.")

    _sources: tuple[SettingSource, ...] = PrivateAttr(())

    def __init__(self, sources: list[SettingSource] | None = None, /, **flags: Any) -> None:
        if sources is None:
            sources = read_sources(flags, type(self))
        values = merge_sources(sources)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise WrongSettings(list(describe_errors(error, sources, values))) from None
        self._sources = tuple(sources)

    def sources_as_json(self) -> str:
        """All that was read for these settings, for `from_json` in another process. It contains secrets."""
        return json.dumps([dataclasses.asdict(one) for one in self._sources], default=str)

    @classmethod
    def from_json(cls, sources: str) -> Self:
        """The settings as they were read, whatever has become of the files."""
        return cls([SettingSource(**one) for one in json.loads(sources)])

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
            raise ValueError("not a duration") from error

    @field_validator("public_url")
    @classmethod
    def _check_origin(cls, given: str | None) -> str | None:
        if given is None:
            return None
        url = urlsplit(given)
        if url.scheme not in ("http", "https") or not url.hostname or url.path not in ("", "/"):
            raise ValueError("not an origin")
        if url.query or url.fragment or "@" in url.netloc:
            raise ValueError("not an origin")
        if url.port == 0:
            raise ValueError("not an origin")
        return origin_of(url.scheme, url.hostname, url.port)

    @field_validator("stores")
    @classmethod
    def _check_roles(cls, given: dict[str, str]) -> dict[str, str]:
        if any(not role.isidentifier() or role == "default" or not url for role, url in given.items()):
            raise ValueError("not a role")
        return given

    @field_validator("seal_keys")
    @classmethod
    def _check_keys(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            try:
                KeyRing.from_text(given.get_secret_value())
            except BadDeclaration as error:  # its message contains no key
                raise ValueError(str(error)) from None
        return given

    @property
    def development(self) -> bool:
        return self.mode == "development"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it. A public URL of another host means that a proxy exposes it."""
        return is_loopback(self.host) and (self.public_url is None or leads_to_loopback(self.public_url))

    @property
    def store_urls(self) -> dict[str, str]:
        """URLs by role."""
        return {"default": self.store, **self.stores}

    @property
    def database_url(self) -> str | None:
        """The database of relational tables: `database`, or beside the store's own data.

        If the store cannot hold tables, development uses a file in the working directory; production returns None.
        """
        if self.database is not None:
            return self.database
        # Imported here: it is slow, and few need it.
        from keystead.parts.tables import url_beside

        return url_beside(self.store) or (TABLES_FILE if self.development else None)

    @property
    def origin(self) -> str:
        """Where browsers reach this server, as in https://example.com.

        Without `public_url` it is the address printed at startup. Cookies belong to a host name: a login that began on
        `localhost` would be unknown on `127.0.0.1`.
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
        """A sentence on who else can read or change the secrets file; "" if no one can, or there is no file."""
        return next((one.exposed for one in self._sources if one.secrets), "")

    def of(self, kit: Kit) -> Any:
        """The settings of a kit: its table, overridden by its environment variables. Raises `WrongSettings`."""
        return kit_settings(kit, self.tables, self._sources)

    def refuse_other_tables(self, names: Sequence[str], routed: Sequence[str]) -> None:
        """Raises `WrongSettings` for a table of no kit. Installed kits that are off may have one."""
        for table in self.tables:
            if table not in names and table not in routed:
                near = nearest(table, [*names, *routed, *FIELDS])
                raise WrongSettings([unknown_setting((table,), near, self._sources)])

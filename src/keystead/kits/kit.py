"""The declaration of a kit: its name, keyspace, settings, service and routes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, SecretStr

from keystead.catalogue import Language
from keystead.errors import BadDeclaration
from keystead.extras import from_extra
from keystead.parts.schedule import Job, ScheduleKeys
from keystead.schema import Keyspace
from keystead.schema.keyspace import with_parts

with from_extra("server", "keystead.kits"):
    from fastapi import APIRouter, Request

    from keystead.kits.identity import SignIn

if TYPE_CHECKING:
    from keystead.parts.oauth import Provider
    from keystead.parts.tables import Tables, TableSet


@dataclass(frozen=True)
class StandIn:
    """Replaces a provider in development, until a client of the real one is configured."""

    provider: Provider
    webhook_secret: SecretStr  # signs its webhooks to this server
    page: str  # the path of the page that changes its data


@dataclass(frozen=True)
class Site:
    """The server that a kit runs in."""

    public_url: str  # where browsers reach it, such as https://example.com, without a trailing slash
    internal_url: str  # where this server reaches itself, such as http://127.0.0.1:8700
    development: bool
    now_ms: Callable[[], int]
    render: Callable[..., str]  # a page: render("login/account.html", request.scope, name="Ann"); values are escaped
    providers: Mapping[str, Provider] = field(default_factory=dict)  # built-in providers, only in development
    stand_ins: Mapping[str, StandIn] = field(default_factory=dict)  # by provider name, only in development
    count: Callable[[str, str, str], None] = lambda kit, event, outcome: None  # for /metrics; never user input
    tables: Tables | None = None  # open, with the tables of all running kits
    language: Language = "en"  # for browsers that ask for no language of the pages
    keyspaces: Sequence[type[Keyspace]] = ()  # of all running kits and their parts

    @property
    def secure(self) -> bool:
        """Whether the public URL is https, so that cookies can be marked Secure."""
        return self.public_url.startswith("https://")

    def tables_for(self, kit: str) -> Tables:
        """The open tables. Raises BadDeclaration if there are none, as in a program that opens a kit itself."""
        if self.tables is None:
            raise BadDeclaration(f"the kit {kit} needs relational tables: open_tables(url, …), then Site(tables=…)")
        return self.tables


@dataclass(frozen=True)
class Example:
    """A link on the start page. It is shown if `is_there` returns True for the kit's open service."""

    label: str
    path: str
    doc: str = ""
    is_there: Callable[[Any], bool] = lambda service: True


@dataclass(frozen=True)
class Kit:
    """One kit, as `keystead serve` runs it.

    settings       model of its table in keystead.toml, `[login]`, and of `KEYSTEAD_LOGIN__…` in the environment
    environment    further environment variables, each with its setting as a dotted path:
                   {"DISCORD_CLIENT_ID": "providers.discord.client_id"}
    missing        one line for each setting that production needs and that is missing. They stop startup
    turned_on_by   the settings that turn it on in production, in a few words: "NOTES_API_KEY". Until it is configured,
                   it is off there. "": it is always on
    is_configured  whether it counts as configured; by default, if any of its settings is given
    bodies         paths with a body limit of their own, in bytes
    shared         paths for cross-origin requests, each with the allowed origins, such as https://example.com. `*` is
                   any origin, an empty list only this site. A path that ends in a slash includes all below it
    service        opens its service: `async with kit.service(keys, settings, site) as service`
    streams        paths of event streams, which do not count against `requests_at_once` once they have begun, nor when
                   many clients reconnect at once. A path that ends in a slash includes all below it
    jobs           its scheduled jobs, given its open service
    stop           called with its open service when the process is asked to stop, while requests are still running. It
                   must end those that would delay the stop, and return immediately. The service is closed afterwards
    tables         its relational tables. They are open before its service: `site.tables`
    signs          it derives signing keys from the encryption keys, so it needs them even if it encrypts nothing
    is_private     it shows all data. Unless it is configured, it only runs in development on loopback
    leads          its routes take precedence over those of other kits with the same path
    commands       `module:COMMANDS`, for `keystead NAME …`, imported on demand; see `keystead.kits.kit_command`
    sign_in        how it signs users in, for all kits of the server
    """

    name: str
    doc: str
    keyspace: type[Keyspace]
    settings: type[BaseModel]
    router: Callable[[], APIRouter]
    service: Callable[[Any, Any, Site], AbstractAsyncContextManager[Any]]
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: Callable[[Any], Sequence[str]] = lambda _: ()
    turned_on_by: str = ""
    is_configured: Callable[[Any], bool] = lambda settings: bool(settings.model_fields_set)
    examples: Sequence[Example] = ()
    bodies: Callable[[Any], Mapping[str, int]] = lambda settings: {}
    shared: Callable[[Any], Mapping[str, Sequence[str]]] = lambda settings: {}
    streams: Sequence[str] = ()
    jobs: Callable[[Any], Sequence[Job]] = lambda service: ()
    stop: Callable[[Any], None] = lambda service: None
    tables: TableSet | None = None
    signs: bool = False
    is_private: bool = False
    leads: bool = False
    commands: str | None = None
    sign_in: SignIn | None = None

    @property
    def folder(self) -> Path:
        """The folder of the module that declares its keyspace; in an interactive session, the working directory.

        Its `pages` are templates (`site.render("NAME/page.html")`), its `assets` are served at `/assets/NAME/`.
        """
        return Path(getattr(sys.modules[self.keyspace.__module__], "__file__", None) or "").parent

    @property
    def keyspaces(self) -> list[type[Keyspace]]:
        """Its keyspace and those of its parts, with that of the schedule if it has jobs."""
        return with_parts([self.keyspace, *([] if self.jobs is Kit.jobs else [ScheduleKeys])])


def service_of(name: str) -> Callable[[Request], Any]:
    """A FastAPI dependency: the open service of a kit."""

    async def service(request: Request) -> Any:  # async, because FastAPI runs sync dependencies in a thread
        return request.app.state.kits[name]

    return service

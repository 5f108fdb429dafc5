"""What a kit is to the server: a keyspace, settings, a service and routes, under one name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, SecretStr

from keystead.errors import BadDeclaration
from keystead.extras import from_extra
from keystead.parts.oauth import Provider
from keystead.parts.schedule import Job, ScheduleKeys
from keystead.schema import Keyspace
from keystead.schema.keyspace import with_parts

with from_extra("server", "keystead.kits"):
    from fastapi import APIRouter, Request

    from keystead.kits.identity import SignIn

if TYPE_CHECKING:
    from keystead.parts.tables import Tables, TableSet


@dataclass(frozen=True)
class StandIn:
    """Who answers in development in the place of a provider that a kit has no client of yet."""

    provider: Provider
    webhook_secret: SecretStr  # what it signs its webhooks to this server with
    page: str  # the path of the page where its answers can be changed


@dataclass(frozen=True)
class Site:
    """What a kit must know of the server that it runs in."""

    public_url: str  # where browsers reach it, as in https://example.com, without a slash at the end
    internal_url: str  # where this server reaches itself, as in http://127.0.0.1:8700
    development: bool
    now_ms: Callable[[], int]
    render: Callable[..., str]  # a page: render("login/account.html", name="Ann"); values are escaped
    providers: Mapping[str, Provider] = field(default_factory=dict)  # what the server itself brings, in development
    stand_ins: Mapping[str, StandIn] = field(default_factory=dict)  # by the name of the provider; in development, too
    count: Callable[[str, str, str], None] = lambda kit, event, outcome: None  # for /metrics; all three are fixed words
    tables: Tables | None = None  # open, with the tables of all kits that run

    @property
    def secure(self) -> bool:
        """Whether cookies can be marked Secure: browsers come by https."""
        return self.public_url.startswith("https://")

    def tables_for(self, kit: str) -> Tables:
        """The open tables. Raises BadDeclaration where there are none, as in a program that opens a kit itself."""
        if self.tables is None:
            raise BadDeclaration(f"the kit {kit} keeps relational tables: open_tables(url, …), and Site(tables=…)")
        return self.tables


@dataclass(frozen=True)
class Example:
    """Something to click on the start page. `is_there` says of the kit's open service whether it leads anywhere."""

    label: str
    path: str
    doc: str = ""
    is_there: Callable[[Any], bool] = lambda service: True


@dataclass(frozen=True)
class Kit:
    """One kit, as `keystead serve` runs it.

    settings     its table in keystead.toml, `[login]`, and `KEYSTEAD_LOGIN__…` in the environment
    environment  the names of environment variables that its document uses, each with the setting that it is,
                 written with dots: {"DISCORD_CLIENT_ID": "providers.discord.client_id"}
    missing      what production needs and these settings lack, one sentence each
    turned_on_by which settings turn it on in production, in a few words: "NOTES_API_KEY". It is off there until it is
                 configured; whatever a configured kit misses stops the start. "": it is never off
    is_configured whether somebody has begun to configure it; the default is that any setting of its own is given
    bodies       paths that take larger bodies than others, with the number of bytes that each takes
    shared       paths that pages of other sites may use, each with the origins that may, as in https://example.com; `*`
                 is any, none at all leaves it to this site. A path that ends in a slash stands for all below it
    service      opens what answers its routes: `async with kit.service(keys, settings, site) as service`
    jobs         what it runs by itself, of its open service
    stop         called with its open service as soon as the process is asked to stop, while requests are still under
                 way: it ends those that would hold the stop up, and returns at once. The service is closed after that
    tables       its relational tables, which are open before its service: `site.tables`
    signs        it signs tokens with keys that it derives of those that seal, so it needs them though it seals nothing
    leads        its routes come before those of other kits that have the same path
    commands     where its commands are, `module:COMMANDS`, for `keystead NAME …`; see `keystead.kits.kit_command`. The
                 command line imports it on demand
    sign_in      how people sign in with it, and how it knows them again: for all kits of the server
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
    jobs: Callable[[Any], Sequence[Job]] = lambda service: ()
    stop: Callable[[Any], None] = lambda service: None
    tables: TableSet | None = None
    signs: bool = False
    leads: bool = False
    commands: str | None = None
    sign_in: SignIn | None = None

    @property
    def folder(self) -> Path:
        """The folder of the module that declares its keyspace.

        `pages` in it has its templates (`site.render("NAME/page.html")`), `assets` the files served at `/assets/NAME/`.
        """
        return Path(str(sys.modules[self.keyspace.__module__].__file__)).parent

    @property
    def keyspaces(self) -> list[type[Keyspace]]:
        """Its keyspace and those of its parts; where it has jobs, the schedule is one of them."""
        return with_parts([self.keyspace, *([] if self.jobs is Kit.jobs else [ScheduleKeys])])


def service_of(name: str) -> Callable[[Request], Any]:
    """A FastAPI dependency: the open service of a kit."""

    async def service(request: Request) -> Any:  # what is not async, FastAPI runs in another thread
        return request.app.state.kits[name]

    return service

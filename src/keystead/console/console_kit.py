"""The console as a kit of `keystead serve`, at `/console`; `keystead console` runs it alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pydantic import BaseModel, Field

from keystead.console.console_keys import ConsoleKeys, Role
from keystead.console.console_routes import router
from keystead.console.console_service import Console
from keystead.gateway.gateway_kit import load_keyspaces
from keystead.kits.kit import Example, Kit, Site
from keystead.kits.setting_types import Words
from keystead.server.metered_store import MeteredStore
from keystead.server.own_keyspaces import own_keyspaces
from keystead.server.user_modules import find_modules_here


class ConsoleSettings(BaseModel):
    """`[console]` in keystead.toml, or `KEYSTEAD_CONSOLE__ON` in the environment."""

    on: bool = Field(
        False,
        description="Whether `/console` is served in production, or to other machines. In development on loopback it "
        "always is.",
    )
    keyspaces: Words = Field(
        (),
        description="The key documents to show, such as `shop.keys:ShopKeys`. Default: those of the running kits.",
    )
    admins: Words = Field(
        (), description="The users who may do everything in the console once they are signed in, such as `login:42`."
    )
    operators: Words = Field((), description="The users who may change single keys, queues and jobs.")
    viewers: Words = Field((), description="The users who may read.")
    examine: str = Field(
        "40 3 * * *",
        description="When to search for defects, as a cron expression; empty: only on demand, and no hourly measures.",
    )

    @property
    def roles(self) -> dict[str, Role]:
        """The roles of users. Who is listed twice has the larger one."""
        return {
            **dict.fromkeys(self.viewers, "viewer"),
            **dict.fromkeys(self.operators, "operator"),
            **dict.fromkeys(self.admins, "admin"),
        }


@asynccontextmanager
async def _open_console(keys: ConsoleKeys, settings: ConsoleSettings, site: Site) -> AsyncIterator[Console]:
    if settings.keyspaces:
        find_modules_here()
    named = load_keyspaces(settings.keyspaces, "console.keyspaces")
    console = Console(
        keys,
        named or site.keyspaces,
        site,
        known=[*site.keyspaces, *own_keyspaces().values()],
        examine=settings.examine,
        roles=settings.roles,
    )
    for store in keys.roles.values():
        if isinstance(store, MeteredStore):
            store.add_families(bound for keyspace in console.keyspaces for bound in keyspace.bounds())
    try:
        yield console
    finally:
        await console.tasks.close()


KIT: Final = Kit(
    name="console",
    doc="Shows the keys of every keyspace in a browser, and acts on them; findings, jobs, queues, sessions.",
    keyspace=ConsoleKeys,
    settings=ConsoleSettings,
    router=router,
    service=_open_console,
    streams=("/console/live/changes",),
    jobs=lambda console: console.jobs,
    stop=lambda console: console.live.stop(),
    turned_on_by="console.on",
    is_configured=lambda settings: settings.on,
    is_private=True,
    examples=(Example("Console", "/console", "Look at the keys of this server, and change them."),),
)

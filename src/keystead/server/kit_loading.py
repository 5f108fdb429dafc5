"""The kits that run: found by name, held to what production needs, and opened on their stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import keystead
from keystead.kits import ROUTED
from keystead.kits.kit import Kit, Site
from keystead.schema import Keyspace
from keystead.schema.keyspace import with_parts
from keystead.server.addresses import leads_to_loopback
from keystead.server.metered_store import MeteredStore
from keystead.server.settings import Settings
from keystead.server.settings_errors import PREFIX, MissingSettings, WrongSettings
from keystead.server.user_modules import find_modules_here
from keystead.stores import Store

if TYPE_CHECKING:
    from keystead.parts.tables import Tables
    from keystead.server.metrics import Metrics


def load_kits(settings: Settings) -> list[Kit]:
    """The kits that run, in the order they are named. Raises `WrongSettings` where there is no such kit."""
    kits = [load_kit(name) for name in (ROUTED if settings.kits is None else settings.kits)]
    names = [kit.name for kit in kits]
    for name in names:
        if names.count(name) > 1:
            raise WrongSettings([f"kits: {name!r} is named twice"])
    settings.refuse_other_tables(names, list(ROUTED))
    return kits


def load_kit(name: str) -> Kit:
    """One kit, by its name or as `myapp.kit:KIT`. Raises `WrongSettings` where there is no such kit."""
    module, _, attribute = (ROUTED.get(name, "") + ":KIT" if name in ROUTED else name).partition(":")
    if not attribute:
        near = get_close_matches(name, ROUTED, 1)
        advice = f"did you mean {near[0]}?" if near else f"there are: {', '.join(ROUTED)}"
        raise WrongSettings(
            [f"kits: {name!r} is no kit with routes; {advice} One of your own is written myapp.kit:KIT"]
        )
    if name not in ROUTED:
        find_modules_here()
    try:
        found = getattr(import_module(module), attribute, None)
    except ImportError as error:
        raise WrongSettings([f"kits: {name!r} cannot be imported ({error})"]) from None
    if not isinstance(found, Kit):
        raise WrongSettings([f"kits: {name!r} is no kit; {module} must have {attribute} = Kit(…)"])
    return found


def split_kits(settings: Settings, kits: Sequence[Kit]) -> tuple[list[Kit], dict[str, str]]:
    """The kits that run, and those that are off, each with the settings that turn it on.

    A kit is off in production where nobody has configured it. Where that would leave none, none is off: whoever named
    kits wants one of them, and is told by `require_settings` what it lacks. Raises `WrongSettings`.
    """
    off = {} if settings.development else {kit.name: how for kit in kits if (how := _missing_setting(kit, settings))}
    running = [kit for kit in kits if kit.name not in off]
    return (running, off) if running else (list(kits), {})


def _missing_setting(kit: Kit, settings: Settings) -> str:
    """The setting that would turn on an unconfigured kit; "" if it runs."""
    own = settings.of(kit)
    if kit.turned_on_by and not kit.is_configured(own):
        return kit.turned_on_by
    has_place = kit.tables is None or settings.database_url is not None
    return "" if has_place or kit.is_configured(own) else "database"


def needs_seal(kits: Sequence[Kit]) -> bool:
    """Whether any of these seals something in its store, or signs with keys that come of those that seal."""
    return any(kit.signs for kit in kits) or any(
        family.needs_ring for kit in kits for family in kit.keyspace.families.values()
    )


def require_settings(settings: Settings, kits: Sequence[Kit]) -> None:
    """Raises `MissingSettings` with everything that production needs and that is not there, all at once."""
    missing = []
    if needs_seal(kits) and settings.seal_keys is None:
        missing.append(
            f"seal_keys: the keys that seal secrets in the store; `keystead secrets new` prints a line for the "
            f"environment ({PREFIX}SEAL_KEYS) or for {settings.secrets_path}"
        )
    if settings.public_url is None:
        missing.append("public_url: where browsers reach this server, such as https://example.com")
    elif not is_private(settings.public_url):
        missing.append("public_url: with https, since cookies and codes would go over http in the clear")
    if settings.secrets_exposed:
        missing.append(f"secrets_file: {settings.secrets_exposed}")
    if has_tables(kits) and settings.database_url is None:
        with_tables = ", ".join(kit.name for kit in kits if kit.tables is not None)
        missing.append(
            f"database: where the tables of {with_tables} are, such as postgresql://user@host/database; the store has "
            "no place for them"
        )
    for kit in kits:
        missing += kit.missing(settings.of(kit))
    if missing:
        raise MissingSettings(missing)


def has_tables(kits: Sequence[Kit]) -> bool:
    """Whether any of these keeps relational tables."""
    return any(kit.tables is not None for kit in kits)


def is_private(url: str) -> bool:
    """Whether traffic is protected: https, or http that does not leave this machine."""
    return url.startswith("https://") or leads_to_loopback(url)


def refuse_memory_with_workers(settings: Settings) -> None:
    """Raises `WrongSettings` where several workers would each have a memory of their own."""
    if settings.workers == 1:
        return
    said = f"workers: each of {settings.workers} would have"
    for role, url in settings.store_urls.items():
        if url.lower().startswith("memory://"):
            advice = "write workers = 1, or another store such as sqlite:///keystead.db"
            raise WrongSettings([f"{said} a store memory:// (role {role}) of its own; {advice}"])
    if (settings.database or "").lower().startswith("memory://"):
        advice = "write workers = 1, or another database such as sqlite:///tables.db"
        raise WrongSettings([f"{said} a database memory:// of its own; {advice}"])


@asynccontextmanager
async def open_stores(settings: Settings, metrics: Metrics | None = None) -> AsyncIterator[dict[str, Store]]:
    """The stores by role, opened; each URL once. Errors in opening one are raised as it raised them."""
    urls = settings.store_urls
    async with AsyncExitStack() as stack:
        by_url: dict[str, Store] = {}
        for url in dict.fromkeys(urls.values()):
            store = keystead.connect(url)
            if metrics is not None:
                store = MeteredStore(store, metrics, slow_s=settings.slow_call / 1000)
            by_url[url] = await stack.enter_async_context(store)
        yield {role: by_url[url] for role, url in urls.items()}


def bind(
    kits: Sequence[Kit], stores: Mapping[str, Store], settings: Settings, now_ms: Callable[[], int]
) -> dict[str, Keyspace]:
    """The keyspace of each kit, bound to its stores. Raises DoesNotFit where a store cannot keep what it needs."""
    others: dict[str, Any] = {role: store for role, store in stores.items() if role != "default"}
    ring = settings.ring
    bound = {kit.name: kit.keyspace(stores["default"], seal=ring, now_ms=now_ms, **others) for kit in kits}
    own = [kit.keyspace for kit in kits]
    parts = [
        part(stores["default"], needs_seal=False, now_ms=now_ms, **others)
        for part in with_parts(own)
        if part not in own
    ]
    families = [one for keys in (*bound.values(), *parts) for one in keys.bounds()]
    for store in stores.values():
        if isinstance(store, MeteredStore):
            store.set_families(families)
    return bound


def check_guarantees(kits: Sequence[Kit], stores: Mapping[str, Store]) -> None:
    """Raises DoesNotFit where a store cannot keep what a family needs. No key is needed for that."""
    others: dict[str, Any] = {role: store for role, store in stores.items() if role != "default"}
    for kit in kits:
        kit.keyspace(stores["default"], needs_seal=False, **others)


@asynccontextmanager
async def open_kit_tables(kits: Sequence[Kit], settings: Settings) -> AsyncIterator[Tables | None]:
    """The relational tables of all these kits, opened and up to date. None: none of them has any."""
    sets = [kit.tables for kit in kits if kit.tables is not None]
    url = settings.database_url if sets else None
    if url is None:
        yield None
        return
    from keystead.parts.tables import open_tables

    async with open_tables(url, *sets) as tables:
        yield tables


@asynccontextmanager
async def open_kits(
    kits: Sequence[Kit], stores: Mapping[str, Store], settings: Settings, site: Site
) -> AsyncIterator[dict[str, Any]]:
    """The service of each kit, opened, by name. The tables of those that have some are open: `site.tables`."""
    keyspaces = bind(kits, stores, settings, site.now_ms)
    async with AsyncExitStack() as stack:
        yield {
            kit.name: await stack.enter_async_context(kit.service(keyspaces[kit.name], settings.of(kit), site))
            for kit in kits
        }

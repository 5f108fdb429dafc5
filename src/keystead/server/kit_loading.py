"""Loading kits: find them by name, check what production needs, and open them on their stores."""

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
from keystead.server.own_keyspaces import OWN_KITS
from keystead.server.settings import Settings
from keystead.server.settings_errors import PREFIX, MissingSettings, WrongSettings
from keystead.server.user_modules import find_modules_here
from keystead.stores import Store

if TYPE_CHECKING:
    from keystead.parts.tables import Tables
    from keystead.server.metrics import Metrics


def load_kits(settings: Settings) -> list[Kit]:
    """The kits of these settings, in order. Raises `WrongSettings` for an unknown kit."""
    kits = [load_kit(name) for name in ((*ROUTED, *OWN_KITS) if settings.kits is None else settings.kits)]
    names = [kit.name for kit in kits]
    for name in names:
        if names.count(name) > 1:
            raise WrongSettings([f"kits: {name!r} is listed twice"])
    settings.refuse_other_tables(names, [*ROUTED, *OWN_KITS])
    return kits


def load_kit(name: str) -> Kit:
    """One kit, by its name or as `myapp.kit:KIT`. Raises `WrongSettings` if there is no such kit."""
    built_in = ROUTED | OWN_KITS
    module, _, attribute = (f"{built_in[name]}:KIT" if name in built_in else name).partition(":")
    if not attribute:
        near = get_close_matches(name, ROUTED, 1)
        advice = f"did you mean {near[0]}?" if near else f"the kits are: {', '.join(ROUTED)}."
        raise WrongSettings([f"kits: {name!r} is not a kit with routes; {advice} Write your own as myapp.kit:KIT"])
    if name not in built_in:
        find_modules_here()
    try:
        found = getattr(import_module(module), attribute, None)
    except ImportError as error:
        raise WrongSettings([f"kits: {name!r} cannot be imported ({error})"]) from None
    if not isinstance(found, Kit):
        raise WrongSettings([f"kits: {name!r} is not a kit; {module} must have {attribute} = Kit(…)"])
    return found


def split_kits(settings: Settings, kits: Sequence[Kit]) -> tuple[list[Kit], dict[str, str]]:
    """The kits that run, and those that are off, each with the settings that turn it on.

    In production, unconfigured kits are off. If all would be off, all run, and `require_settings` reports what they
    lack. Raises `WrongSettings`.
    """
    kits = [kit for kit in kits if _may_be_seen(kit, settings)]
    off = {} if settings.development else {kit.name: how for kit in kits if (how := _missing_setting(kit, settings))}
    running = [kit for kit in kits if kit.name not in off]
    return (running, off) if running else (list(kits), {})


def _may_be_seen(kit: Kit, settings: Settings) -> bool:
    """Whether a private kit is on purpose open to others, or nobody else can reach it."""
    is_local = settings.development and settings.is_local
    return not kit.is_private or is_local or kit.is_configured(settings.of(kit))


def _missing_setting(kit: Kit, settings: Settings) -> str:
    """The setting that would turn on an unconfigured kit; "" if it runs."""
    own = settings.of(kit)
    if kit.turned_on_by and not kit.is_configured(own):
        return kit.turned_on_by
    has_database = kit.tables is None or settings.database_url is not None
    return "" if has_database or kit.is_configured(own) else "database"


def keyspaces_of(kits: Sequence[Kit]) -> list[type[Keyspace]]:
    """The keyspaces of these kits and of their parts, each once."""
    return list(dict.fromkeys(one for kit in kits for one in kit.keyspaces))


def needs_seal(kits: Sequence[Kit]) -> bool:
    """Whether any of these kits seals values, or signs with keys derived from the sealing keys."""
    return any(kit.signs for kit in kits) or any(
        family.needs_ring for kit in kits for family in kit.keyspace.families.values()
    )


def require_settings(settings: Settings, kits: Sequence[Kit]) -> None:
    """Raises `MissingSettings` with all settings that production needs and that are missing."""
    missing = []
    if needs_seal(kits) and settings.seal_keys is None:
        missing.append(
            f"seal_keys: the keys that seal secrets in the store; `keystead secrets new` prints a line for the "
            f"environment ({PREFIX}SEAL_KEYS) or for {settings.secrets_path}"
        )
    if settings.public_url is None:
        missing.append("public_url: where browsers reach this server, such as https://example.com")
    elif not is_private(settings.public_url):
        missing.append("public_url: must be https, because http would expose cookies and codes")
    if settings.secrets_exposed:
        missing.append(f"secrets_file: {settings.secrets_exposed}")
    if has_tables(kits) and settings.database_url is None:
        with_tables = ", ".join(kit.name for kit in kits if kit.tables is not None)
        missing.append(
            f"database: for the tables of {with_tables}, which the store cannot hold, such as "
            "postgresql://user@host/database"
        )
    for kit in kits:
        missing += kit.missing(settings.of(kit))
    if missing:
        raise MissingSettings(missing)


def has_tables(kits: Sequence[Kit]) -> bool:
    """Whether any of these kits has relational tables."""
    return any(kit.tables is not None for kit in kits)


def is_private(url: str) -> bool:
    """Whether traffic is protected: https, or http within this machine."""
    return url.startswith("https://") or leads_to_loopback(url)


def refuse_memory_with_workers(settings: Settings) -> None:
    """Raises `WrongSettings` for `memory://` with several workers, which cannot share it."""
    if settings.workers == 1:
        return
    problem = f"workers: {settings.workers} workers cannot share"
    for role, url in settings.store_urls.items():
        if url.lower().startswith("memory://"):
            advice = "set workers = 1, or another store such as sqlite:///keystead.db"
            raise WrongSettings([f"{problem} a store memory:// (role {role}); {advice}"])
    if (settings.database or "").lower().startswith("memory://"):
        advice = "set workers = 1, or another database such as sqlite:///tables.db"
        raise WrongSettings([f"{problem} a database memory://; {advice}"])


@asynccontextmanager
async def open_stores(settings: Settings, metrics: Metrics | None = None) -> AsyncIterator[dict[str, Store]]:
    """The stores by role, each URL opened once. Errors of a store pass unchanged."""
    urls = settings.store_urls
    async with AsyncExitStack() as stack:
        by_url: dict[str, Store] = {}
        for url in dict.fromkeys(urls.values()):
            store = keystead.connect(url)
            if metrics is not None:
                store = MeteredStore(store, metrics, slow_s=settings.slow_call / 1000)
            by_url[url] = await stack.enter_async_context(store)
        yield {role: by_url[url] for role, url in urls.items()}


def _bind_keyspaces(
    kits: Sequence[Kit], stores: Mapping[str, Store], settings: Settings, now_ms: Callable[[], int]
) -> dict[str, Keyspace]:
    """The keyspace of each kit, bound to its stores. Raises DoesNotFit if a store lacks a guarantee that it needs."""
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
    """Raises DoesNotFit if a store lacks a guarantee that a family needs. It needs no sealing keys."""
    others: dict[str, Any] = {role: store for role, store in stores.items() if role != "default"}
    for kit in kits:
        kit.keyspace(stores["default"], needs_seal=False, **others)


@asynccontextmanager
async def open_kit_tables(kits: Sequence[Kit], settings: Settings) -> AsyncIterator[Tables | None]:
    """The relational tables of these kits, opened and upgraded; None if they have none."""
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
    """The opened service of each kit, by name. `site.tables` must be open."""
    keyspaces = _bind_keyspaces(kits, stores, settings, site.now_ms)
    async with AsyncExitStack() as stack:
        yield {
            kit.name: await stack.enter_async_context(kit.service(keyspaces[kit.name], settings.of(kit), site))
            for kit in kits
        }

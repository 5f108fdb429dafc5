"""`keystead serve`: run the server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.operator import operator
from keystead.cli.private_files import private_files
from keystead.cli.terminal_language import say
from keystead.errors import BadUrl, KeysteadError, MissingExtra
from keystead.extras import EXTRAS
from keystead.server.secrets_file import add_seal_key
from keystead.server.settings import Settings
from keystead.server.settings_errors import WrongSettings
from keystead.server.settings_sources import CONFIG_VARIABLE
from keystead.stores import Store

if TYPE_CHECKING:
    from keystead.kits.kit import Kit

_STORE_HELP = """Where the keys live: sqlite:///file.db, memory://, redis://user:password@host:6379/0, rediss://,
redis+unix://, redis+sentinel://, redis+cluster://; role=URL for a role. Repeatable.
[dim]\\[env: KEYSTEAD_STORE; default: sqlite:///keystead.db][/dim]"""
_HOST_HELP = """The address to listen on; 0.0.0.0 for all interfaces.
[dim]\\[env: KEYSTEAD_HOST; default: 127.0.0.1][/dim]"""
_PORT_HELP = "The port to listen on. [dim]\\[env: KEYSTEAD_PORT; default: 8700][/dim]"
_WORKERS_HELP = "The number of worker processes. [dim]\\[env: KEYSTEAD_WORKERS; default: 1][/dim]"
_KITS_HELP = """Which kits run, separated by commas; one of your own as myapp.kit:KIT.
[dim]\\[env: KEYSTEAD_KITS; default: all that have routes, in production those that are configured][/dim]"""
_MODE_HELP = """Refuse to start without secrets and a public URL, or create what is missing.
[dim]\\[env: KEYSTEAD_MODE; default: development][/dim]"""
_PUBLIC_HELP = """Where browsers reach this server, such as https://example.com.
[dim]\\[env: KEYSTEAD_PUBLIC_URL; default: the address it listens on][/dim]"""
_RELOAD_HELP = """In development: when a source file of yours changes, new workers replace the present ones. Settings
stay as they were."""
_CONFIG_HELP = "The settings file. [dim]\\[env: KEYSTEAD_CONFIG; default: keystead.toml, if it exists][/dim]"


def serve(
    store: Annotated[list[str] | None, typer.Option(metavar="URL", help=_STORE_HELP, show_default=False)] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help=_HOST_HELP, show_default=False)] = None,
    port: Annotated[str | None, typer.Option(metavar="NUMBER", help=_PORT_HELP, show_default=False)] = None,
    workers: Annotated[str | None, typer.Option(metavar="NUMBER", help=_WORKERS_HELP, show_default=False)] = None,
    kits: Annotated[str | None, typer.Option(metavar="NAMES", help=_KITS_HELP, show_default=False)] = None,
    production: Annotated[
        bool | None,
        typer.Option("--production/--development", metavar=NO_VALUE, help=_MODE_HELP, show_default=False),
    ] = None,
    public_url: Annotated[str | None, typer.Option(metavar="URL", help=_PUBLIC_HELP, show_default=False)] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help=_CONFIG_HELP, show_default=False)] = None,
    reload: Annotated[bool, typer.Option("--reload", metavar=NO_VALUE, help=_RELOAD_HELP)] = False,
) -> None:
    """Run the server: kits and their API, a start page at /, health checks and metrics.

    Settings come from flags, the environment, a secrets file and keystead.toml: see `keystead guide settings`. On
    Ctrl-C or SIGTERM, running requests finish and the stores are closed. On SIGUSR2, new workers replace the present
    ones, and no request is lost.

    [bold]Examples[/bold]

      keystead serve

      keystead serve --kits myapp.kit:KIT --reload

      keystead serve --store redis://localhost:6379/0 --port 8080 --workers 4

      keystead serve --production --public-url https://example.com

    Pass a URL that contains a password as KEYSTEAD_STORE: arguments are visible in the process list.
    """
    if config is not None:
        os.environ[CONFIG_VARIABLE] = config
    run_server(
        {
            **stores_by_role(store),
            "host": host,
            "port": port,
            "workers": workers,
            "kits": kits,
            "mode": None if production is None else "production" if production else "development",
            "public_url": public_url,
        },
        reloads=reload,
    )


def run_server(flags: dict[str, Any], *, reloads: bool = False) -> None:
    """Run the server with these settings, and exit with a one-line error if it cannot start.

    `reloads`: in development, changes of the user's modules renew the workers.
    """
    # Imported here: the other commands need no web server.
    try:
        from keystead.server.kit_loading import load_kits, refuse_memory_with_workers, require_settings, split_kits
        from keystead.server.processes import free_address, run_workers
    except ImportError as error:
        if not isinstance(error, MissingExtra) and not (error.name or "").startswith(EXTRAS["server"]):
            raise
        # An extra of a single kit would not be enough to start.
        fail(say('the server needs packages that are not installed: pip install "keystead[server]"'), USAGE_ERROR)

    try:
        settings = Settings(**flags)
        if reloads:
            _require_reload(settings)
        running, off = split_kits(settings, load_kits(settings))
        for kit in running:
            settings.of(kit)
        refuse_memory_with_workers(settings)
        if not settings.development:
            require_settings(settings, running)
        try:
            address = free_address(settings)
        except OSError as error:
            place = f"{settings.host}:{settings.port}"
            reason = error.strerror or error
            fail(
                say(
                    "cannot listen on {place} ({reason}); choose another --port (PORT= of make) or --host.",
                    place=place,
                    reason=reason,
                ),
                FAILED,
            )
        if settings.development:
            with private_files():
                link = asyncio.run(_open_once(settings, running))
            settings = _with_secrets(settings, running, flags)
        else:
            link = asyncio.run(_open_once(settings, running))
        run_workers(settings, address, _listening(settings, off) + link, reloads=reloads)
    except KeysteadError as error:
        _fail_with(error)


def _require_reload(settings: Settings) -> None:
    """Exit with code 2 where workers are not renewed by changes of sources."""
    if not settings.development:
        fail(say("--reload is for development; in production, send SIGUSR2 to renew the workers"), USAGE_ERROR)
    if not hasattr(os, "fork"):
        fail(say("--reload needs worker processes, which this system does not have"), USAGE_ERROR)


def stores_by_role(given: Sequence[str] | None) -> dict[str, Any]:
    """`--store URL` and `--store role=URL`."""
    found: dict[str, Any] = {}
    for one in given or ():
        role, separator, url = one.partition("=")
        if separator and role.isidentifier() and role != "default":
            found.setdefault("stores", {})[role] = url
        else:
            found["store"] = url if separator and role == "default" else one
    return found


def _with_secrets(settings: Settings, running: Sequence[Kit], flags: dict[str, Any]) -> Settings:
    """The settings with a sealing key. If there is none, create one and print where it is."""
    path = settings.secrets_path
    if settings.secrets_exposed:
        typer.echo(f"keystead: {settings.secrets_exposed}", err=True)
    from keystead.server.kit_loading import needs_seal

    if settings.seal_keys is not None or not needs_seal(running):
        return settings
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = add_seal_key(path)
    except OSError as error:
        fail(
            say(
                "cannot write {path} ({reason}); set secrets_file, or KEYSTEAD_SEAL_KEYS.",
                path=path,
                reason=error.strerror or error,
            ),
            FAILED,
        )
    if is_new:
        typer.echo(say("Created a key that seals secrets, in {path}: keep it private, and out of git.", path=path))
    return Settings(**flags)


async def _open_once(settings: Settings, running: Sequence[Kit]) -> str:
    """Report a broken store or table setup now, as a one-line error, before a worker fails on it.

    Returns a line with a link to the console, if it runs and only this machine can reach it.
    """
    from keystead.server.kit_loading import check_guarantees, open_kit_tables, open_stores

    async with open_stores(settings) as stores:
        check_guarantees(running, stores)
        link = await _console_link(settings, stores) if any(kit.name == "console" for kit in running) else ""
    async with open_kit_tables(running, settings):
        pass
    return link


async def _console_link(settings: Settings, stores: Mapping[str, Store]) -> str:
    """A line with a one-time link, in development on loopback: only whoever sees this terminal can use it."""
    store = stores.get("console", stores["default"])
    if not settings.development or not settings.is_local or store.url.startswith("memory:"):
        return ""  # another process cannot read a link in memory
    from keystead.console.console_access import LINK_LIFETIME, ConsoleAccess
    from keystead.console.console_keys import ConsoleKeys

    act = operator()
    secret = await ConsoleAccess(ConsoleKeys(store)).create_link(act.who, "admin", act.where)
    link = f"{settings.origin}/console/enter#{secret}"
    return "\n" + say("Console: {link} (works once, within {lifetime})", link=link, lifetime=LINK_LIFETIME)


def _listening(settings: Settings, off: Mapping[str, str]) -> str:
    """What is printed when the server listens."""
    kits = "; ".join(say("{name} (set {setting})", name=name, setting=how) for name, how in off.items())
    unused = say("Off until configured: {kits}", kits=kits) + "\n" if off else ""
    running = say("Keystead is running: open {url} (Ctrl-C stops it)", url=settings.origin)
    if settings.public_url is not None:
        running = say(
            "Keystead is running: open {url} (listening on {address}; Ctrl-C stops it)",
            url=settings.origin,
            address=settings.internal_url,
        )
    return f"{unused}{running}"


def _fail_with(error: KeysteadError) -> NoReturn:
    is_usage_error = isinstance(error, BadUrl | MissingExtra | WrongSettings)
    fail(str(error), USAGE_ERROR if is_usage_error else FAILED)

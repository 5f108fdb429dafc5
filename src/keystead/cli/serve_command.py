"""`keystead serve`: settings in, workers out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from keystead.cli.exit import FAILED, USAGE_ERROR, leave
from keystead.cli.flags import NO_VALUE
from keystead.cli.private_files import private_files
from keystead.errors import BadUrl, KeysteadError, MissingExtra
from keystead.server.secrets_file import add_seal_key
from keystead.server.settings import Settings
from keystead.server.settings_errors import WrongSettings
from keystead.server.settings_sources import CONFIG_VARIABLE

if TYPE_CHECKING:
    from keystead.kits.kit import Kit

_STORE_HELP = """Where the keys live: sqlite:///file.db, memory://, redis://user:password@host:6379/0, rediss://,
redis+unix://, redis+sentinel://, redis+cluster://; role=URL for a role of its own. May be given several times.
[dim]\\[env: KEYSTEAD_STORE; default: sqlite:///keystead.db][/dim]"""
_HOST_HELP = """The address to listen on; 0.0.0.0 lets other machines in.
[dim]\\[env: KEYSTEAD_HOST; default: 127.0.0.1][/dim]"""
_PORT_HELP = "The port to listen on. [dim]\\[env: KEYSTEAD_PORT; default: 8700][/dim]"
_WORKERS_HELP = "How many processes answer requests. [dim]\\[env: KEYSTEAD_WORKERS; default: 1][/dim]"
_KITS_HELP = """Which kits run, divided by commas; one of your own as myapp.kit:KIT.
[dim]\\[env: KEYSTEAD_KITS; default: all that have routes, in production those that are configured][/dim]"""
_MODE_HELP = """Refuse to start without secrets and a public address, or create what is missing.
[dim]\\[env: KEYSTEAD_MODE; default: development][/dim]"""
_PUBLIC_HELP = """Where browsers reach this server, such as https://example.com.
[dim]\\[env: KEYSTEAD_PUBLIC_URL; default: the address that it listens on][/dim]"""
_CONFIG_HELP = "The file with settings. [dim]\\[env: KEYSTEAD_CONFIG; default: keystead.toml, if there is one][/dim]"


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
) -> None:
    """Run Keystead: the kits and their API, a start page on /, health checks, metrics.

    Settings come from flags, the environment, a secrets file and keystead.toml; docs/server.md lists all of them. The
    stores are opened first; Ctrl-C or SIGTERM finishes the requests under way, closes the stores and leaves.

    [bold]Examples[/bold]

      keystead serve

      keystead serve --store redis://localhost:6379/0 --port 8080 --workers 4

      keystead serve --production --public-url https://example.com

    A URL with a password is better given as KEYSTEAD_STORE: arguments show in the list of processes.
    """
    # Imported here, so that the other commands start without a web server.
    from keystead.server.kit_loading import load_kits, refuse_missing, refuse_split_memory, split_off
    from keystead.server.processes import WorkersEnded, free_address, run_workers

    if config is not None:
        os.environ[CONFIG_VARIABLE] = config
    flags = {
        **_stores(store),
        "host": host,
        "port": port,
        "workers": workers,
        "kits": kits,
        "mode": None if production is None else "production" if production else "development",
        "public_url": public_url,
    }
    try:
        settings = Settings(**flags)
        running, off = split_off(settings, load_kits(settings))
        for kit in running:
            settings.of(kit)
        refuse_split_memory(settings)
        if not settings.development:
            refuse_missing(settings, running)
        try:
            address = free_address(settings)
        except OSError as error:
            place = f"{settings.host}:{settings.port}"
            leave(f"cannot listen on {place} ({error.strerror or error}); choose another --port or --host.", FAILED)
        if settings.development:
            with private_files():
                asyncio.run(_open_once(settings, running))
            settings = _with_secrets(settings, running, flags)
        else:
            asyncio.run(_open_once(settings, running))
        run_workers(settings, address, lambda: _print_address(settings, off))
    except KeysteadError as error:
        _leave_with(error)
    except WorkersEnded:
        leave("the workers end as soon as they are started; the lines above say why.", FAILED)
    typer.echo("Keystead has stopped.")


def _stores(given: Sequence[str] | None) -> dict[str, Any]:
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
    """The settings, with a sealing key. If there is none, create one and print where it is."""
    path = settings.secrets_path
    if settings.secrets_exposed:
        typer.echo(f"keystead: {settings.secrets_exposed}", err=True)
    from keystead.server.kit_loading import needs_seal

    if settings.seal_keys is not None or not needs_seal(running):
        return settings
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = add_seal_key(path)
    except OSError as error:
        leave(f"cannot write {path} ({error.strerror or error}); set secrets_file, or KEYSTEAD_SEAL_KEYS.", FAILED)
    if made:
        typer.echo(f"Keystead has made a key to seal secrets with, in {path}: keep it private, and out of git.")
    return Settings(**flags)


async def _open_once(settings: Settings, running: Sequence[Kit]) -> None:
    """Report a broken store or table setup now, as a one-line error, instead of by a worker that dies."""
    from keystead.server.kit_loading import opened_stores, opened_tables, refuse_misfits

    async with opened_stores(settings) as stores:
        refuse_misfits(running, stores)
    async with opened_tables(running, settings):
        pass


def _print_address(settings: Settings, off: Mapping[str, str]) -> None:
    behind = "" if settings.public_url is None else f"listening on {settings.internal_url}; "
    if off:
        typer.echo(f"Off until configured: {'; '.join(f'{name} (set {how})' for name, how in off.items())}")
    typer.echo(f"Keystead is running: open {settings.origin} ({behind}Ctrl-C stops it)")


def _leave_with(error: KeysteadError) -> NoReturn:
    asked_wrongly = isinstance(error, BadUrl | MissingExtra | WrongSettings)
    leave(str(error), USAGE_ERROR if asked_wrongly else FAILED)

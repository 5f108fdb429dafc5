"""`keystead NAME …`: commands defined by kits, run on the open service of the kit."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import typer

from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import Command, CommandGroup
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import Json, Stores, check_stores, run, settings_for
from keystead.cli.terminal_language import say
from keystead.kits import COMMANDS, ROUTED
from keystead.kits.kit_command import KitCommand, Shown
from keystead.parts.sanitize import visible
from keystead.server import Settings
from keystead.server.settings_errors import WrongSettings

if TYPE_CHECKING:
    from keystead.kits.kit import Kit

_LONGEST_LINE: Final = 4_000


def kit_groups(name: str | None) -> list[typer.Typer]:
    """The command group of the kit with this name; without a name, of all kits that have commands.

    Third-party kits come from the setting `kits`, and replace a built-in kit of the same name. Invalid settings hide
    them from the help; running a command reports the error.
    """
    places = {one: (one, place) for one, place in COMMANDS.items()}
    for reference, kit in _third_party_kits(tolerant=name is None or name in COMMANDS):
        if kit.commands is not None:
            places[kit.name] = (reference, kit.commands)
        else:
            places.pop(kit.name, None)
    return [_group(one, *place) for one, place in places.items() if name in (None, one)]


def _third_party_kits(*, tolerant: bool) -> list[tuple[str, Kit]]:
    """The third-party kits in the settings, each with its reference there."""
    try:
        settings = Settings()
        named = [one for one in settings.kits or () if one not in ROUTED]
        if not named:
            return []
        from keystead.server.kit_loading import load_kits

        loaded = zip(settings.kits or (), load_kits(settings), strict=True)
        return [(reference, kit) for reference, kit in loaded if reference not in ROUTED]
    except WrongSettings as error:
        if tolerant:
            return []
        fail(str(error), USAGE_ERROR)


def _group(name: str, reference: str, place: str) -> typer.Typer:
    module, _, attribute = place.partition(":")
    imported = import_module(module)
    commands: Iterable[KitCommand] = getattr(imported, attribute)
    help_text = (imported.__doc__ or say("The commands of the kit {name}.", name=name)).strip()
    group = typer.Typer(name=name, cls=CommandGroup, no_args_is_help=True, help=help_text)

    @group.callback(help=help_text)
    def _callback() -> None:
        """Without a callback, Typer would collapse a group of one command."""

    for command in commands:
        group.command(command.__name__.replace("_", "-"), cls=Command)(_typer_command(command, name, reference))
    return group


def _typer_command(command: KitCommand, name: str, reference: str) -> Any:
    """The command for Typer: not async, without the service, with `--store` and `--json`."""
    signature = inspect.signature(command)
    _, *own = signature.parameters.values()
    annotations = {one.name: one.annotation for one in own}
    hints = get_type_hints(
        SimpleNamespace(__annotations__=annotations), globalns=getattr(command, "__globals__", {}), include_extras=True
    )
    added = {"store": (Stores, None), "as_json": (Json, False)}

    @wraps(command)
    def runnable(**given: Any) -> None:
        store, as_json = given.pop("store"), given.pop("as_json")

        async def work() -> int:
            async with _open_service(name, reference, store) as service:
                shown = await command(service, **given)
            _print(shown, as_json)
            return shown.code

        run(work)

    runnable.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in own),
            *(
                inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
                for one, (hint, default) in added.items()
            ),
        ],
        return_annotation=None,
    )
    runnable.__annotations__ = {**hints, **{one: hint for one, (hint, _) in added.items()}, "return": None}
    del runnable.__wrapped__
    return runnable


@asynccontextmanager
async def _open_service(name: str, reference: str, stores: Sequence[str] | None) -> AsyncIterator[Any]:
    """The service of a kit, opened as the server opens it."""
    # Imported here: the help needs no web framework.
    from keystead.server.app import site_of
    from keystead.server.kit_loading import has_tables, load_kit, needs_seal, open_kit_tables, open_kits, open_stores

    settings = settings_for(stores)
    kits = [load_kit(reference)]
    check_stores(stores, kits[0].keyspaces)
    if needs_seal(kits) and settings.ring is None:
        fail(
            say(
                "the kit {name} needs a sealing key; run `keystead serve` here once, which creates one in development, "
                "or set KEYSTEAD_SEAL_KEYS (`keystead secrets new`)",
                name=name,
            ),
            USAGE_ERROR,
        )
    if has_tables(kits) and settings.database_url is None:
        fail(
            say("the kit {name} has tables, which this store cannot hold; set KEYSTEAD_DATABASE", name=name),
            USAGE_ERROR,
        )
    async with (
        open_stores(settings) as by_role,
        open_kit_tables(kits, settings) as tables,
        open_kits(kits, by_role, settings, replace(site_of(settings), tables=tables)) as services,
    ):
        yield services[kits[0].name]


def _print(shown: Shown, as_json: bool) -> None:
    if as_json:
        print_json(shown.data)
        return
    for line in shown.text.splitlines():
        typer.echo(visible(line, _LONGEST_LINE))
    for line in shown.note.splitlines():
        typer.echo(visible(line, _LONGEST_LINE), err=True)

"""Command-line arguments that name keyspaces and stores, and how they are opened."""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final
from urllib.parse import unquote

import typer

from keystead import connect
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.name_hints import complete_keyspace, did_you_mean, families_here, modules_here
from keystead.cli.terminal_language import say
from keystead.errors import BadDeclaration, BadUrl, KeysteadError, MissingExtra, printable
from keystead.kits import KITS
from keystead.schema import Family, Keyspace
from keystead.schema.keyspace import with_parts
from keystead.server import Settings
from keystead.server.own_keyspaces import OWN
from keystead.server.settings_errors import WrongSettings
from keystead.server.user_modules import find_modules_here
from keystead.stores import Store

_TARGETS_HELP = """Keyspaces: a class (myapp.keys:AppKeys), a module with all its keyspaces (myapp.keys), a kit
(login, or your own: myapp.kit:KIT), a file (myapp/keys.py), or kits for all kits and the server's keyspaces. Each
includes the keyspaces of its parts, such as the outbox. [dim]\\[default: kits][/dim]"""
_STORE_HELP = """Where the keys live, as for serve; role=URL for a role. Repeatable.
[dim]\\[env: KEYSTEAD_STORE; default: sqlite:///keystead.db][/dim]"""

_MOST_NAMES: Final = 20  # of families in an error: those of all kits are some hundred

# The modules of keyspaces that have a short name.
NAMED: Final = {**KITS, **OWN}

Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEYSPACE", help=_TARGETS_HELP, show_default=False, autocompletion=complete_keyspace),
]
# What has no room for keyspaces as arguments, such as `show FAMILY`, has only the option; all other commands have both.
Keyspaces = Annotated[
    list[str] | None,
    typer.Option(
        "--keyspace", "-k", metavar="KEYSPACE", help=_TARGETS_HELP, show_default=False, autocompletion=complete_keyspace
    ),
]
MoreKeyspaces = Annotated[
    list[str] | None,
    typer.Option(
        "--keyspace",
        "-k",
        metavar="KEYSPACE",
        help="The same as the argument KEYSPACE; every command has this option. Repeatable.",
        show_default=False,
        autocompletion=complete_keyspace,
    ),
]
Stores = Annotated[list[str] | None, typer.Option("--store", metavar="URL", help=_STORE_HELP, show_default=False)]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON, for programs.")]


def keyspaces(*targets: Sequence[str] | None) -> list[type[Keyspace]]:
    """The keyspaces of these names, given as arguments or with --keyspace, with those of their parts.

    Without names, they are those of all kits and of the server.

    Raises BadDeclaration for an invalid declaration. Exits with code 2 if there is no such keyspace, or importing its
    module fails for another reason.
    """
    return with_parts(named_keyspaces(*targets))


def named_keyspaces(*targets: Sequence[str] | None) -> list[type[Keyspace]]:
    """Like `keyspaces`, without those of their parts."""
    found: dict[type[Keyspace], None] = {}
    for target in _expand_targets(all_targets(*targets)):
        found.update(dict.fromkeys(_keyspaces_of(target)))
    return list(found)


def all_targets(*targets: Sequence[str] | None) -> list[str]:
    """The names given as arguments and with --keyspace."""
    return [name for group in targets for name in group or ()]


def other_keyspaces(classes: Sequence[type[Keyspace]]) -> list[type[Keyspace]]:
    """The keyspaces of all kits and of the server that are not among these: their keys are not unknown."""
    return [one for one in keyspaces() if one not in classes]


def _expand_targets(targets: Sequence[str]) -> list[str]:
    """The targets; `kits` becomes all built-in kits, those in the settings, and the server's own keyspaces."""
    return [name for target in targets or ["kits"] for name in (_all_kits() if target == "kits" else [target])]


def _all_kits() -> list[str]:
    try:
        chosen = Settings().kits or ()
    except WrongSettings as error:
        fail(str(error), USAGE_ERROR)
    return [*NAMED, *(name for name in chosen if name not in NAMED)]


def _keyspaces_of(target: str) -> list[type[Keyspace]]:
    module_name, _, class_name = target.partition(":")
    module_name = _module_of(module_name)
    if module_name in NAMED:
        module_name = NAMED[module_name]
    else:
        find_modules_here()
    if not all(part.isidentifier() for part in module_name.split(".")):
        fail(say("{target} is not a keyspace; name one as myapp.keys:AppKeys", target=repr(target)), USAGE_ERROR)
    module = _import(target, module_name)
    declared = {
        name: one
        for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, Keyspace) and one is not Keyspace
    }
    if class_name in declared:
        return [declared[class_name]]
    if class_name:
        kit = _kit_keyspaces(getattr(module, class_name, None))
        names = ", ".join(declared) or "none"
        near = did_you_mean(class_name, declared)
        return kit or fail(
            say(
                "{module_name} has no keyspace {class_name}{near}; it has: {names}",
                module_name=module_name,
                class_name=repr(class_name),
                near=near,
                names=names,
            ),
            USAGE_ERROR,
        )
    own = [one for one in declared.values() if one.__module__ == module.__name__]
    return own or fail(
        say("{module_name} declares no keyspace (a class derived from keystead.Keyspace)", module_name=module_name),
        USAGE_ERROR,
    )


def _module_of(name: str) -> str:
    """The module of a file: `myapp/keys.py` is `myapp.keys`."""
    if not name.endswith(".py"):
        return name
    path = Path(name)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return ".".join(path.with_suffix("").parts)


def _import(target: str, module_name: str) -> ModuleType:
    try:
        return import_module(module_name)
    except BadDeclaration:
        raise
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            kits = ", ".join(KITS)
            near = did_you_mean(target.partition(":")[0], [*NAMED, *modules_here()])
            fail(
                say(
                    "there is no module {module_name} here{near}; name one as myapp.keys:AppKeys, or a kit ({kits})",
                    module_name=repr(module_name),
                    near=near,
                    kits=kits,
                ),
                USAGE_ERROR,
            )
        message = printable(" ".join(str(error).split()))
        fail(
            say(
                "{target} cannot be imported, {place}: {name}: {message}",
                target=target,
                place=source_location(error),
                name=type(error).__name__,
                message=message,
            ),
            USAGE_ERROR,
        )


def _kit_keyspaces(found: object) -> list[type[Keyspace]]:
    """The keyspaces of a kit; empty if this is not a kit."""
    from keystead.kits.kit import Kit  # needs a web framework

    return found.keyspaces if isinstance(found, Kit) else []


def source_location(error: BaseException) -> str:
    """File and line of the declaration: the innermost line of the module whose import raised the error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_readable(error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    # Module code runs in a frame of this name; its class bodies and functions are frames above it.
    file = next((frame.filename for frame in reversed(frames) if frame.name == "<module>"), frames[-1].filename)
    line = next(frame.lineno for frame in reversed(frames) if frame.filename == file)
    return f"{_readable(file)}:{line}"


def _readable(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def find_family(name: str, among: Iterable[type[Keyspace]]) -> Family[Any]:
    """The family of this name, `counter` or `WidgetKeys.counter`. Exits with code 2 if it is not exactly one."""
    classes = list(among)
    keyspace, _, attribute = name.rpartition(".")
    found = [
        family
        for cls in classes
        for own, family in cls.families.items()
        if own == attribute and (not keyspace or cls.__name__ == keyspace) and family.keyspace is cls
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{family.keyspace.__name__}.{family.name}" for family in found if family.keyspace)
        fail(say("several families are called {name}: write one of {names}", name=repr(name), names=names), USAGE_ERROR)
    known = sorted({own for cls in classes for own in cls.families})
    declares = families_here().get(attribute)
    near = (
        say("; {module} declares it: add -k {module}", module=declares)
        if declares
        else did_you_mean(attribute, [*known, *modules_here()])
    )
    return fail(
        say(
            "there is no family {name}{near}; the families are: {names}",
            name=repr(name),
            near=near,
            names=", ".join([*known[:_MOST_NAMES], *(["…"] if len(known) > _MOST_NAMES else [])]),
        ),
        USAGE_ERROR,
    )


def store_urls(stores: Sequence[str] | None) -> dict[str, str]:
    """URLs by role."""
    if not stores:
        return Settings().store_urls
    urls: dict[str, str] = {}
    for given in stores:
        role, separator, url = given.partition("=")
        if separator and role.isidentifier():
            urls[role] = url
        else:
            urls["default"] = given
    urls.setdefault("default", Settings().store)
    return urls


def settings_for(stores: Sequence[str] | None, **flags: Any) -> Settings:
    """The settings, with these stores in place of the configured ones."""
    if stores:
        urls = store_urls(stores)
        flags |= {"store": urls.pop("default"), "stores": urls or None}
    return Settings(**flags)


def _urls_of(stores: Sequence[str] | None, classes: Sequence[type[Keyspace]] | None) -> dict[str, str]:
    """URLs by role. Without explicit stores, only the roles that these keyspaces use."""
    urls = store_urls(stores)
    if stores or classes is None:
        return urls
    return {role: url for role, url in urls.items() if role in _roles(classes)}


def _roles(classes: Sequence[type[Keyspace]]) -> set[str]:
    return {"default", *(family.role for cls in classes for family in cls.families.values())}


@asynccontextmanager
async def open_stores(
    stores: Sequence[str] | None, classes: Sequence[type[Keyspace]] | None = None
) -> AsyncIterator[dict[str, Store]]:
    """The stores by role, each URL opened once. Of the roles in settings, only those that the keyspaces use."""
    urls = _urls_of(stores, classes)
    async with AsyncExitStack() as stack:
        by_url = {url: await stack.enter_async_context(connect(url)) for url in dict.fromkeys(urls.values())}
        yield {role: by_url[url] for role, url in urls.items()}


def is_missing(url: str) -> bool:
    """Whether this names a database file that does not exist; opening it would create it."""
    path = unquote(url.removeprefix("sqlite:///").partition("?")[0])
    return url.startswith("sqlite:///") and not Path(path).exists()


def require_database(url: str, advice: str = "") -> None:
    """Exit with code 2 if a database file to read does not exist: it was mistyped."""
    if is_missing(url):
        path = unquote(url.removeprefix("sqlite:///").partition("?")[0])
        advice = advice or say("name another with --store URL")
        fail(say("there is no database {path}; {advice}", path=path, advice=advice), USAGE_ERROR)


def check_stores(stores: Sequence[str] | None, classes: Sequence[type[Keyspace]]) -> None:
    """Exit with code 2 for a missing database file or an unknown role: in a command that reads, both are typos."""
    urls = _urls_of(stores, classes)
    for url in urls.values():
        require_database(url)
    check_roles(stores, classes)


def check_roles(stores: Sequence[str] | None, classes: Sequence[type[Keyspace]]) -> None:
    """Exit with code 2 for a role that no family has."""
    roles = _roles(classes)
    for role in _urls_of(stores, classes).keys() - roles:
        fail(
            say(
                "no family has the role {role}; the roles are: {names}", role=repr(role), names=", ".join(sorted(roles))
            ),
            USAGE_ERROR,
        )


@asynccontextmanager
async def open_keyspaces(
    classes: Sequence[type[Keyspace]], stores: Sequence[str] | None
) -> AsyncIterator[list[Keyspace]]:
    """The keyspaces, bound to their opened stores. KEYSTEAD_SEAL_KEYS or the secrets file is optional here: without
    keys, sealed fields stay closed."""
    check_stores(stores, classes)
    ring = Settings(store=store_urls(stores)["default"]).ring
    async with open_stores(stores, classes) as by_role:
        others: dict[str, Any] = {role: store for role, store in by_role.items() if role != "default"}
        yield [cls(by_role["default"], seal=ring, needs_seal=False, **others) for cls in classes]


def run(work: Callable[[], Coroutine[Any, Any, int]]) -> None:
    """Run a command: exit code 0, 1 if it found something or failed, 2 on a usage error."""
    gc.freeze()  # keeps imported objects out of the full collections during a scan
    try:
        code = asyncio.run(work())
    except KeysteadError as error:
        is_usage_error = isinstance(error, BadUrl | MissingExtra | BadDeclaration | WrongSettings)
        fail(str(error), USAGE_ERROR if is_usage_error else FAILED)
    except KeyboardInterrupt:
        fail(say("stopped"), 130)
    if code:
        raise typer.Exit(code)

"""`keystead init`: write a small project that runs."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from keystead.cli import written_files
from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import Json
from keystead.cli.project_files import fit, project_files
from keystead.cli.terminal_language import say
from keystead.errors import DoesNotFit, KeysteadError
from keystead.stores import connect


class AppKind(StrEnum):
    """What runs."""

    FASTAPI = "fastapi"
    SCRIPT = "script"


_FOLDER_HELP = "Where to write it; the folder is created. [dim]\\[default: a question, or the working directory][/dim]"
_APP_HELP = "A web application with FastAPI, or a plain script. [dim]\\[default: a question][/dim]"
_STORE_HELP = "Where its keys live. [dim]\\[default: a question, or sqlite:///app.db][/dim]"
_YES_HELP = "Ask nothing: take the defaults."

_DEFAULT_STORE: Final = "sqlite:///app.db"

Folder = Annotated[Path | None, typer.Argument(metavar="FOLDER", help=_FOLDER_HELP, show_default=False)]
App = Annotated[AppKind | None, typer.Option("--app", metavar="fastapi|script", help=_APP_HELP, show_default=False)]
StoreUrl = Annotated[str | None, typer.Option("--store", metavar="URL", help=_STORE_HELP, show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", metavar=NO_VALUE, help=_YES_HELP)]


def init(
    folder: Folder = None, kind: App = None, store: StoreUrl = None, yes: Yes = False, as_json: Json = False
) -> None:
    """Start a project: keys, an application, a test and a README that run as they are.

    It asks three questions: where, which kind of application, and which store. Flags answer them beforehand. Without a
    terminal, or with --yes, it takes the defaults. No file is overwritten.

    [bold]Examples[/bold]

      keystead init

      keystead init shop --app fastapi --store redis://localhost:6379/0

      keystead init . --app script --yes
    """
    asks = not yes and not as_json and sys.stdin.isatty()
    if folder is None:
        folder = Path(typer.prompt(say("Folder"), default=".") if asks else ".")
    if kind is None:
        kind = _ask_kind() if asks else _default_kind()
    if store is None:
        store = (
            typer.prompt(say("Store of the keys, such as redis://localhost:6379/0"), default=_DEFAULT_STORE)
            if asks
            else _DEFAULT_STORE
        )
    _check_store(store)
    name = folder.resolve().name
    files = {folder / file: text for file, text in project_files(_title(name), kind == AppKind.FASTAPI, store).items()}
    _refuse_to_overwrite(folder, list(files))
    try:
        written_files.write(files)
    except OSError as error:
        fail(
            say(
                "cannot write {path}: {reason}",
                path=error.filename or folder,
                reason=error.strerror or error,
            )
        )
    commands = _next_commands(folder, kind)
    if as_json:
        print_json({"files": [str(file) for file in files], "next": commands})
        return
    for file in files:
        typer.echo(say("wrote {file}", file=file))
    typer.echo(f"\n{say('Now run it, and look at its keys:')}\n")
    for command in commands:
        typer.echo(f"  {command}")


def _default_kind() -> AppKind:
    return AppKind.FASTAPI if find_spec("fastapi") and find_spec("granian") else AppKind.SCRIPT


def _ask_kind() -> AppKind:
    while True:
        given = typer.prompt(say("Application: fastapi or script"), default=_default_kind().value).strip().lower()
        found = next((one for one in AppKind if given and one.value.startswith(given)), None)
        if found is not None:
            return found
        typer.echo(say("Answer fastapi or script."))


def _check_store(url: str) -> None:
    """Refuse what is no store, and what does not belong into a file that is shared."""
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    if password:
        fail(
            say("the URL contains a password, which a project must not; set KEYSTEAD_STORE where it runs"), USAGE_ERROR
        )
    try:
        fit(connect(url))
    except DoesNotFit as error:
        fail(f"{str(error).splitlines()[0]}. Name another store", USAGE_ERROR)
    except KeysteadError as error:
        fail(str(error), USAGE_ERROR)


def _refuse_to_overwrite(folder: Path, files: list[Path]) -> None:
    if folder.exists() and not folder.is_dir():
        fail(say("{folder} is not a folder; name another", folder=folder), USAGE_ERROR)
    existing = [str(file) for file in files if file.exists()]
    if existing:
        fail(
            say("{names} exists already, and nothing was written; name another folder", names=", ".join(existing)),
            USAGE_ERROR,
        )


def _title(name: str) -> str:
    """The name of the folder, as a title: `my_shop` -> `My shop`."""
    words = " ".join(re.findall(r"\w+", name.replace("_", " ")))
    return f"{words[:1].upper()}{words[1:]}" or "Application"


def _next_commands(folder: Path, kind: AppKind) -> list[str]:
    """The two commands to run now. They work in this terminal, whatever is on its PATH."""
    found = shutil.which("python")
    is_this = found is not None and Path(found).resolve().parent == Path(sys.executable).resolve().parent
    is_activated = found is not None and Path(found).parent == Path(sys.executable).parent
    python = "python" if is_this and is_activated else shlex.quote(sys.executable)
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    run = "-m granian --interface asgi app:app" if kind == AppKind.FASTAPI else "app.py"
    return [f"{there}{python} {run}", f"{there}{python} -m keystead show --keyspace keys"]

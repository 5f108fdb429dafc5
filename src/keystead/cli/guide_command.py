"""`keystead guide`: open a page of the documentation."""

from __future__ import annotations

import sys
import webbrowser
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer

from keystead.catalogue import LANGUAGES
from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.terminal_language import say, speaker

_BUILT: Final = Path(__file__).parents[1] / "guide"  # in a wheel, and in a checkout after `make docs`
_SOURCES: Final = Path(__file__).parents[3] / "docs"  # in a checkout

_PAGE_HELP = "A page, such as sessions, or a link that a message names. [dim]\\[default: the first page][/dim]"


def guide(page: Annotated[str, typer.Argument(metavar="PAGE", help=_PAGE_HELP, show_default=False)] = "index") -> None:
    """Open the documentation of this version in a browser, without a network. Prints the address.

    [bold]Examples[/bold]

      keystead guide

      keystead guide troubleshooting

      keystead guide findings#overlap
    """
    folder, ending = (_BUILT, ".html") if (_BUILT / "index.html").is_file() else (_SOURCES, ".md")
    pages = _pages(folder, ending)
    if not pages:
        fail(say("this installation has no guide; it is in the folder docs of the sources."))
    path, _, anchor = page.partition("#")
    name = path.removeprefix("./").removeprefix("docs/").removesuffix(ending).removesuffix(".md").strip("/")
    if name not in pages:
        near = get_close_matches(name, pages, 1)
        advice = say("did you mean {name}?", name=near[0]) if near else say("`keystead guide` opens the first one.")
        fail(say("{page} is not a page of the guide; {advice}", page=page, advice=advice), USAGE_ERROR)
    address = pages[name].as_uri() + (f"#{anchor}" if anchor else "")
    typer.echo(address)
    if sys.stdout.isatty():
        webbrowser.open(address)


def _pages(folder: Path, ending: str) -> dict[str, Path]:
    """The pages by path without ending, such as `reference/errors`, and by their last word if no page above has it.

    Many are called `README` or have the name of a part: `sessions` is the page that explains sessions.
    """
    found = sorted(folder.rglob(f"*{ending}"), key=lambda path: (len(path.parts), path))
    by_path = {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}
    by_word = {path.stem: path for name, path in reversed(by_path.items()) if name.partition("/")[0] not in LANGUAGES}
    translated = {path.stem: path for path in (folder / speaker().language).glob(f"*{ending}")}
    return by_word | by_path | translated

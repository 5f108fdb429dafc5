"""`keystead guide`: open a page of the documentation."""

from __future__ import annotations

import sys
import webbrowser
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer

from keystead.cli.exit import USAGE_ERROR, fail

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
        fail("this installation has no guide; it is in the folder docs of the sources.")
    path, _, anchor = page.partition("#")
    name = path.removeprefix("./").removeprefix("docs/").removesuffix(ending).removesuffix(".md").strip("/")
    if name not in pages:
        near = get_close_matches(name, pages, 1)
        advice = f"did you mean {near[0]}?" if near else "`keystead guide` opens the first one."
        fail(f"{page} is not a page of the guide; {advice}", USAGE_ERROR)
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
    by_word = {path.stem: path for path in reversed(found)}
    return by_word | by_path

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

      keystead guide docs/reference/findings.md#overlap
    """
    folder, ending = (_BUILT, ".html") if (_BUILT / "index.html").is_file() else (_SOURCES, ".md")
    pages = {path.stem: path for path in sorted(folder.rglob(f"*{ending}"), reverse=True)}
    if not pages:
        fail("this installation has no guide; it is in the folder docs of the sources.")
    name, _, anchor = page.partition("#")
    stem = Path(name).stem
    if stem not in pages:
        near = get_close_matches(stem, pages, 1)
        advice = f"did you mean {near[0]}?" if near else "`keystead guide` opens the first one."
        fail(f"{page} is not a page of the guide; {advice}", USAGE_ERROR)
    address = pages[stem].as_uri() + (f"#{anchor}" if anchor else "")
    typer.echo(address)
    if sys.stdout.isatty():
        webbrowser.open(address)

"""Shared by `keystead backup`, `restore` and `copy`: options, URLs, progress and printing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Annotated, Final, Self
from urllib.parse import parse_qsl

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from keystead.catalogue import message
from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.progress_bar import Show, progress
from keystead.cli.terminal_language import say
from keystead.server import Settings
from keystead.stores.transfer.transfer_progress import TransferProgress

_STORE_HELP = (
    "The store: its URL, or a role from keystead.toml, such as durable. "
    "[dim]\\[env: KEYSTEAD_STORE; default: sqlite:///keystead.db][/dim]"
)
_MATCH_HELP = "Only keys that match this pattern, such as 'sess:*'. [dim]\\[default: all][/dim]"

StoreUrl = Annotated[str | None, typer.Option("--store", metavar="URL", help=_STORE_HELP, show_default=False)]
Match = Annotated[str, typer.Option("--match", metavar="PATTERN", help=_MATCH_HELP, show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", metavar=NO_VALUE, help="Skip the confirmation.")]

_PHASES: Final = {
    "saving": message("saving"),
    "checking": message("checking"),
    "restoring": message("restoring"),
    "copying": message("copying"),
    "comparing": message("comparing"),
}

_TIMEOUT: Final = "60s"  # enough for a set of ten million members in one step; lost connections fail sooner


def store_url(store: str | None) -> str:
    """The URL that was given, or the one of the settings."""
    return Settings().store if store is None else resolve_url(store)


def resolve_url(given: str) -> str:
    """The URL itself, or the URL of a role."""
    if "://" in given:
        return given
    roles = Settings().store_urls
    if given not in roles:
        fail(
            say(
                "{given} is neither a store URL nor a role; the roles are: {names}",
                given=repr(given),
                names=", ".join(roles),
            ),
            USAGE_ERROR,
        )
    return roles[given]


def with_timeout(url: str) -> str:
    """The URL with a timeout for one large key in one step, unless it has a timeout already."""
    query = url.partition("?")[2]
    if "timeout" in dict(parse_qsl(query, keep_blank_values=True)):
        return url
    return f"{url}{'&' if query else '' if url.endswith('?') else '?'}timeout={_TIMEOUT}"


def print_counts(counts: Iterable[tuple[int, str]]) -> None:
    """Print a line for each count that is not 0."""
    for count, what in counts:
        if count > 0:
            typer.echo(f"  {count:,} {say(what)}")


def print_problem(sentence: str, examples: Iterable[str]) -> None:
    typer.echo(sentence, err=True)
    for example in examples:
        typer.echo(f"  {example}", err=True)


class Display:
    """Progress on a terminal: a bar for each phase, or one line that is updated.

    Without a terminal, a line is printed only when the state changes.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._shown = ExitStack()
        self._what = ""
        self._show: Show | None = None
        self._live: Live | None = None

    def bar(self, now: TransferProgress) -> None:
        if self._what != now.phase or self._show is None:
            self.close()
            self._what, self._show = now.phase, self._shown.enter_context(progress(say(_PHASES[now.phase])))
        self._show(now.done, now.total)

    def line(self, sentence: str) -> None:
        state = sentence.partition(":")[0]
        if not self._console.is_terminal:
            if state != self._what:
                typer.echo(sentence, err=True)
        else:
            if self._live is None:
                self.close()
                self._live = self._shown.enter_context(Live(console=self._console, transient=True, auto_refresh=False))
            self._live.update(Text(sentence), refresh=True)
        self._what = state

    def close(self) -> None:
        self._shown.close()
        self._what, self._show, self._live = "", None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""`keystead copy`: live data from one store into another, and a move that logs nobody out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from keystead import connect
from keystead.cli.backup_command import Match, is_missing, named_url, patient, refuse_missing
from keystead.cli.confirmation import confirmed
from keystead.cli.exit import ASKED_WRONGLY, FAILED, leave
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import counted, json_text
from keystead.cli.interrupts import Paused, stoppable
from keystead.cli.keyspace_arguments import Json, run
from keystead.cli.priority import step_back
from keystead.cli.private_files import private_files
from keystead.cli.progress import Show, progress
from keystead.errors import Contended, StoreError, StoreUnavailable
from keystead.stores import Store
from keystead.stores.copy import Copied, CopyProgress, Passed, Surveyed, count_keys, follow, progress_path, survey
from keystead.stores.copy import copy as copy_all

_FROM_HELP = "The store to copy from: its URL, or a role of keystead.toml, such as default."
_TO_HELP = "The store to copy into, alike."
_FOLLOW_HELP = "Go on with what changes at FROM, until Ctrl-C: then one last pass, a comparison, and the end."
_OVERWRITE_HELP = "Replace keys that are at TO already and differ, also those that were changed there since."
_START_OVER_HELP = "Forget what earlier runs copied: keys that were deleted at FROM since then stay at TO."
_ALLOW_EMPTY_HELP = (
    "Keys were deleted on purpose, at FROM or at TO: go on, even if they are more than 10 % of what was copied."
)
_NO_VERIFY_HELP = "Do not compare both stores in the end."
_DRY_RUN_HELP = "Say what would be copied and what is in the way, and write nothing."
_PROGRESS_HELP = """The file that notes what was copied, for the next run with the same FROM and TO.
[dim]\\[default: a name made of both stores, in this folder][/dim]"""
_YES_HELP = "Do not ask."

From = Annotated[str, typer.Argument(metavar="FROM", help=_FROM_HELP, show_default=False)]
To = Annotated[str, typer.Argument(metavar="TO", help=_TO_HELP, show_default=False)]
Follow = Annotated[bool, typer.Option("--follow", metavar=NO_VALUE, help=_FOLLOW_HELP)]
Overwrite = Annotated[bool, typer.Option("--overwrite", metavar=NO_VALUE, help=_OVERWRITE_HELP)]
StartOver = Annotated[bool, typer.Option("--start-over", metavar=NO_VALUE, help=_START_OVER_HELP)]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", metavar=NO_VALUE, help=_ALLOW_EMPTY_HELP)]
NoVerify = Annotated[bool, typer.Option("--no-verify", metavar=NO_VALUE, help=_NO_VERIFY_HELP)]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar=NO_VALUE, help=_DRY_RUN_HELP)]
ProgressFile = Annotated[
    Path | None, typer.Option("--progress", metavar="PATH", help=_PROGRESS_HELP, show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", metavar=NO_VALUE, help=_YES_HELP)]

_GO_ON = "what was copied stays; run the same command again to go on"


def copy(
    from_: From,
    to: To,
    match: Match = "*",
    follow: Follow = False,
    overwrite: Overwrite = False,
    start_over: StartOver = False,
    allow_empty: AllowEmpty = False,
    no_verify: NoVerify = False,
    dry_run: DryRun = False,
    progress_file: ProgressFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Copy every key of a store into another one, of any kind: values, and the exact time at which each expires.

    It works beside the running application. FROM is only read. A key that is at TO already is left alone and named,
    unless --overwrite. In the end both stores are compared key by key, and the exit code is 1 if anything differs.

    The same command again goes on after an interruption, kill -9 too, and after a finished copy brings TO up to date:
    what changed at FROM is written, and what was copied and is deleted at FROM is deleted at TO. Keys that no copy
    brought to TO are never deleted. What was copied is noted in a progress file; keep it.

    To move an application without logging anybody out: start with --follow, wait for "in step", start the
    application with the new store, stop the old one, then press Ctrl-C. What the application has changed or deleted at
    TO by then stays as it is. docs/copy.md has the rest.

    [bold]Examples[/bold]

      keystead copy redis://localhost:6379/0 postgresql://app@localhost/app --dry-run

      keystead copy redis://localhost:6379/0 postgresql://app@localhost/app

      keystead copy default sqlite:///new.db --match 'sess:*' --yes

      keystead copy redis://old:6379/0 redis+cluster://new:6379 --follow
    """
    if dry_run and (follow or overwrite or start_over or allow_empty):
        leave(
            "--dry-run only looks; write it without --follow, --overwrite, --start-over and --allow-empty",
            ASKED_WRONGLY,
        )

    async def work() -> int:
        source_url, target_url = named_url(from_), named_url(to)
        refuse_missing(source_url, "name another as FROM")
        if not (yes or dry_run) and not sys.stdin.isatty():
            leave(
                "nothing was copied: there is no terminal to ask on; add --yes, or --dry-run to see what would be",
                ASKED_WRONGLY,
            )
        path = progress_file or progress_path(connect(source_url).url, connect(target_url).url)
        asked = _Copy(
            source_url, target_url, match, follow, overwrite, start_over, allow_empty, not no_verify, path, yes, as_json
        )
        return await (asked.look() if dry_run else asked.run())

    run(work)


@dataclass(slots=True)
class _Copy:
    """What was asked for, and how far it is."""

    source_url: str
    target_url: str
    match: str
    follows: bool
    overwrite: bool
    start_over: bool
    allow_empty: bool
    verified: bool
    path: Path
    yes: bool
    as_json: bool
    begun: bool = False
    in_step: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    # --- a dry run -----------------------------------------------------------------------------------------

    async def look(self) -> int:
        step_back()
        # As empty as the database that would be made.
        target_url = "memory://" if is_missing(self.target_url) else self.target_url
        with stoppable(lambda: "stopped; nothing was written"):
            async with connect(patient(self.source_url)) as source, connect(patient(target_url)) as target:
                with progress("looking") as show:
                    found = await survey(
                        source,
                        target,
                        progress=self.path,
                        match=self.match,
                        on_progress=lambda now: show(now.done, now.total),
                    )
        to = connect(self.target_url).url
        if self.as_json:
            typer.echo(json_text({"from": source.url, "to": to, **found.as_json()}, indent=2))
        else:
            _print_survey(found, source.url, to)
        return FAILED if found.in_the_way or found.left_out.count else 0

    # --- a copy --------------------------------------------------------------------------------------------

    async def run(self) -> int:
        step_back()
        with stoppable(self._stopped, self._stops_gently) as paused, private_files():
            async with connect(patient(self.source_url)) as source, connect(patient(self.target_url)) as target:
                if not await self._confirmed(source, target, paused):
                    leave("nothing was copied")
                self.begun = True
                try:
                    copied = await (self._followed(source, target) if self.follows else self._once(source, target))
                except (StoreError, Contended) as error:
                    leave(f"{error}; {_GO_ON}")
        if self.as_json:
            typer.echo(json_text({"from": source.url, "to": target.url, **copied.as_json()}, indent=2))
        else:
            self._print(copied, source, target)
        return 0 if copied.is_whole else FAILED

    def _stopped(self) -> str:
        return f"stopped; {_GO_ON}" if self.begun else "stopped; nothing was written"

    def _stops_gently(self) -> bool:
        """The first Ctrl-C while both stores are in step asks for the last pass."""
        if not self.in_step or self.stop.is_set():
            return False
        self.stop.set()
        return True

    async def _confirmed(self, source: Store, target: Store, paused: Paused) -> bool:
        if self.yes:
            return True
        count, held = await count_keys(source, self.match), await count_keys(target)
        what = f"the keys that match {self.match}" if count is None else counted(count, "key")
        there = f", which holds {counted(held, 'key')} already" if held else ""
        return confirmed(f"Copy {what} of {source.url} into {target.url}{there}?", False, paused, "nothing was copied")

    async def _once(self, source: Store, target: Store) -> Copied:
        with closing(_Display()) as display:
            return await copy_all(
                source,
                target,
                progress=self.path,
                match=self.match,
                overwrite=self.overwrite,
                start_over=self.start_over,
                allow_empty=self.allow_empty,
                verified=self.verified,
                on_progress=display.bar("copying"),
                on_verify=display.bar("comparing"),
            )

    async def _followed(self, source: Store, target: Store) -> Copied:
        passes = 0

        def on_pass(passed: Passed, took_s: float) -> None:
            nonlocal passes
            passes += 1
            self.in_step = passes > 1
            if self.in_step:
                display.line(
                    f"in step: {passed.changes:,} of {counted(passed.keys, 'key')} changed in the last pass "
                    f"({took_s:,.1f} s)"
                )

        def on_trouble(error: StoreUnavailable) -> None:
            display.line(f"out of step: {error}; trying again")

        with closing(_Display()) as display:
            return await follow(
                source,
                target,
                self.stop,
                progress=self.path,
                match=self.match,
                overwrite=self.overwrite,
                start_over=self.start_over,
                allow_empty=self.allow_empty,
                verified=self.verified,
                on_progress=display.bar("copying"),
                on_pass=on_pass,
                on_trouble=on_trouble,
                on_verify=display.bar("comparing"),
            )

    def _print(self, copied: Copied, source: Store, target: Store) -> None:
        typer.echo(f"copied {counted(copied.keys, 'key')} of {source.url} into {target.url}")
        verified = copied.verified
        for count, said in (
            (copied.equal, "were there already, the same"),
            (copied.ours - copied.written if copied.resumed and not self.follows else 0, "copied by earlier runs"),
            (copied.deleted, "deleted in the first store since they were copied, and now in the second, too"),
            (copied.expired, "expired, and not copied"),
            (copied.changed_there, "changed in the second store since they were copied, and stay as they are there"),
            (copied.deleted_there, "deleted in the second store since they were copied, and stay deleted"),
            (verified.changed_since if verified else 0, "changed in the first store after they were copied"),
            (
                verified.deleted_since if verified else 0,
                "deleted in the first store after they were copied, not yet in the second; run the same command again",
            ),
            (verified.changed_there if verified else 0, "changed in the second store after they were copied"),
        ):
            if count > 0:
                typer.echo(f"  {count:,} {said}")
        rate = "" if self.follows else f", {copied.written / max(copied.copy_s, 0.001):,.0f} keys a second"
        typer.echo(f"  written: {copied.written:,} in {copied.copy_s:,.1f} s{rate}")
        if verified is not None and not verified.compared.differences:
            typer.echo(f"  compared: {verified.compared.equal:,} equal, no differences ({copied.verify_s:,.1f} s)")
        if self.path.exists():
            typer.echo(f"  noted in {self.path}: keep it, so that the next run knows what was deleted since")
        self._print_problems(copied, target)

    def _print_problems(self, copied: Copied, target: Store) -> None:
        if copied.in_the_way:
            _complain(
                f"{counted(copied.in_the_way, 'key')} in the way: there is another one in {target.url}, which was left "
                "as it is; move it, or run the same command with --overwrite",
                copied.examples["in_the_way"],
            )
        if copied.left_out.count:
            _complain(
                f"left out {counted(copied.left_out.count, 'key')} that {target.url} cannot hold:",
                copied.left_out.examples,
            )
        if copied.verified is not None and copied.verified.compared.differences:
            compared = copied.verified.compared
            _complain(
                f"{counted(compared.differences, 'difference')} between the two stores:",
                [f"{what.replace('_', ' ')}: {key}" for what, keys in compared.examples.items() for key in keys],
            )
        if not copied.is_whole:
            typer.echo("run the same command again to go on", err=True)


def _complain(sentence: str, examples: list[str]) -> None:
    typer.echo(sentence, err=True)
    for example in examples:
        typer.echo(f"  {example}", err=True)


def _print_survey(found: Surveyed, source: str, target: str) -> None:
    typer.echo(f"would copy {counted(found.new, 'key')} of {source} into {target}")
    for count, said in (
        (found.equal, "are there already, the same"),
        (found.changed, "changed in the first store since they were copied, and would be written again"),
        (found.gone, "deleted in the first store since they were copied, and would be deleted in the second"),
        (found.changed_there, "changed in the second store since they were copied, and would stay as they are"),
        (found.deleted_there, "deleted in the second store since they were copied, and would stay deleted"),
    ):
        if count:
            typer.echo(f"  {count:,} {said}")
    if found.in_the_way:
        _complain(
            f"{counted(found.in_the_way, 'key')} in the way: there is another one in {target}, which would be left as "
            "it is; --overwrite puts the one of the first store in its place",
            found.examples,
        )
    if found.left_out.count:
        _complain(f"{counted(found.left_out.count, 'key')} that {target} cannot hold:", found.left_out.examples)


class _Display:
    """What a person at a terminal sees: a bar, or one line that changes; one of them at a time.

    Without a terminal a line is printed where the state changes, and not at each pass.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._shown = ExitStack()
        self._what = ""
        self._live: Live | None = None

    def bar(self, text: str) -> Callable[[CopyProgress], None]:
        """A function that shows how far this is, from its first call on."""
        show: Show | None = None

        def on_progress(now: CopyProgress) -> None:
            nonlocal show
            if self._what != text or show is None:
                self.close()
                self._what, show = text, self._shown.enter_context(progress(text))
            show(now.done, now.total)

        return on_progress

    def line(self, sentence: str) -> None:
        what = sentence.partition(":")[0]
        if not self._console.is_terminal:
            if what != self._what:
                self._what = what
                typer.echo(sentence, err=True)
            return
        if self._live is None:
            self.close()
            self._live = self._shown.enter_context(Live(console=self._console, transient=True, auto_refresh=False))
        self._what = what
        self._live.update(Text(sentence), refresh=True)

    def close(self) -> None:
        self._shown.close()
        self._what, self._live = "", None

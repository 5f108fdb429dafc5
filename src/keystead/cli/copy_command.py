"""`keystead copy`: copy live data between stores, or migrate an application without logging users out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from keystead import connect
from keystead.catalogue import message
from keystead.cli.billing import announce_copy, announce_survey
from keystead.cli.confirmation import confirm, refuse_without_terminal
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import print_json
from keystead.cli.interrupts import PauseSignals, stop_on_signals
from keystead.cli.keyspace_arguments import Json, is_missing, require_database, run
from keystead.cli.priority import lower_priority
from keystead.cli.private_files import private_files
from keystead.cli.terminal_language import plural, say
from keystead.cli.transfers import (
    Display,
    Match,
    Yes,
    print_counts,
    print_problem,
    resolve_url,
    with_timeout,
)
from keystead.errors import Contended, StoreError, StoreUnavailable
from keystead.stores import Store
from keystead.stores.copy import Copied, CopyOptions, Passed, Surveyed, count_keys, progress_path, survey
from keystead.stores.copy import copy as copy_once
from keystead.stores.copy import follow as copy_and_follow

_FROM_HELP = "The source store: its URL, or a role from keystead.toml, such as default."
_TO_HELP = "The target store: its URL, or a role from keystead.toml."
_FOLLOW_HELP = "Keep copying changes at FROM until Ctrl-C; then make a last pass, compare, and exit."
_OVERWRITE_HELP = "Replace keys at TO that differ, including those that changed there since the copy."
_START_OVER_HELP = "Ignore the progress of earlier runs: keys deleted at FROM since then stay at TO."
_ALLOW_EMPTY_HELP = "Continue even if more than 10 % of the copied keys were deleted at FROM or at TO."
_NO_VERIFY_HELP = "Skip the comparison at the end."
_DRY_RUN_HELP = "Print what would be copied and what prevents it, and write nothing."
_PROGRESS_HELP = """The progress file, for the next run with the same FROM and TO.
[dim]\\[default: a name derived from both stores, in this folder][/dim]"""

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

_CONTINUE = message("the copied keys stay; run the same command again to continue")


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
    """Copy every key of a store to another store of any type: values and exact expiry times.

    It runs beside the application, and only reads FROM. Keys that already exist at TO are left alone and listed, unless
    --overwrite is given. At the end both stores are compared key by key; the exit code is 1 if anything differs.

    Run the same command again to continue after an interruption, even kill -9, or to update TO later: changes at FROM
    are written, and copied keys that were deleted at FROM are deleted at TO. Other keys at TO are never deleted. Keep
    the progress file, which records the copied keys.

    To migrate an application without logging users out: start with --follow, wait for "in step", start the application
    on the new store, stop the old one, then press Ctrl-C. Keys that the application has changed or deleted at TO by
    then stay as they are. See `keystead guide copy`.

    [bold]Examples[/bold]

      keystead copy redis://localhost:6379/0 postgresql://app@localhost/app --dry-run

      keystead copy redis://localhost:6379/0 postgresql://app@localhost/app

      keystead copy default sqlite:///new.db --match 'sess:*' --yes

      keystead copy redis://old:6379/0 redis+cluster://new:6379 --follow
    """
    if dry_run and (follow or overwrite or start_over or allow_empty):
        fail(
            say("--dry-run writes nothing; use it without --follow, --overwrite, --start-over and --allow-empty"),
            USAGE_ERROR,
        )

    async def work() -> int:
        source_url, target_url = resolve_url(from_), resolve_url(to)
        require_database(source_url, say("name another as FROM"))
        refuse_without_terminal(yes, dry_run, "copied")
        lower_priority()
        path = progress_file or progress_path(connect(source_url).url, connect(target_url).url)
        if dry_run:
            return await _survey(source_url, target_url, path, match, as_json)
        options = CopyOptions(
            progress=path,
            match=match,
            overwrite=overwrite,
            start_over=start_over,
            allow_empty=allow_empty,
            verified=not no_verify,
        )
        return await _Copy(path, follow, options, as_json).run(source_url, target_url, yes)

    run(work)


async def _survey(source_url: str, target_url: str, path: Path, match: str, as_json: bool) -> int:
    """Make a dry run."""
    # A missing database would be created empty.
    opened_url = "memory://" if is_missing(target_url) else target_url
    with stop_on_signals(lambda: say("stopped; nothing was written")), Display() as display:
        async with connect(with_timeout(source_url)) as source, connect(with_timeout(opened_url)) as target:
            await announce_survey(source, target, match=match)
            found = await survey(source, target, progress=path, match=match, on_progress=display.bar)
    to = connect(target_url).url
    if as_json:
        print_json({"from": source.url, "to": to, **found.as_json()})
    else:
        _print_survey(found, source.url, to)
    return FAILED if found.in_the_way or found.left_out.count else 0


@dataclass(slots=True)
class _Copy:
    """The options of a run, and its progress."""

    path: Path
    follows: bool
    options: CopyOptions
    as_json: bool
    begun: bool = False
    in_step: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, source_url: str, target_url: str, yes: bool) -> int:
        with stop_on_signals(self._advise, self._stop_gently) as pause, private_files(), Display() as display:
            async with connect(with_timeout(source_url)) as source, connect(with_timeout(target_url)) as target:
                await announce_copy(
                    source,
                    target,
                    match=self.options["match"],
                    verified=self.options["verified"],
                    follows=self.follows,
                )
                if not (yes or await self._confirm(source, target, pause)):
                    fail(say("nothing was copied"))
                self.begun = True
                self.options["on_progress"] = display.bar
                try:
                    copied = await self._copy(source, target, display)
                except (StoreError, Contended) as error:
                    fail(f"{error}; {say(_CONTINUE)}")
        if self.as_json:
            print_json({"from": source.url, "to": target.url, **copied.as_json()})
        else:
            self._print(copied, source.url, target.url)
        return 0 if copied.is_whole else FAILED

    def _advise(self) -> str:
        return say("stopped; {advice}", advice=say(_CONTINUE)) if self.begun else say("stopped; nothing was written")

    def _stop_gently(self) -> bool:
        """The first Ctrl-C while both stores are in step requests the last pass."""
        if not self.in_step or self.stop.is_set():
            return False
        self.stop.set()
        return True

    async def _confirm(self, source: Store, target: Store, pause: PauseSignals) -> bool:
        match = self.options["match"]
        count, held = await count_keys(source, match), await count_keys(target)
        keys = say("the keys that match {match}", match=match)
        if count is not None:
            keys = plural("{count} key", "{count} keys", count)
        question = say("Copy {keys} of {source} into {target}?", keys=keys, source=source.url, target=target.url)
        if held:
            question = say(
                "Copy {keys} of {source} into {target}, which already holds {held}?",
                keys=keys,
                source=source.url,
                target=target.url,
                held=plural("{count} key", "{count} keys", held),
            )
        return confirm(question, False, pause, say("nothing was copied"))

    async def _copy(self, source: Store, target: Store, display: Display) -> Copied:
        if not self.follows:
            return await copy_once(source, target, **self.options)
        passes = 0

        def on_pass(passed: Passed, took_s: float) -> None:
            nonlocal passes
            passes += 1
            self.in_step = passes > 1
            if self.in_step:
                display.line(
                    say(
                        "in step: {changes} of {keys} changed in the last pass ({took_s} s)",
                        changes=f"{passed.changes:,}",
                        keys=plural("{count} key", "{count} keys", passed.keys),
                        took_s=f"{took_s:,.1f}",
                    )
                )

        def on_trouble(error: StoreUnavailable) -> None:
            display.line(say("out of step: {error}; trying again", error=error))

        return await copy_and_follow(source, target, self.stop, on_pass=on_pass, on_trouble=on_trouble, **self.options)

    def _print(self, copied: Copied, source: str, target: str) -> None:
        typer.echo(
            say(
                "copied {keys} of {source} into {target}",
                keys=plural("{count} key", "{count} keys", copied.keys),
                source=source,
                target=target,
            )
        )
        verified = copied.verified
        earlier = copied.ours - copied.written if copied.resumed and not self.follows else 0
        print_counts(
            (
                (copied.equal, message("already there and equal")),
                (earlier, message("copied by earlier runs")),
                (
                    copied.deleted,
                    message("deleted in the first store since they were copied, and now in the second too"),
                ),
                (copied.expired, message("expired, and not copied")),
                (
                    copied.changed_there,
                    message("changed in the second store since they were copied, and left as they are"),
                ),
                (copied.deleted_there, message("deleted in the second store since they were copied, and left deleted")),
            )
        )
        if verified is not None:
            not_yet = message(
                "deleted in the first store after they were copied, not yet in the second; run the same command again"
            )
            print_counts(
                (
                    (verified.changed_since, message("changed in the first store after they were copied")),
                    (verified.deleted_since, not_yet),
                    (verified.changed_there, message("changed in the second store after they were copied")),
                )
            )
        a_second = f"{copied.written / max(copied.copy_s, 0.001):,.0f}"
        rate = "" if self.follows else say(", {rate} keys a second", rate=a_second)
        typer.echo(
            say(
                "  written: {written} in {copy_s} s{rate}",
                written=f"{copied.written:,}",
                copy_s=f"{copied.copy_s:,.1f}",
                rate=rate,
            )
        )
        if verified is not None and not verified.compared.differences:
            typer.echo(
                say(
                    "  compared: {equal} equal, no differences ({verify_s} s)",
                    equal=f"{verified.compared.equal:,}",
                    verify_s=f"{copied.verify_s:,.1f}",
                )
            )
        if self.path.exists():
            typer.echo(
                say("  progress is in {path}: keep it, so that the next run can detect deletions", path=self.path)
            )
        if copied.in_the_way:
            print_problem(
                say(
                    "{keys} not copied, because a different one exists in {target}; "
                    "move it, or run the same command with --overwrite",
                    keys=plural("{count} key", "{count} keys", copied.in_the_way),
                    target=target,
                ),
                copied.examples["in_the_way"],
            )
        if copied.left_out.count:
            print_problem(
                say(
                    "left out {keys} that {target} cannot hold:",
                    keys=plural("{count} key", "{count} keys", copied.left_out.count),
                    target=target,
                ),
                copied.left_out.examples,
            )
        if verified is not None and verified.compared.differences:
            differences = plural("{count} difference", "{count} differences", verified.compared.differences)
            print_problem(
                say("{differences} between the two stores:", differences=differences),
                verified.compared.describe_examples(),
            )
        if not copied.is_whole:
            typer.echo(say("run the same command again to continue"), err=True)


def _print_survey(found: Surveyed, source: str, target: str) -> None:
    typer.echo(
        say(
            "would copy {keys} of {source} into {target}",
            keys=plural("{count} key", "{count} keys", found.new),
            source=source,
            target=target,
        )
    )
    print_counts(
        (
            (found.equal, message("already there and equal")),
            (found.changed, message("changed in the first store since they were copied, and would be written again")),
            (
                found.gone,
                message("deleted in the first store since they were copied, and would be deleted in the second"),
            ),
            (
                found.changed_there,
                message("changed in the second store since they were copied, and would be left as they are"),
            ),
            (
                found.deleted_there,
                message("deleted in the second store since they were copied, and would be left deleted"),
            ),
        )
    )
    if found.in_the_way:
        print_problem(
            say(
                "{keys} would not be copied, because a different one exists in {target}; --overwrite replaces it",
                keys=plural("{count} key", "{count} keys", found.in_the_way),
                target=target,
            ),
            found.examples,
        )
    if found.left_out.count:
        print_problem(
            say(
                "{keys} that {target} cannot hold:",
                keys=plural("{count} key", "{count} keys", found.left_out.count),
                target=target,
            ),
            found.left_out.examples,
        )

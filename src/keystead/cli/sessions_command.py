"""`keystead sessions`: list and end sessions, of one user or of all users."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from keystead.cli.confirmation import confirm, refuse_without_terminal
from keystead.cli.delete_command import DryRun, Yes
from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import Command, CommandGroup
from keystead.cli.formatting import print_json
from keystead.cli.interrupts import stop_on_signals
from keystead.cli.keyspace_arguments import Json, Stores, named_keyspaces, open_keyspaces, run
from keystead.cli.operator import operator
from keystead.cli.progress_bar import progress
from keystead.cli.terminal_language import plural, say
from keystead.parts.audit import audit_of
from keystead.parts.sessions import Live, Sessions
from keystead.parts.sessions.session_families import sessions_of
from keystead.schema.family import Bound
from keystead.schema.times import deadline_ms

_security = logging.getLogger("keystead.security")

_FAMILY_HELP = """The family of the sessions, such as myapp.keys:AppKeys.session.
[dim]\\[default: login:LoginKeys.session, of the kit login][/dim]"""
_USER_HELP = "The id of the user, as in the session records."

FamilyName = Annotated[str, typer.Option("--family", metavar="FAMILY", help=_FAMILY_HELP, show_default=False)]
DEFAULT_FAMILY = "login:LoginKeys.session"

sessions = typer.Typer(name="sessions", cls=CommandGroup, no_args_is_help=True, help="List and end sessions.")


@sessions.command("list", cls=Command)
def list_sessions(
    user: Annotated[str | None, typer.Argument(metavar="USER", help=_USER_HELP, show_default=False)] = None,
    family: FamilyName = DEFAULT_FAMILY,
    store: Stores = None,
    as_json: Json = False,
) -> None:
    """List the sessions of a user: id, start and last use. No secret is shown.

    Without a user, list the users who have sessions, and how many.

    KEYSTEAD_SEAL_KEYS or the secrets file opens sealed fields, as for serve.

    [bold]Examples[/bold]

      keystead sessions list

      keystead sessions list 281934712345678901

      keystead sessions list 42 --family myapp.keys:AppKeys.session --store redis://localhost:6379/0
    """

    async def work() -> int:
        async with _open_sessions(family, store) as (part, lists):
            if user is None:
                await _print_users(lists, as_json)
                return 0
            found = await part.list_for(user)
        if as_json:
            print_json([_as_json(one) for one in found])
        elif not found:
            typer.echo(say("{user} has no sessions; `keystead sessions list` lists the users who have", user=user))
        else:
            for one in found:
                session: Any = one.session
                since, seen = (f"{moment:%Y-%m-%d %H:%M}" for moment in (session.created_at, session.last_seen_at))
                typer.echo(say("{id}  since {since}  last seen {seen} UTC", id=one.id, since=since, seen=seen))
        return 0

    run(work)


@sessions.command("end", cls=Command)
def end_sessions(
    user: Annotated[str | None, typer.Argument(metavar="USER", help=_USER_HELP, show_default=False)] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this session.", show_default=False)] = None,
    everyone: Annotated[bool, typer.Option("--everyone", metavar="", help="All sessions of all users.")] = False,
    family: FamilyName = DEFAULT_FAMILY,
    store: Stores = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """End all sessions of a user, one of them, or the sessions of all users. This cannot be undone.

    You are asked to confirm. The exit code is 1 if there was no such session. The audit log of the keyspace records the
    action with the name of your account on this machine: see keystead audit.

    [bold]Examples[/bold]

      keystead sessions end 281934712345678901

      keystead sessions end 42 --id n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg --yes

      keystead sessions end --everyone --dry-run
    """
    if (user is None) != everyone or (everyone and id is not None):
        fail(say("name a user, or use --everyone to end the sessions of all users"), USAGE_ERROR)
    refuse_without_terminal(yes, dry_run, "ended")
    whose = say("all users") if user is None else user

    async def work() -> int:
        with stop_on_signals(lambda: say("stopped; run it again to end the rest")) as pause:
            async with _open_sessions(family, store) as (part, lists):
                total, ended = await _count(part, lists, user, id), 0
                if total and not dry_run:
                    if not confirm(
                        say(
                            "End {sessions} of {whose}?",
                            sessions=plural("{count} session", "{count} sessions", total),
                            whose=whose,
                        ),
                        yes,
                        pause,
                    ):
                        fail(say("nothing was ended"))
                    ended = await _end(part, user, id, total)
                    _security.info("sessions ended by an operator", extra={"event": "operator-end", "count": ended})
        if as_json:
            print_json({"user": user, "id": id, "found": total, "ended": ended})
        elif not total:
            typer.echo(
                say("{whose} has no such session", whose=whose)
                if id
                else say("there are no sessions of {whose}", whose=whose)
            )
        elif dry_run:
            typer.echo(
                say(
                    "would end {sessions} of {whose}",
                    sessions=plural("{count} session", "{count} sessions", total),
                    whose=whose,
                )
            )
        else:
            typer.echo(
                say(
                    "ended {sessions} of {whose}",
                    sessions=plural("{count} session", "{count} sessions", ended),
                    whose=whose,
                )
            )
        return 0 if total else 1

    run(work)


async def _print_users(lists: Bound[Any], as_json: bool) -> None:
    """Print the number of sessions of each user; some of them may have ended."""
    found: list[dict[str, Any]] = []
    async for key in lists.scan():
        user, count = str(next(iter(key.values.values()))), await key.count()
        found.append({"user": user, "sessions": count})
        if not as_json:
            typer.echo(f"{user}  {plural('{count} session', '{count} sessions', count)}")
    if as_json:
        print_json(found)
    elif not found:
        typer.echo(say("there are no sessions"))


async def _end(part: Sessions[Any], user: str | None, id: str | None, total: int) -> int:
    act = operator()
    if user is not None:
        return int(await part.revoke_id(user, id, act)) if id is not None else await part.revoke_all(user, act)
    ended = 0
    with progress(say("ending sessions")) as show:
        async for _, count in part.revoke_everyone(act):
            ended += count
            show(ended, max(total, ended), "")
    return ended


async def _count(part: Sessions[Any], lists: Bound[Any], user: str | None, id: str | None) -> int:
    """The number of sessions to end. For all users it is the number of index entries; some may have ended."""
    if user is not None:
        return len([one for one in await part.list_for(user) if id is None or one.id == id])
    found = 0
    with progress(say("counting sessions")) as show:
        async for key in lists.scan():
            found += await key.count()
            show(found, None, "")
    return found


@asynccontextmanager
async def _open_sessions(family: str, store: Sequence[str] | None) -> AsyncIterator[tuple[Sessions[Any], Bound[Any]]]:
    """The sessions of a family, and the index of each user's sessions."""
    target, dot, name = family.rpartition(".")
    if not dot or ":" not in target or not name.isidentifier():
        fail(say("{family} is not a family; write one as myapp.keys:AppKeys.session", family=repr(family)), USAGE_ERROR)
    [keyspace] = named_keyspaces([target])
    if name not in keyspace.families:
        fail(
            say(
                "{target} has no family {name}; the families are: {names}",
                target=target,
                name=repr(name),
                names=", ".join(keyspace.families),
            ),
            USAGE_ERROR,
        )
    async with open_keyspaces([keyspace], store) as [keys]:
        found: Bound[Any] = getattr(keys, name)
        part = sessions_of(found, audit_of(keys))
        yield part, found.related(found.family.listed_in[0].target)


def _as_json(live: Live[Any]) -> dict[str, Any]:
    return {
        "id": live.id,
        "user": live.user,
        "createdAt": deadline_ms(live.session.created_at),
        "lastSeenAt": deadline_ms(live.session.last_seen_at),
        "endsAt": live.ends_at_ms,
    }

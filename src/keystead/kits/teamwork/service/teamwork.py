"""A team at work: who is asking, what they are told, what is due. It knows no HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import date
from typing import Final, TypeAlias

import httpx2

from keystead.errors import BadDeclaration, KeysteadError, StoreClosed, StoreError, Unreadable
from keystead.kits.kit import Site
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import Notification, UserSession
from keystead.kits.teamwork.service.dashboard import Count, Dashboard, Work
from keystead.kits.teamwork.service.deadlines import Deadlines
from keystead.kits.teamwork.service.demo import DemoTeam
from keystead.kits.teamwork.service.events import Event, told_by
from keystead.kits.teamwork.service.notices import Notice, Notices
from keystead.kits.teamwork.service.people import People
from keystead.kits.teamwork.service.relay import Relay
from keystead.kits.teamwork.service.settings import LIMITS, TeamworkSettings
from keystead.kits.teamwork.service.slack import SlackSender
from keystead.parts.admission import Admission
from keystead.parts.cache import Cache, LoadFailed
from keystead.parts.feed import Feed, Missed, Pause, event, heartbeat
from keystead.parts.jwt import Access, AccessTokens, RevokedTokens, SigningKeys
from keystead.parts.limit import NamedLimits
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxPolicy
from keystead.parts.schedule import Job, Run
from keystead.schema.lifetime import duration_ms

_log = logging.getLogger("keystead.teamwork")

Load: TypeAlias = Callable[[int], Awaitable[UserSession | None]]
Still: TypeAlias = Callable[[], Awaitable[bool | None]]

_FIRST, _LAST = date(1970, 1, 1), date(9999, 12, 31)
_COUNTED_MOST: Final = 10_000
_PORTION: Final = 1_000
_RETRY: Final = b"retry: 2000\n\n"

# Nothing is lost for having waited: a notice that Slack did not take is tried for a month.
SLACK_PATIENCE: Final = OutboxPolicy(most_waiting=100_000, give_up_after="30d", longest_retry="10m")


class TooManyStreams(KeysteadError):
    """A user follows their notices in as many places as they may."""

    code = "too-many-streams"


class Teamwork:
    """Everything of the kit.

    load    who a user is, by their id; without it the table of people says so
    count   how much work there is for a user in a team; without it deadlines are counted
    """

    def __init__(
        self,
        keys: TeamworkKeys,
        settings: TeamworkSettings,
        site: Site,
        feed: Feed[Notification],
        *,
        load: Load | None = None,
        count: Count | None = None,
    ) -> None:
        tables = site.tables_for("teamwork")
        self.keys = keys
        self.settings = settings
        self.site = site
        self.feed = feed
        self.people = People(tables, self.user_changed)
        self._load = load
        self.notices = Notices(tables)
        self.dashboard = Dashboard(keys, count or self._counted, self._unread)
        self.deadlines = Deadlines(
            keys, self.tell, changed=self.dashboard.changed_team, zone=settings.zone, days=settings.deadline_days
        )
        self.tokens = AccessTokens(
            _signing_keys(keys, settings),
            issuer=settings.issuer or site.public_url,
            audience=settings.audience,
            lifetime=settings.token_lifetime,
            revoked=RevokedTokens(keys.revoked_token, keys.tokens_since, may_forget=site.development),
            now_ms=site.now_ms,
        )
        self.users: Cache[UserSession] = Cache(keys.user_session, keys.user_session_mark)
        found = load or self.people.find
        self.admission: Admission[UserSession] = Admission(
            self.tokens,
            self.users,
            key=lambda access: keys.user_session(int(access.sub)),
            load=lambda access: found(int(access.sub)),
        )
        self.limit = NamedLimits(keys.requests, {**LIMITS, **settings.limits}, site.now_ms)
        self._open: Counter[int] = Counter()  # streams, by user
        self.slack: SlackSender | None = None
        self.relay: Relay | None = None
        # Where the server brings a provider to sign in at without an account, nobody else reaches it. People of an
        # application's own are not joined by a demo team.
        self.demo: DemoTeam | None = DemoTeam(self) if site.providers and load is None else None

    async def close(self) -> None:
        await self.dashboard.close()
        await self.users.close()

    # --- people ----------------------------------------------------------------------------------------------

    async def user_changed(self, user: int) -> None:
        """Somebody is another from now on: in every process the next request of theirs asks who they are."""
        await self.users.invalidate(self.keys.user_session(user))

    async def of_team(self, team: int, users: Collection[int]) -> set[int]:
        """Those of some users who are in a team, as whoever knows the users says."""
        if self._load is None:
            return await self.people.of_team(team, users)
        found = {user: await self._load(user) for user in dict.fromkeys(users)}
        return {user for user, person in found.items() if person is not None and person.teamId == team}

    # --- telling ---------------------------------------------------------------------------------------------

    async def tell(self, happened: Event, *, within: int | None = None) -> list[Notice]:
        """Tell of an event, to all whom it concerns, or those of them who are in one team; what was written now.

        When this returns, the notices are in the database; they are on the stream as soon as it can be reached, and in
        Slack as soon as that takes them. An event that is told of again changes nothing.
        """
        told = told_by(happened, self.settings.language)
        if within is not None and told:
            inside = await self.of_team(within, {one.user for one in told})
            told = [one for one in told if one.user in inside]
        written = await self.notices.tell(happened.id, told, self.keys.now_ms())
        if written and self.relay is not None:
            self.relay.wake()
        return written

    async def read(self, user: int, *, notice: int | None = None, ref: tuple[str, str] | None = None) -> int:
        """Mark notices as read: one, those of a work item, or all; how many were not. Their summary is counted anew."""
        count = await self.notices.mark_read(user, notice_id=notice, ref=ref)
        if count:
            await self.dashboard.changed(user)
        return count

    async def stream(self, user: int, after: int | None, still: Still) -> AsyncGenerator[bytes, None]:
        """The notices of a user as server-sent events, from the one after a place, or from now on.

        `still` is asked at each pause: whoever is signed out meanwhile hears no more; while nobody can say (None), they
        hear nothing, and stay. Raises TooManyStreams at once.
        """
        events = self._events(user, after, still)
        first = await anext(events)  # so that it counts from now on, and is counted off however it ends
        return _joined(first, events)

    async def _events(self, user: int, after: int | None, still: Still) -> AsyncGenerator[bytes, None]:
        most = self.settings.streams_per_user
        if self._open[user] >= most:
            raise TooManyStreams(f"at most {most} streams are open at once; close one")
        self._open[user] += 1
        try:
            last = await self.notices.last_place(user)
            place = last if after is None else after
            yield _RETRY + event("hello", f'{{"place": {last}}}', place=min(place, last))
            async with aclosing(self._followed(user, place, last, still)) as followed:
                async for one in followed:
                    yield one
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]

    async def _followed(self, user: int, after: int, last: int, still: Still) -> AsyncGenerator[bytes, None]:
        checked_ms = self.keys.now_ms()
        async for found in self.feed.follow(self.keys.notice_log(user), after=after, last=last):
            if isinstance(found, Missed):
                yield event("missed", f'{{"first": {found.first}}}', place=found.first - 1)
            elif isinstance(found, Pause):
                yield heartbeat()
            else:
                yield b"".join(event("notice", one.item.model_dump_json(), place=one.place) for one in found)
            if isinstance(found, Pause) or self.keys.now_ms() - checked_ms >= _CHECK_EVERY_MS:
                while (is_still := await still()) is None and not self.feed.is_closing:
                    yield heartbeat()
                    await asyncio.sleep(_HOLD_S)
                checked_ms = self.keys.now_ms()
                if not is_still:
                    if is_still is False:
                        yield event("bye", "{}")
                    return

    # --- counting --------------------------------------------------------------------------------------------

    async def _unread(self, user: int) -> int:
        return sum((await self.notices.unread(user)).values())

    async def _counted(self, user: int, team: int) -> Work:
        """What deadlines tell of the work of a user."""
        listed = await self.deadlines.between(team, _FIRST, _LAST, limit=_COUNTED_MOST)
        today = self.deadlines.morning_of(await self.deadlines.zone_of(team))
        mine = [one.ref.ref_type for one in listed if one.item is not None and one.item.assigneeId == user]
        return Work(
            my_work_requests=mine.count("WORK_REQUEST"),
            my_tech_tasks=mine.count("TECH_TASK"),
            active_defects=sum(one.ref.ref_type == "DEFECT" for one in listed),
            upcoming_deployments=sum(one.ref.ref_type == "DEPLOYMENT" and one.due >= today for one in listed),
        )

    # --- jobs ------------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> list[Job]:
        return [
            Job(
                "teamwork.deadlines",
                "*/15 * * * *",
                self._tell_due,
                doc="Tells assignees what is due, at 09:00 of their team's day.",
            ),
            Job("teamwork.clean-up", "45 3 * * *", self._clean_up, doc="Forgets old attempts to tell Slack."),
        ]

    async def _tell_due(self, run: Run) -> Mapping[str, int | str]:
        done = await self.deadlines.tell_due()
        return {"teams": done.teams, "told": done.told, "failed": done.failed}

    async def _clean_up(self, run: Run) -> Mapping[str, int | str]:
        forgotten = 0
        if self.slack is not None:
            before_ms = self.keys.now_ms() - duration_ms(self.settings.keep_slack_log)
            while count := await self.slack.forget(before_ms, most=_PORTION):
                forgotten += count
        return {"slack_attempts": forgotten}


# Whoever is signed out hears no more after both of them: a check that is just not due, and then nothing to hear.
_CHECK_EVERY_MS: Final = 5_000
_PAUSE_S: Final = 10.0
_HOLD_S: Final = 1.0


@asynccontextmanager
async def open_teamwork(
    keys: TeamworkKeys,
    settings: TeamworkSettings,
    site: Site,
    *,
    load: Load | None = None,
    count: Count | None = None,
    patience: OutboxPolicy = SLACK_PATIENCE,
) -> AsyncIterator[Teamwork]:
    """The service, with its relay, its feed and its outbox at work. `patience` is that with Slack."""
    async with AsyncExitStack() as stack:
        feed: Feed[Notification] = await stack.enter_async_context(
            Feed(keys.notice_log, keys.notice_wakes(), pause_s=_PAUSE_S)
        )
        made = Teamwork(keys, settings, site, feed, load=load, count=count)
        stack.push_async_callback(made.close)
        outbox: Outbox | None = None
        if settings.slack is not None:
            http = await stack.enter_async_context(
                httpx2.AsyncClient(follow_redirects=False, verify=httpx2.create_ssl_context())
            )
            made.slack = SlackSender(settings.slack, made.notices, site.tables_for("teamwork"), http, site.now_ms)
            store = keys.notice_log.store
            outbox = Outbox(OutboxKeys(store, now_ms=site.now_ms), made.slack.send, policy=patience)
            await stack.enter_async_context(outbox)
        made.relay = Relay(keys, made.notices, feed, outbox, dashboard=made.dashboard)
        await stack.enter_async_context(made.relay)
        yield made


def _signing_keys(keys: TeamworkKeys, settings: TeamworkSettings) -> SigningKeys:
    if settings.jwt_keys is not None:
        return SigningKeys.from_text(settings.jwt_keys.get_secret_value())
    if keys.ring is None:
        raise BadDeclaration("the teamwork kit signs tokens, so it needs keys: TeamworkKeys(store, seal=…)")
    return SigningKeys.from_ring(keys.ring)


async def _joined(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        try:
            async for one in rest:
                yield one
        except (StoreError, StoreClosed, LoadFailed, Unreadable) as error:
            _log.info("a stream ends, and its reader comes again: %s", error)


def user_of(access: Access) -> int:
    """The id of the user whom a checked token is for."""
    return int(access.sub)

"""The teamwork service: users, teams, notices, deadlines and jobs. It knows no HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

import httpx2

from keystead.errors import BadDeclaration
from keystead.kits.kit import Site
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import Deadline, Notification, UserSession
from keystead.kits.teamwork.service.dashboard import Count, Dashboard, Work
from keystead.kits.teamwork.service.deadlines import Deadlines, FoundItem
from keystead.kits.teamwork.service.demo import DemoTeam
from keystead.kits.teamwork.service.events import DeadlineNear, Event, Invited, WorkItem, told_by
from keystead.kits.teamwork.service.links import item_link
from keystead.kits.teamwork.service.notice_rows import Notice, Told
from keystead.kits.teamwork.service.notice_types import ASSIGNED
from keystead.kits.teamwork.service.notices import Notices
from keystead.kits.teamwork.service.people import TEXT_MOST, People, checked_slack_id
from keystead.kits.teamwork.service.relay import SLACK, Relay
from keystead.kits.teamwork.service.settings import LIMITS, TeamworkSettings
from keystead.kits.teamwork.service.slack import Attempt, SlackLog, SlackSender
from keystead.kits.teamwork.service.streams import PAUSE_S, NoticeStreams
from keystead.kits.teamwork.service.tables import identity_of
from keystead.kits.teamwork.service.teams import LEADS, NewInvitation, Team, TeamRefused, Teams
from keystead.parts.admission import Admission, Admitted
from keystead.parts.cache import Cache
from keystead.parts.feed import Feed
from keystead.parts.jwt import Access, AccessTokens, RevokedTokens, SigningKeys
from keystead.parts.limit import NamedLimits
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxPolicy
from keystead.parts.schedule import Job, Run
from keystead.schema.lifetime import duration_ms

Load: TypeAlias = Callable[[int], Awaitable[UserSession | None]]

_FIRST, _LAST = date(1970, 1, 1), date(9999, 12, 31)
_COUNTED_MOST: Final = 10_000
_PORTION: Final = 1_000
_NAME_MS: Final = 60_000
_NAMES_MOST: Final = 10_000
_DOC_MOST: Final = 32  # of what people call a work item
_GIVEN_UNTIL: Final = 900_000_000  # the numbers of teams that are given here are below
_IDENTITIES_MOST: Final = 10_000

# A notice that Slack does not accept is retried for a month.
SLACK_PATIENCE: Final = OutboxPolicy(most_waiting=100_000, give_up_after="30d", longest_retry="10m")


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
        self._names: dict[int, tuple[int, str]] = {}  # until when, and the name of a user
        invitation_ms = duration_ms(settings.invitation_lifetime)
        self.teams = Teams(tables, self.people, site.now_ms, invitation_ms=invitation_ms)
        self.notices = Notices(tables)
        self.streams = NoticeStreams(keys, self.notices, feed, settings.streams_per_user)
        self.slack_log = SlackLog(tables)
        self.dashboard = Dashboard(keys, count or self._count_work, self._unread)
        self.deadlines = Deadlines(
            keys,
            self._tell_near,
            changed=self.dashboard.changed_team,
            find=self._find_item,
            teams=self._team_ids,
            zone=settings.zone,
            days=settings.deadline_days,
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
        self._identities: dict[str, int] = {}  # who signs in at this server -> their number here
        self.slack: SlackSender | None = None
        self.relay: Relay | None = None
        # Where the server brings a provider to sign in at without an account, nobody else reaches it. People of an
        # application's own are not joined by a demo team.
        self.demo: DemoTeam | None = DemoTeam(self) if site.providers and load is None else None

    async def close(self) -> None:
        await self.dashboard.close()
        await self.users.close()

    # --- people ----------------------------------------------------------------------------------------------

    @property
    def takes_identities(self) -> bool:
        """Whether whoever signs in at this server is a user here. Users of an application have its own tokens."""
        return self._load is None

    async def admit_identity(self, identity: str, name: str) -> Admitted[UserSession] | None:
        """Somebody who is signed in at this server, by their identity there, such as `login:42`, as a user of this kit.

        A first visit creates a user without a team. None: the application has its own users and issues its own tokens.
        Raises LoadFailed while the user cannot be looked up.
        """
        if not self.takes_identities:
            return None
        whole, identity = identity, identity_of(identity)
        for _ in range(2):
            user = await self._find_or_add_user(identity, name)
            person = await self.users.get(self.keys.user_session(user), partial(self.people.find, user))
            if person is not None:
                claims = MappingProxyType({"identity": whole})
                return Admitted(Access(str(user), "", 0, 0, claims), person)
            # The user was erased since this process cached the number: create a new one.
            self._identities.pop(identity, None)
            await self.user_changed(user)
        return None

    async def _find_or_add_user(self, identity: str, name: str) -> int:
        """The number of a user. It never changes for an identity, so it is cached."""
        demo = None if self.demo is None else await self.demo.named(name)
        if demo is not None:
            return demo
        found = self._identities.get(identity)
        if found is None:
            found = await self.people.of_identity(identity)
            if found is None:
                found = await self.people.add(_shown_name(name), identity=identity)
            if len(self._identities) >= _IDENTITIES_MOST:
                self._identities.pop(next(iter(self._identities)))
            self._identities[identity] = found
        return found

    async def user_changed(self, user: int) -> None:
        """A user has changed: their next request, in any process, loads them again."""
        await self.users.invalidate(self.keys.user_session(user))

    async def of_team(self, team: int, users: Collection[int]) -> set[int]:
        """Those of some users who are in a team, as whoever knows the users says."""
        if self._load is None:
            return await self.people.of_team(team, users)
        found = {user: await self._load(user) for user in dict.fromkeys(users)}
        return {user for user, person in found.items() if person is not None and person.team_id == team}

    async def person(self, user: int) -> UserSession | None:
        """Who somebody is, as whoever knows the users says; None: nobody."""
        return await (self.people.find if self._load is None else self._load)(user)

    async def _name_of(self, user: int | None) -> str | None:
        """The name of a user, cached for a minute."""
        if user is None:
            return None
        now_ms = self.site.now_ms()
        until_ms, name = self._names.get(user, (0, ""))
        if until_ms <= now_ms:
            person = await self.person(user)
            name = "" if person is None else person.name
            if len(self._names) >= _NAMES_MOST:
                self._names.clear()
            self._names[user] = (now_ms + _NAME_MS, name)
        return name or None

    # --- teams -----------------------------------------------------------------------------------------------

    def require_own_people(self) -> None:
        """Raises TeamRefused if an application manages the users: their teams are changed there."""
        if self._load is not None:
            raise TeamRefused("PEOPLE_ELSEWHERE")

    async def create_team(
        self,
        name: str,
        *,
        owner: int | None = None,
        number: int | None = None,
        zone: str | None = None,
        days: Sequence[int] | None = None,
    ) -> Team:
        """A new team with its settings. Raises TeamRefused and BadValue; then there is none."""
        self.require_own_people()
        self.deadlines.check_rules(zone, days)
        # A number under which another program has deadlines is not given to a new team.
        used = [one for one in await self.keys.due_teams().members().if_readable() if one < _GIVEN_UNTIL]
        team = await self.teams.create(name, owner=owner, number=number, above=max(used, default=0))
        await self.deadlines.set_rules(team.id, zone=zone, days=days)
        return team

    async def change_team(
        self,
        team: int,
        *,
        name: str | None = None,
        zone: str | None = None,
        days: Sequence[int] | None = None,
        by: int | None = None,
        role: str = "",
    ) -> None:
        """Change what a team is called, where it works, and when it is told. What is not named stays.

        `role` is what `by` may do in the team, where the people are not ours, and their application says so.
        """
        self.deadlines.check_rules(zone, days)
        if self._load is None:
            await self.teams.require_lead(team, by)
        elif by is not None and role not in LEADS:
            raise TeamRefused("FORBIDDEN")
        if name is not None:
            self.require_own_people()
            await self.teams.rename(team, name, by=by)
        await self.deadlines.set_rules(team, zone=zone, days=days)

    async def invite(
        self, team: int, *, role: str = "MEMBER", user: int | None = None, name: str = "", by: int | None = None
    ) -> NewInvitation:
        """Invite somebody to a team. A user of ours is told of it."""
        self.require_own_people()
        new = await self.teams.invite(team, role=role, user=user, name=name, by=by)
        if user is not None:
            found = await self.teams.find(team)
            item = WorkItem(ref_type="TEAM", ref_id=team, title=found.name if found else "")
            event_id = f"invitation:{new.invitation.id}:{new.invitation.created_at_ms}"
            await self.tell(Invited(kind="team-invited", id=event_id, item=item, user_id=user, actor_id=by))
        return new

    async def change_member(
        self, team: int, user: int, *, role: str | None = None, slack_id: str | None = None, by: int | None = None
    ) -> None:
        """Change what somebody may do in a team, or by which id they are mentioned in Slack: "" takes it out.

        The latter is up to themselves, too. Raises TeamRefused and BadValue.
        """
        self.require_own_people()
        if slack_id:
            checked_slack_id(slack_id)
        if by != user or role is not None:
            await self.teams.require_lead(team, by)
        if not await self.people.of_team(team, {user}):
            raise TeamRefused("NOT_FOUND")
        if role is not None:
            await self.teams.set_role(team, user, role, by=by)
        if slack_id is not None:
            await self.people.set_slack_id(user, slack_id or None)

    async def attempts_of_team(
        self,
        team: int,
        *,
        by: int | None = None,
        role: str = "",
        status: str | None = None,
        notice: int | None = None,
        before: int | None = None,
        most: int = 20,
    ) -> list[Attempt]:
        """What was sent to Slack for those of a team, the newest first, for those who lead it. `role`: as above."""
        ask = partial(self.slack_log.attempts, status=status, notice=notice, before=before)
        if self._load is None:
            await self.teams.require_lead(team, by)
            return await ask(users=list(await self.people.members(team)), most=most)
        if by is not None and role not in LEADS:
            raise TeamRefused("FORBIDDEN")
        found = await ask(most=_PORTION)
        inside = await self.of_team(team, {one.user for one in found})
        return [one for one in found if one.user in inside][:most]

    async def _team_ids(self) -> list[int]:
        return [team.id for team, _ in await self.teams.all()]

    async def _tell_near(self, team: int, event: DeadlineNear) -> None:
        await self.tell(event, within=team)  # users who have left the team are not notified

    async def _find_item(self, team: int, ref: Deadline) -> FoundItem:
        """What is known of a deadline that another program has added: who was given the item last; otherwise it is for
        those who lead the team, and where nobody does, for all."""
        told = await self.notices.newest_of_item(ASSIGNED, *ref)
        if told is not None and await self.of_team(team, {told.user}):
            said = told.said
            doc_no = "" if said is None or len(said.doc) > _DOC_MOST else said.doc
            return FoundItem([told.user], "" if said is None else said.item, doc_no)
        members = {} if self._load is not None else await self.people.members(team)
        leads = [user for user, person in members.items() if person.team_role in LEADS]
        return FoundItem(leads or list(members))

    # --- telling ---------------------------------------------------------------------------------------------

    async def tell(self, happened: Event, *, within: int | None = None) -> list[Notice]:
        """Notify all users whom an event concerns, or those of one team (`within`). Returns the new notices.

        When this returns, the notices are in the database. They reach the stream and Slack as soon as these are up.
        Idempotent: an event id that was told before changes nothing.
        """
        told = told_by(happened, self.settings.language, actor=await self._name_of(happened.actor_id))
        if within is not None and told:
            inside = await self.of_team(within, _named_in(told))
            told = [_without_stranger(one, inside) for one in told if one.user in inside]
        written = await self.notices.tell(happened.id, told, self.keys.now_ms())
        if written and self.relay is not None:
            self.relay.wake(one.user for one in written)
        return written

    async def read(self, user: int, *, notice: int | None = None, ref: tuple[str, str] | None = None) -> int:
        """Mark notices as read: one, those of a work item, or all; how many were not. Their summary is counted anew."""
        count = await self.notices.mark_read(user, notice_id=notice, ref=ref)
        if count:
            await self.dashboard.changed(user)
        return count

    async def delete(self, user: int, notice: int) -> bool:
        """Delete a notice of a user. False: they have none of this id. Their summary is counted anew."""
        done = await self.notices.delete(user, notice, self.site.now_ms())
        if done:
            await self.dashboard.changed(user)
        return done

    def link(self, notice: Notice) -> str:
        """Where the work item of a notice is seen."""
        return item_link(self.settings.item_url, self.site.public_url, notice.ref_type, notice.ref_id)

    # --- counting --------------------------------------------------------------------------------------------

    async def _unread(self, user: int) -> int:
        return sum((await self.notices.unread(user)).values())

    async def _count_work(self, user: int, team: int) -> Work:
        """What deadlines tell of the work of a user."""
        listed = await self.deadlines.between(team, _FIRST, _LAST, limit=_COUNTED_MOST)
        today = self.deadlines.today_in((await self.deadlines.rules_of(team)).zone)
        mine = [one.ref.ref_type for one in listed if one.item is not None and one.item.assignee_id == user]
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
            Job(
                "teamwork.clean-up",
                "45 3 * * *",
                self._clean_up,
                doc="Deletes old notices, old attempts to tell Slack, and invitations that have expired.",
            ),
        ]

    async def _tell_due(self, run: Run) -> Mapping[str, int | str]:
        done = await self.deadlines.tell_due()
        return {"teams": done.teams, "told": done.told, "failed": done.failed}

    async def _clean_up(self, run: Run) -> Mapping[str, int | str]:
        now_ms, settings = self.keys.now_ms(), self.settings
        attempts = await _in_portions(self.slack_log.forget, now_ms - duration_ms(settings.keep_slack_log))
        notices = await _in_portions(self.notices.expire, now_ms - duration_ms(settings.keep_notices))
        return {
            "slack_attempts": attempts,
            "notices": notices,
            "invitations": await self.teams.forget_expired(),
        }


class _Forget(Protocol):
    def __call__(self, before_ms: int, *, most: int) -> Awaitable[int]: ...


async def _in_portions(forget: _Forget, before_ms: int) -> int:
    """Delete everything older than a moment, in portions, to keep transactions short."""
    total = 0
    while count := await forget(before_ms, most=_PORTION):
        total += count
    return total


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
    """The service with its relay, feed and outbox running. `patience` is the retry policy for Slack."""
    async with AsyncExitStack() as stack:
        feed: Feed[Notification] = await stack.enter_async_context(
            Feed(keys.notice_log, keys.notice_wakes(), pause_s=PAUSE_S)
        )
        made = Teamwork(keys, settings, site, feed, load=load, count=count)
        stack.push_async_callback(made.close)
        outbox: Outbox | None = None
        if settings.slack is not None:
            http = await stack.enter_async_context(
                httpx2.AsyncClient(follow_redirects=False, verify=httpx2.create_ssl_context())
            )
            made.slack = SlackSender(
                settings.slack,
                made.notices,
                made.slack_log,
                http,
                site.now_ms,
                person=made.person,
                link=made.link,
            )
            store = keys.notice_log.store
            outbox = Outbox(OutboxKeys(store, now_ms=site.now_ms), made.slack.send, topics=(SLACK,), policy=patience)
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


def _named_in(told: Sequence[Told]) -> set[int]:
    """The recipients, and the assignees that the notices name."""
    assignees = {one.said.assignee_id for one in told if one.said is not None and one.said.assignee_id is not None}
    return {one.user for one in told} | assignees


def _without_stranger(one: Told, inside: Collection[int]) -> Told:
    """Without an assignee of another team, whom Slack would name and mention."""
    if one.said is None or one.said.assignee_id is None or one.said.assignee_id in inside:
        return one
    return replace(one, said=one.said.model_copy(update={"assignee_id": None}))


def _shown_name(name: str) -> str:
    """A name that a provider gives, on one line and no longer than a name is here."""
    plain = " ".join("".join(one if one.isprintable() else " " for one in name).split())
    return plain[:TEXT_MOST].strip() or "?"


def user_of(access: Access) -> int:
    """The id of the user whom a checked token is for."""
    return int(access.sub)

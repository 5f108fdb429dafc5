"""The teamwork service: users, teams, notices, deadlines and jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
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
from keystead.kits.teamwork.service.events import DeadlineNear, Event, Invited, WorkItem, notices_for
from keystead.kits.teamwork.service.links import item_link
from keystead.kits.teamwork.service.notice_rows import NewNotice, Notice
from keystead.kits.teamwork.service.notice_types import ASSIGNED
from keystead.kits.teamwork.service.notices import Notices
from keystead.kits.teamwork.service.people import GENERATED_BELOW, TEXT_MAX, People, check_slack_id
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

_COUNTED_MAX: Final = 10_000
_BATCH: Final = 1_000
_NAME_MS: Final = 60_000
_NAMES_MAX: Final = 10_000
_DOC_NO_MAX: Final = 32
_IDENTITIES_MAX: Final = 10_000

SLACK_POLICY: Final = OutboxPolicy(most_waiting=100_000, give_up_after="30d", longest_retry="10m")


class Teamwork:
    """The open service of the kit.

    load    returns a user by id, or None; the default is the kit's own table of people
    count   counts the work of a user in a team; the default counts deadlines
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
        self._names: dict[int, tuple[int, str]] = {}  # user -> expiry in ms, name
        invitation_ms = duration_ms(settings.invitation_lifetime)
        self.teams = Teams(tables, self.people, site.now_ms, invitation_ms=invitation_ms)
        self.notices = Notices(tables)
        self.streams = NoticeStreams(keys, self.notices, feed, settings.streams_per_user)
        self.slack_log = SlackLog(tables)
        self.dashboard = Dashboard(keys, count or self._count_work, self._count_unread)
        self.deadlines = Deadlines(
            keys,
            self._notify_deadline,
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
        self.admission: Admission[UserSession] = Admission(
            self.tokens,
            self.users,
            key=lambda access: keys.user_session(int(access.sub)),
            load=lambda access: self.person(int(access.sub)),
        )
        self.limit = NamedLimits(keys.requests, {**LIMITS, **settings.limits}, site.now_ms)
        self._identities: dict[str, int] = {}  # sign-in identity -> user
        self.slack: SlackSender | None = None
        self.relay: Relay | None = None
        # Only beside the demo provider, which runs on loopback only, and never among an application's own users.
        self.demo: DemoTeam | None = DemoTeam(self) if site.providers and load is None else None

    async def close(self) -> None:
        await self.dashboard.close()
        await self.users.close()

    # --- people ----------------------------------------------------------------------------------------------

    @property
    def accepts_sign_ins(self) -> bool:
        """Whether users who sign in at this server are users of this kit. False if an application manages users."""
        return self._load is None

    async def admit_identity(self, identity: str, name: str) -> Admitted[UserSession] | None:
        """The user of this kit with a sign-in identity, such as `login:42`. A first visit creates one without a team.

        None: the application manages users and issues its own tokens. Raises LoadFailed if the user cannot be loaded.
        """
        if not self.accepts_sign_ins:
            return None
        whole, identity = identity, identity_of(identity)
        for _ in range(2):
            user = await self._find_or_add_user(identity, name)
            person = await self.users.get(self.keys.user_session(user), partial(self.people.find, user))
            if person is not None:
                claims = MappingProxyType({"identity": whole})
                return Admitted(Access(str(user), "", 0, 0, claims), person)
            # The user was erased after this process cached the id: create a new one.
            self._identities.pop(identity, None)
            await self.user_changed(user)
        return None

    async def _find_or_add_user(self, identity: str, name: str) -> int:
        """The id of a user. It never changes for an identity, so it is cached."""
        demo = None if self.demo is None else await self.demo.find_by_name(name)
        if demo is not None:
            return demo
        found = self._identities.get(identity)
        if found is None:
            found = await self.people.of_identity(identity)
            if found is None:
                found = await self.people.add(_clean_name(name), identity=identity)
            if len(self._identities) >= _IDENTITIES_MAX:
                self._identities.pop(next(iter(self._identities)))
            self._identities[identity] = found
        return found

    async def user_changed(self, user: int) -> None:
        """Invalidate a cached user: their next request, in any process, loads them again."""
        await self.users.invalidate(self.keys.user_session(user))

    async def of_team(self, team: int, users: Collection[int]) -> set[int]:
        """The subset of users who are in a team, from the application (`load`) or the table of people."""
        if self._load is None:
            return await self.people.of_team(team, users)
        found = {user: await self._load(user) for user in dict.fromkeys(users)}
        return {user for user, person in found.items() if person is not None and person.team_id == team}

    async def person(self, user: int) -> UserSession | None:
        """A user, from the application (`load`) or the table of people; None: there is none."""
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
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
            self._names[user] = (now_ms + _NAME_MS, name)
        return name or None

    # --- teams -----------------------------------------------------------------------------------------------

    def require_own_people(self) -> None:
        """Raises TeamRefused if an application manages the users, and so their teams."""
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
        """Create a team with its settings. Raises TeamRefused and BadValue; then nothing was created."""
        self.require_own_people()
        self.deadlines.check_rules(zone, days)
        # A new team must not get a number under which another program has deadlines.
        used = [one for one in await self.keys.due_teams().members().if_readable() if one < GENERATED_BELOW]
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
        """Change the name, time zone or marks of a team. Omitted ones stay. Raises TeamRefused and BadValue.

        `role` is the team role of `by`, if an application manages the users.
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
        """Create an invitation. A personal one (`user`) also notifies its user."""
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
        """Change the role of a member, or their Slack id ("" removes it), which members can also change themselves.

        Raises TeamRefused and BadValue.
        """
        self.require_own_people()
        if slack_id:
            check_slack_id(slack_id)
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
        """The Slack attempts of a team, newest first, for its owners and admins. `role`: as in `change_team`."""
        find = partial(self.slack_log.attempts, status=status, notice=notice, before=before)
        if self._load is None:
            await self.teams.require_lead(team, by)
            return await find(users=list(await self.people.members(team)), most=most)
        if by is not None and role not in LEADS:
            raise TeamRefused("FORBIDDEN")
        found = await find(most=_BATCH)
        inside = await self.of_team(team, {one.user for one in found})
        return [one for one in found if one.user in inside][:most]

    async def _team_ids(self) -> list[int]:
        return [team.id for team, _ in await self.teams.all()]

    async def _notify_deadline(self, team: int, event: DeadlineNear) -> None:
        await self.tell(event, within=team)  # users who have left the team are not notified

    async def _find_item(self, team: int, ref: Deadline) -> FoundItem:
        """Details of a deadline that another program added.

        The recipient is the last assignee of the item; otherwise the owners and admins of the team, or all members.
        """
        assigned = await self.notices.newest_of_item(ASSIGNED, *ref)
        if assigned is not None and await self.of_team(team, {assigned.user}):
            said = assigned.said
            doc_no = "" if said is None or len(said.doc) > _DOC_NO_MAX else said.doc
            return FoundItem([assigned.user], "" if said is None else said.item, doc_no)
        members = {} if self._load is not None else await self.people.members(team)
        leads = [user for user, person in members.items() if person.team_role in LEADS]
        return FoundItem(leads or list(members))

    # --- notices ---------------------------------------------------------------------------------------------

    async def tell(self, event: Event, *, within: int | None = None) -> list[Notice]:
        """Notify all users whom an event concerns, or those of one team (`within`). Returns the new notices.

        When this returns, the notices are in the database. They reach the stream and Slack as soon as these are up.
        Idempotent: a known event id changes nothing.
        """
        new = notices_for(event, self.settings.language, actor=await self._name_of(event.actor_id))
        if within is not None and new:
            inside = await self.of_team(within, _users_in(new))
            new = [_hide_outsider(one, inside) for one in new if one.user in inside]
        notices = await self.notices.write(event.id, new, self.keys.now_ms())
        if notices and self.relay is not None:
            self.relay.wake(one.user for one in notices)
        return notices

    async def mark_read(self, user: int, *, notice: int | None = None, ref: tuple[str, str] | None = None) -> int:
        """Mark notices as read: one, those of a work item, or all. Returns how many were unread."""
        count = await self.notices.mark_read(user, notice_id=notice, ref=ref)
        if count:
            await self.dashboard.changed(user)
        return count

    async def delete(self, user: int, notice: int) -> bool:
        """Delete a notice of a user. False: they have no such notice."""
        done = await self.notices.delete(user, notice, self.site.now_ms())
        if done:
            await self.dashboard.changed(user)
        return done

    def link(self, notice: Notice) -> str:
        """The address of a notice's work item."""
        return item_link(self.settings.item_url, self.site.public_url, notice.ref_type, notice.ref_id)

    # --- counting --------------------------------------------------------------------------------------------

    async def _count_unread(self, user: int) -> int:
        return sum((await self.notices.count_unread(user)).values())

    async def _count_work(self, user: int, team: int) -> Work:
        """Count the work of a user from deadlines."""
        listed = await self.deadlines.between(team, limit=_COUNTED_MAX)
        today = self.deadlines.today_in((await self.deadlines.rules_of(team)).zone)
        mine = [one.ref.ref_type for one in listed if one.assignee_id == user]
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
                self._notify_due,
                doc="Notifies assignees of deadlines, from 09:00 in the team's time zone on.",
            ),
            Job(
                "teamwork.clean-up",
                "45 3 * * *",
                self._clean_up,
                doc="Deletes old notices, old Slack attempts, and expired invitations.",
            ),
        ]

    async def _notify_due(self, run: Run) -> Mapping[str, int | str]:
        done = await self.deadlines.notify_due()
        return {"teams": done.teams, "told": done.notified, "failed": done.failed}

    async def _clean_up(self, run: Run) -> Mapping[str, int | str]:
        now_ms, settings = self.keys.now_ms(), self.settings
        attempts = await _delete_all(self.slack_log.delete_old, now_ms - duration_ms(settings.keep_slack_log))
        notices = await _delete_all(self.notices.delete_old, now_ms - duration_ms(settings.keep_notices))
        return {
            "slack_attempts": attempts,
            "notices": notices,
            "invitations": await self.teams.delete_expired(),
        }


class _DeleteOld(Protocol):
    def __call__(self, before_ms: int, *, most: int) -> Awaitable[int]: ...


async def _delete_all(delete_old: _DeleteOld, before_ms: int) -> int:
    """Delete everything older than a moment, in batches, to keep transactions short."""
    total = 0
    while count := await delete_old(before_ms, most=_BATCH):
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
    slack_policy: OutboxPolicy = SLACK_POLICY,
) -> AsyncIterator[Teamwork]:
    """The service with its relay, feed and outbox running."""
    async with AsyncExitStack() as stack:
        feed: Feed[Notification] = await stack.enter_async_context(
            Feed(keys.notice_log, keys.notice_wakes(), pause_s=PAUSE_S)
        )
        teamwork = Teamwork(keys, settings, site, feed, load=load, count=count)
        stack.push_async_callback(teamwork.close)
        outbox: Outbox | None = None
        if settings.slack is not None:
            http = await stack.enter_async_context(
                httpx2.AsyncClient(follow_redirects=False, verify=httpx2.create_ssl_context())
            )
            teamwork.slack = SlackSender(
                settings.slack,
                teamwork.notices,
                teamwork.slack_log,
                http,
                site.now_ms,
                person=teamwork.person,
                link=teamwork.link,
            )
            outbox_keys = OutboxKeys(keys.notice_log.store, now_ms=site.now_ms)
            outbox = Outbox(outbox_keys, teamwork.slack.send, topics=(SLACK,), policy=slack_policy)
            await stack.enter_async_context(outbox)
        teamwork.relay = Relay(keys, teamwork.notices, feed, outbox, dashboard=teamwork.dashboard)
        await stack.enter_async_context(teamwork.relay)
        yield teamwork


def _signing_keys(keys: TeamworkKeys, settings: TeamworkSettings) -> SigningKeys:
    if settings.jwt_keys is not None:
        return SigningKeys.from_text(settings.jwt_keys.get_secret_value())
    if keys.ring is None:
        raise BadDeclaration("the teamwork kit signs tokens, so it needs keys: TeamworkKeys(store, seal=…)")
    return SigningKeys.from_ring(keys.ring)


def _users_in(new: Sequence[NewNotice]) -> set[int]:
    """The recipients of notices, and the assignees that they name."""
    assignees = {one.said.assignee_id for one in new if one.said is not None and one.said.assignee_id is not None}
    return {one.user for one in new} | assignees


def _hide_outsider(one: NewNotice, inside: Collection[int]) -> NewNotice:
    """Remove an assignee of another team, whom Slack would name and mention."""
    if one.said is None or one.said.assignee_id is None or one.said.assignee_id in inside:
        return one
    return replace(one, said=one.said.model_copy(update={"assignee_id": None}))


def _clean_name(name: str) -> str:
    """A provider's name for a user, as one line of at most TEXT_MAX characters."""
    plain = " ".join("".join(one if one.isprintable() else " " for one in name).split())
    return plain[:TEXT_MAX].strip() or "?"


def user_of(access: Access) -> int:
    """The user id in a verified token."""
    return int(access.sub)

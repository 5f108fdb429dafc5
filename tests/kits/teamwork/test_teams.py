"""Teams: members and permissions, on every database, under concurrent changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from sqlalchemy import insert, select, text

from keystead.errors import BadValue, StoreUnavailable
from keystead.kits.teamwork.commands import set_role
from keystead.kits.teamwork.models import UserSession
from keystead.kits.teamwork.service.people import People
from keystead.kits.teamwork.service.tables import INVITATIONS, PEOPLE, READERS, TEAMWORK_TABLES
from keystead.kits.teamwork.service.teams import OPEN_MAX, TeamRefused, Teams
from keystead.parts.tables import TableChange, Tables, TableSet, create, open_tables
from tests.every_database import database_url, mariadb_server, on_databases, postgres_server
from tests.kits.teamwork.test_routes import ANN, BEN, CHO, OUTSIDER, Office, office
from tests.parts.sessions.conftest import Clock

__all__ = ["database_url", "mariadb_server", "office", "postgres_server"]

DAY_MS = 86_400_000


class Company:
    """People and teams in a database."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.clock = Clock()
        self.changed: list[int] = []
        self.people = People(tables, self._note)
        self.teams = Teams(tables, self.people, self.clock, invitation_ms=7 * DAY_MS)

    async def _note(self, user: int) -> None:
        self.changed.append(user)

    async def staff(self, *names: str) -> list[int]:
        return [await self.people.add(name) for name in names]

    async def role(self, user: int) -> tuple[int, str]:
        person = await self.people.find(user)
        assert person is not None
        return person.team_id, person.team_role


@pytest.fixture
async def company(database_url: str) -> AsyncIterator[Company]:
    async with open_tables(database_url, TEAMWORK_TABLES) as opened:
        yield Company(opened)


async def refused(work: Awaitable[Any]) -> str:
    with pytest.raises(TeamRefused) as raised:
        await work
    return raised.value.reason


@on_databases()
async def test_a_team_is_created_joined_by_invitation_and_left(company: Company) -> None:
    teams = company.teams
    ann, ben = await company.staff("Ann", "Ben")
    team = await teams.create(" Print shop ", owner=ann)
    assert team.name == "Print shop"
    assert await company.role(ann) == (team.id, "OWNER")
    assert await refused(teams.create("Another", owner=ann)) == "ALREADY_IN_TEAM"
    new = await teams.invite(team.id, role="ADMIN", name="Ben", by=ann)
    assert [one.name for one in await teams.invitations(team.id)] == ["Ben"]
    looked = await teams.find_invitation(new.token)
    assert looked == new.invitation
    assert await teams.accept(ben, token=new.token) == team
    assert await company.role(ben) == (team.id, "ADMIN")
    assert await refused(teams.accept(ben, token=new.token)) == "INVITATION_INVALID"
    assert await teams.invitations(team.id) == []
    assert list(await company.people.members(team.id)) == [ann, ben]
    assert [(one.id, count) for one, count in await teams.all()] == [(team.id, 2)]
    await teams.remove(team.id, ben, by=ben)
    assert await company.role(ben) == (0, "")
    await teams.remove(team.id, ann, by=ann)  # the last member may leave
    assert set(company.changed) == {ann, ben}


@on_databases()
async def test_of_concurrent_uses_of_one_link_one_succeeds(company: Company) -> None:
    team = await company.teams.create("Print shop")
    new = await company.teams.invite(team.id)
    crowd = await company.staff(*(f"p{number}" for number in range(50)))

    async def accept(user: int) -> str:
        try:
            await company.teams.accept(user, token=new.token)
        except TeamRefused as error:
            return error.reason
        return "in"

    outcomes = await asyncio.gather(*map(accept, crowd))
    assert sorted(outcomes) == ["INVITATION_INVALID"] * 49 + ["in"]
    assert len(await company.people.members(team.id)) == 1


@on_databases()
async def test_concurrent_leaving_never_removes_the_last_owner(company: Company) -> None:
    owners = await company.staff(*(f"o{number}" for number in range(50)))
    team = await company.teams.create("Print shop", owner=owners[0])
    for owner in owners[1:]:
        new = await company.teams.invite(team.id, role="OWNER", user=owner)
        await company.teams.accept(owner, invitation=new.invitation.id)
    [member] = await company.staff("m")
    await company.teams.accept(member, token=(await company.teams.invite(team.id)).token)

    async def go(number: int, owner: int) -> str:
        try:
            if number % 2:
                await company.teams.set_role(team.id, owner, "MEMBER", by=owner)
            else:
                await company.teams.remove(team.id, owner, by=owner)
        except TeamRefused as error:
            return error.reason
        return "done"

    outcomes = await asyncio.gather(*(go(number, owner) for number, owner in enumerate(owners)))
    assert sorted(set(outcomes)) == ["LAST_OWNER", "done"]
    assert outcomes.count("LAST_OWNER") == 1
    roles = [person.team_role for person in (await company.people.members(team.id)).values()]
    assert roles.count("OWNER") == 1


@on_databases()
async def test_concurrently_created_people_and_teams_have_unique_numbers(company: Company) -> None:
    users = await asyncio.gather(*(company.people.add(f"p{number}") for number in range(50)))
    assert len(set(users)) == 50
    same = await asyncio.gather(*(company.people.add("Mei", identity="login:42") for _ in range(50)))
    assert len(set(same)) == 1
    assert await company.people.of_identity("login:42") == same[0]
    assert await company.people.of_identity("login:43") is None
    made = await asyncio.gather(*(company.teams.create(f"t{number}") for number in range(50)))
    assert len({team.id for team in made}) == 50


@on_databases("memory")
async def test_a_new_team_never_gets_the_number_of_an_applications_team(company: Company) -> None:
    person = UserSession(name="u", email="", role="", team_id=7, team_role="OWNER")
    await company.people.save(42, person)
    demo = person.model_copy(update={"team_id": 900_000_000})
    await company.people.save(900_000_001, demo)
    assert (await company.teams.create("New")).id == 8
    assert (await company.teams.create("New", above=20)).id == 21
    assert await company.people.add("next") == 43
    assert (await company.teams.create("Known elsewhere", number=3)).id == 3
    with pytest.raises(BadValue, match="team 3 already exists"):
        await company.teams.create("Again", number=3)
    # Such a team is changed like any other.
    assert await company.teams.find(7) is not None
    await company.teams.rename(7, "Seven", by=42)
    found = await company.teams.find(7)
    assert found is not None
    assert found.name == "Seven"


@on_databases("memory")
async def test_an_invitation_ends_by_expiry_withdrawal_or_when_its_inviter_loses_the_lead(company: Company) -> None:
    teams = company.teams
    ann, ben, cho = await company.staff("Ann", "Ben", "Cho")
    team = await teams.create("Print shop", owner=ann)
    await teams.accept(ben, token=(await teams.invite(team.id, role="ADMIN", by=ann)).token)
    late, gone = await teams.invite(team.id, by=ann), await teams.invite(team.id, by=ann)
    await teams.withdraw(team.id, gone.invitation.id, by=ann)
    assert await refused(teams.accept(cho, token=gone.token)) == "INVITATION_INVALID"
    assert await refused(teams.withdraw(team.id, gone.invitation.id, by=ann)) == "NOT_FOUND"
    kept = await teams.invite(team.id, role="ADMIN", by=ben)
    await teams.remove(team.id, ben, by=ann)  # and his links stop working, also for himself
    assert await refused(teams.accept(ben, token=kept.token)) == "INVITATION_INVALID"
    company.clock.pass_ms(7 * DAY_MS - 1)
    assert await teams.find_invitation(late.token) is not None
    company.clock.pass_ms(1)
    assert await teams.find_invitation(late.token) is None
    assert await refused(teams.accept(cho, token=late.token)) == "INVITATION_INVALID"
    assert await teams.delete_expired() == 1


@on_databases()
async def test_owner_invitations_by_a_former_owner_stop_working(company: Company) -> None:
    teams = company.teams
    ann, ben, cho = await company.staff("Ann", "Ben", "Cho")
    team = await teams.create("Print shop", owner=ann)
    await teams.accept(ben, token=(await teams.invite(team.id, role="OWNER", by=ann)).token)
    as_owner, as_admin = [await teams.invite(team.id, role=role, by=ben) for role in ("OWNER", "ADMIN")]
    await teams.set_role(team.id, ben, "OWNER", by=ann)
    assert await teams.find_invitation(as_owner.token) is not None
    await teams.set_role(team.id, ben, "ADMIN", by=ann)
    assert await refused(teams.accept(cho, token=as_owner.token)) == "INVITATION_INVALID"
    await teams.accept(cho, token=as_admin.token)  # an admin may create it, too
    assert await company.role(cho) == (team.id, "ADMIN")


@on_databases()
async def test_invitations_by_an_erased_user_stop_working(company: Company) -> None:
    teams = company.teams
    ann, ben, cho = await company.staff("Ann", "Ben", "Cho")
    team = await teams.create("Print shop", owner=ann)
    await teams.accept(ben, token=(await teams.invite(team.id, role="OWNER", by=ann)).token)
    of_ann, of_ben = await teams.invite(team.id, by=ann), await teams.invite(team.id, role="OWNER", by=ben)
    await teams.invite(team.id, user=cho, by=ben)
    assert (await company.tables.erase(f"teamwork:{ben}"))["keystead_teamwork_invitations"] == 2
    assert await refused(teams.accept(cho, token=of_ben.token)) == "INVITATION_INVALID"
    assert await teams.accept(cho, token=of_ann.token) == team


@on_databases("memory")
async def test_a_personal_invitation_cannot_be_used_by_others(company: Company) -> None:
    teams = company.teams
    ann, ben, cho = await company.staff("Ann", "Ben", "Cho")
    team = await teams.create("Print shop", owner=ann)
    new = await teams.invite(team.id, user=ben, by=ann)
    assert await refused(teams.accept(cho, token=new.token)) == "INVITATION_INVALID"
    assert await refused(teams.accept(cho, invitation=new.invitation.id)) == "INVITATION_INVALID"
    assert [one.id for one in await teams.invitations_to(ben)] == [new.invitation.id]
    assert await teams.accept(ben, invitation=new.invitation.id) == team
    assert await refused(teams.invite(team.id, user=ben, by=ann)) == "ALREADY_IN_TEAM"
    assert await refused(teams.invite(team.id, user=12345, by=ann)) == "NOT_FOUND"
    # A new personal invitation replaces the previous one.
    first, second = await teams.invite(team.id, user=cho, by=ann), await teams.invite(team.id, user=cho, by=ann)
    assert [one.id for one in await teams.invitations_to(cho)] == [second.invitation.id]
    assert await refused(teams.accept(cho, token=first.token)) == "INVITATION_INVALID"
    # A link invitation cannot be accepted by its number.
    free = await teams.invite(team.id, by=ann)
    assert await refused(teams.accept(cho, invitation=free.invitation.id)) == "INVITATION_INVALID"


@on_databases("memory")
async def test_permissions_by_role(company: Company) -> None:
    teams = company.teams
    owner, admin, member, stranger = await company.staff("O", "A", "M", "S")
    team = await teams.create("Print shop", owner=owner)
    await teams.accept(admin, token=(await teams.invite(team.id, role="ADMIN")).token)
    await teams.accept(member, token=(await teams.invite(team.id)).token)
    other = await teams.create("Elsewhere", owner=stranger)
    for by in (member, stranger):
        assert await refused(teams.invite(team.id, by=by)) == "FORBIDDEN"
        assert await refused(teams.set_role(team.id, member, "OWNER", by=by)) == "FORBIDDEN"
        assert await refused(teams.remove(team.id, admin, by=by)) == "FORBIDDEN"
        assert await refused(teams.rename(team.id, "Mine", by=by)) == "FORBIDDEN"
        assert await refused(teams.require_lead(team.id, by)) == "FORBIDDEN"
    # An admin leads, but cannot change owners.
    assert await refused(teams.invite(team.id, role="OWNER", by=admin)) == "FORBIDDEN"
    assert await refused(teams.set_role(team.id, admin, "OWNER", by=admin)) == "FORBIDDEN"
    assert await refused(teams.set_role(team.id, owner, "MEMBER", by=admin)) == "FORBIDDEN"
    assert await refused(teams.remove(team.id, owner, by=admin)) == "FORBIDDEN"
    await teams.set_role(team.id, member, "ADMIN", by=admin)
    assert await refused(teams.remove(team.id, owner, by=owner)) == "LAST_OWNER"
    assert await refused(teams.remove(team.id, stranger, by=owner)) == "NOT_FOUND"
    assert await refused(teams.set_role(other.id, member, "MEMBER", by=stranger)) == "NOT_FOUND"
    for wrong in ("BOSS", "", "owner"):
        with pytest.raises(BadValue, match="OWNER, ADMIN, MEMBER"):
            await teams.set_role(team.id, member, wrong)
    for name in ("", " ", "x" * 101, "a\nb", "\x1b[2J"):
        with pytest.raises(BadValue):
            await teams.create(name)


@on_databases("memory")
async def test_concurrent_invitations_never_exceed_the_limit_of_a_team(company: Company) -> None:
    team = await company.teams.create("Print shop")
    made = await asyncio.gather(*(company.teams.invite(team.id) for _ in range(OPEN_MAX + 20)), return_exceptions=True)
    assert sum(isinstance(one, TeamRefused) for one in made) == 20


@on_databases("memory")
async def test_the_table_has_only_the_digest_of_a_link_which_grants_no_access(company: Company) -> None:
    [ann] = await company.staff("Ann")
    team = await company.teams.create("Print shop")
    new = await company.teams.invite(team.id)
    rows = await company.tables.read(lambda connection: [tuple(row) for row in connection.execute(select(INVITATIONS))])
    assert new.token not in repr(rows)
    [kept] = [cell for cell in rows[0] if isinstance(cell, str) and len(cell) == 43]
    assert await refused(company.teams.accept(ann, token=kept)) == "INVITATION_INVALID"


@on_databases("sqlite", "postgres", "mariadb")
async def test_version_1_tables_are_migrated_with_their_rows(database_url: str) -> None:
    first = TableSet("teamwork", (TableChange(1, "as it was", _make_first),))
    async with open_tables(database_url, first) as opened:
        await opened.write(_fill_first)
    async with open_tables(database_url, TEAMWORK_TABLES) as opened:
        company = Company(opened)
        assert await company.role(42) == (3, "OWNER")
        team = await company.teams.create("New", number=9)
        assert await company.role(42) == (3, "OWNER")
        await company.people.set_slack_id(42, "U012ABC")
        assert (await company.teams.invite(team.id)).token


def _make_first(connection: Any) -> None:
    """The tables of version 1 that have changed since."""
    create(READERS)(connection)
    names = "name TEXT NOT NULL, email TEXT NOT NULL, role VARCHAR(64) NOT NULL"
    connection.execute(
        text(
            f"CREATE TABLE {PEOPLE.name} (user_id BIGINT PRIMARY KEY, {names}, team_id BIGINT NOT NULL, "
            "team_role VARCHAR(64) NOT NULL)"
        )
    )


def _fill_first(connection: Any) -> None:
    row = {"user_id": 42, "name": "Ann", "email": "", "role": "PM", "team_id": 3, "team_role": "OWNER"}
    connection.execute(insert(PEOPLE).values(**row))


# --- over HTTP -----------------------------------------------------------------------------------------------------


async def ask(office: Office, user: int, method: str, path: str, body: Any = None) -> Any:
    answer = await office.http.request(method, path, json=body, headers=office.token(user))
    assert answer.headers.get("cache-control") == "no-store"
    return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json()["code"])


NEW = 500


@pytest.fixture
async def newcomer(office: Office) -> int:
    person = UserSession(name="Mei", email="mei@example.com", role="DEVELOPER", team_id=0, team_role="")
    await office.teamwork.people.save(NEW, person)
    return NEW


async def test_a_removed_member_is_out_even_after_a_cache_outage_during_the_removal(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/team/members/{BEN}"
    calls: list[int] = []
    changed = office.teamwork.people.report_change

    def away_at(number: int) -> None:
        async def report_change(user: int) -> None:
            calls.append(user)
            if len(calls) == number:
                raise StoreUnavailable("away")
            await changed(user)

        calls.clear()
        monkeypatch.setattr(office.teamwork.people, "report_change", report_change)

    await office.get("/api/team")  # caches him
    away_at(1)
    assert (await office.http.delete(path, headers=office.token(ANN))).status_code == 503
    assert (await office.get("/api/team"))["id"] == 3  # nothing has changed
    away_at(2)
    assert (await office.http.delete(path, headers=office.token(ANN))).status_code == 503
    # A repeated request is refused, but invalidates the cache.
    assert (await office.http.delete(path, headers=office.token(ANN))).status_code == 404
    assert (await office.http.get("/api/team", headers=office.token(BEN))).status_code == 403


async def test_a_member_number_takes_precedence_over_an_equal_name(office: Office) -> None:
    teamwork = office.teamwork
    called = UserSession(name=str(BEN), email="", role="DEVELOPER", team_id=3, team_role="MEMBER")
    await teamwork.people.save(CHO, called)
    await set_role(teamwork, 3, str(BEN), "OWNER")
    members = await teamwork.people.members(3)
    assert (members[BEN].team_role, members[CHO].team_role) == ("OWNER", "MEMBER")
    await set_role(teamwork, 3, "u42", "ADMIN")  # names still work
    assert (await teamwork.people.members(3))[ANN].team_role == "ADMIN"
    await teamwork.people.save(CHO, called.model_copy(update={"name": "12345"}))
    await set_role(teamwork, 3, "12345", "ADMIN")
    assert (await teamwork.people.members(3))[CHO].team_role == "ADMIN"


async def test_a_new_user_joins_by_a_link_and_works_in_the_team(office: Office, newcomer: int) -> None:
    assert await ask(office, newcomer, "GET", "/api/deadlines") == (403, "NO_TEAM")
    assert (await ask(office, newcomer, "GET", "/api/me"))["teamId"] == 0
    assert await ask(office, newcomer, "GET", "/api/notifications/unread-counts") != (403, "NO_TEAM")
    made = await ask(office, ANN, "POST", "/api/team/invitations", {"name": "Mei", "teamRole": "MEMBER"})
    link, _, token = made["link"].partition("#invitation=")
    assert link == "http://127.0.0.1:8713/teamwork"
    assert (made["invitedBy"], made["expiresAt"]) == ("u42", "2096-10-09T12:00:00Z")
    looked = await ask(office, newcomer, "POST", "/api/invitations/look", {"token": token})
    assert (looked["teamRole"], looked["name"]) == ("MEMBER", "Mei")
    assert "link" not in looked
    team = await ask(office, newcomer, "POST", "/api/invitations/accept", {"token": token})
    assert (team["id"], team["zone"], team["deadlineDays"]) == (3, "UTC", [3])
    assert (await ask(office, newcomer, "GET", "/api/me"))["teamId"] == 3  # from the next request on
    assert await ask(office, OUTSIDER, "POST", "/api/invitations/accept", {"token": token}) == (
        410,
        "INVITATION_INVALID",
    )
    listed = (await ask(office, newcomer, "GET", "/api/team/members"))["members"]
    assert [(one["id"], one["teamRole"]) for one in listed][-1] == (newcomer, "MEMBER")
    assert await ask(office, newcomer, "GET", "/api/team/invitations") == (403, "FORBIDDEN")
    assert await ask(office, newcomer, "POST", "/api/invitations/accept", {}) == (400, "BAD_REQUEST")


async def test_a_personal_invitation_notifies_its_user_who_accepts_it(office: Office, newcomer: int) -> None:
    await office.teamwork.teams.rename(3, "Print shop")
    made = await ask(office, ANN, "POST", "/api/team/invitations", {"userId": newcomer})
    [notice] = (await ask(office, newcomer, "GET", "/api/notifications"))["items"]
    assert (notice["type"], notice["title"]) == ("팀초대", "u42 invites you to the team Print shop")
    [mine] = (await ask(office, newcomer, "GET", "/api/invitations"))["invitations"]
    assert (mine["id"], mine["team"]) == (made["id"], "Print shop")
    accepted = await ask(office, newcomer, "POST", "/api/invitations/accept", {"invitation": mine["id"]})
    assert accepted["id"] == 3
    again = await ask(office, ANN, "POST", "/api/team/invitations", {"userId": newcomer})
    assert again == (409, "ALREADY_IN_TEAM")


async def test_zone_and_marks_of_a_team_are_set_and_changed(office: Office, newcomer: int) -> None:
    body = {"name": "Night shift", "zone": "Asia/Seoul", "deadlineDays": [7, 3]}
    for wrong in ({**body, "zone": "Mars"}, {**body, "deadlineDays": []}, {**body, "name": "\n"}):
        assert await ask(office, newcomer, "POST", "/api/teams", wrong) == (400, "BAD_REQUEST")
    made = await ask(office, newcomer, "POST", "/api/teams", body)
    assert (made["zone"], made["deadlineDays"], made["today"]) == ("Asia/Seoul", [3, 7], "2096-10-02")
    assert await ask(office, newcomer, "POST", "/api/teams", body) == (409, "ALREADY_IN_TEAM")
    changed = await ask(office, newcomer, "PATCH", "/api/team", {"deadlineDays": [1]})
    assert (changed["name"], changed["zone"], changed["deadlineDays"]) == ("Night shift", "Asia/Seoul", [1])
    office.clock.pass_ms(4 * 3_600_000)  # one in the morning there
    assert (await ask(office, newcomer, "GET", "/api/team"))["today"] == "2096-10-03"
    assert (await ask(office, newcomer, "GET", "/api/deadlines"))["today"] == "2096-10-03"
    assert await ask(office, BEN, "PATCH", "/api/team", {"name": "Mine"}) == (403, "FORBIDDEN")
    assert (await ask(office, ANN, "GET", "/api/team"))["today"] == "2096-10-02"


async def test_roles_are_changed_and_members_leave_or_are_removed(office: Office) -> None:
    assert await ask(office, BEN, "PATCH", f"/api/team/members/{BEN}", {"teamRole": "OWNER"}) == (403, "FORBIDDEN")
    assert await ask(office, ANN, "PATCH", f"/api/team/members/{BEN}", {"teamRole": "ADMIN"}) == {"ok": True}
    assert (await ask(office, BEN, "GET", "/api/me"))["teamRole"] == "ADMIN"
    assert await ask(office, ANN, "PATCH", f"/api/team/members/{OUTSIDER}", {"teamRole": "ADMIN"}) == (404, "NOT_FOUND")
    assert await ask(office, ANN, "POST", "/api/team/leave") == (409, "LAST_OWNER")
    assert await ask(office, BEN, "DELETE", f"/api/team/members/{CHO}") == {"ok": True}
    assert await ask(office, CHO, "GET", "/api/team") == (403, "NO_TEAM")
    assert await ask(office, BEN, "POST", "/api/team/leave") == {"ok": True}
    assert await ask(office, BEN, "GET", "/api/team/members") == (403, "NO_TEAM")


async def test_members_can_change_only_their_own_slack_id(office: Office) -> None:
    path = f"/api/team/members/{BEN}"
    assert await ask(office, BEN, "PATCH", path, {"slackId": "U012ABC"}) == {"ok": True}
    assert await ask(office, CHO, "PATCH", path, {"slackId": "U666"}) == (403, "FORBIDDEN")
    assert await ask(office, BEN, "PATCH", path, {"slackId": "!channel"}) == (400, "BAD_REQUEST")
    person = await office.teamwork.people.find(BEN)
    assert person is not None
    assert person.slack_id == "U012ABC"
    assert await ask(office, ANN, "PATCH", path, {"slackId": ""}) == {"ok": True}
    members = (await ask(office, ANN, "GET", "/api/team/members"))["members"]
    assert {one["id"]: one["slackId"] for one in members}[BEN] is None


async def test_a_user_who_left_a_team_is_not_notified_of_its_deadlines(office: Office) -> None:
    body = {"due": "2096-10-05", "title": "Print", "assigneeId": BEN}
    await ask(office, ANN, "PUT", "/api/deadlines/DEFECT/1", body)
    await ask(office, BEN, "POST", "/api/team/leave")
    await office.teamwork.deadlines.notify_due()
    assert (await ask(office, BEN, "GET", "/api/notifications"))["total"] == 0


async def test_a_bare_deadline_notifies_the_last_assignee_or_the_leads(office: Office) -> None:
    due = 4_000_233_600  # 2096-10-05
    store = office.teamwork.keys.deadlines.store
    await store.run([("ZADD", "deadlines:team:3", due, "DEFECT:1"), ("ZADD", "deadlines:team:3", due, "DEFECT:2/3")])
    item = {"refType": "DEFECT", "refId": "1", "title": "Print", "docNo": "DF-001", "assigneeId": BEN}
    await ask(office, ANN, "POST", "/api/events", {"kind": "assigned", "id": "e", "item": item})
    done = await office.teamwork.deadlines.notify_due()
    assert (done.notified, done.failed) == (2, 0)
    [near, _] = (await ask(office, BEN, "GET", "/api/notifications"))["items"]
    assert (near["title"], near["message"]) == ("DF-001 is due soon", "due in 3 days (2096-10-05): Print")
    [led] = (await ask(office, ANN, "GET", "/api/notifications"))["items"]
    assert (led["title"], led["refId"]) == ("DEFECT 2/3 is due soon", "2/3")
    assert (await ask(office, CHO, "GET", "/api/notifications"))["total"] == 0
    assert (await office.teamwork.deadlines.notify_due()).notified == 0


async def test_leads_read_the_slack_log_of_their_own_team_only(office: Office) -> None:
    for number, (by, to) in enumerate(((ANN, BEN), (ANN, CHO))):
        assert await office.tell(number, by=by, assigneeId=to) == 1
    log = office.teamwork.slack_log
    for user, error in ((BEN, None), (CHO, "Slack responded 500")):
        [notice] = (await office.teamwork.notices.page(user)).notices
        await log.add(notice, {"text": "x"}, channel="#work", retries=1, error=error, at_ms=office.clock())
    assert await ask(office, BEN, "GET", "/api/team/slack-log") == (403, "FORBIDDEN")
    assert (await ask(office, OUTSIDER, "GET", "/api/team/slack-log")) == {"attempts": []}
    found = (await ask(office, ANN, "GET", "/api/team/slack-log"))["attempts"]
    assert [(one["userId"], one["status"], one["errorMessage"]) for one in found] == [
        (CHO, "FAILED", "Slack responded 500"),
        (BEN, "SENT", None),
    ]
    assert (found[0]["retryCount"], found[0]["sentAt"], found[0]["channel"]) == (1, "2096-10-02T12:00:00Z", "#work")
    failed = (await ask(office, ANN, "GET", "/api/team/slack-log?status=FAILED"))["attempts"]
    assert [one["userId"] for one in failed] == [CHO]
    older = (await ask(office, ANN, "GET", f"/api/team/slack-log?before={found[0]['id']}"))["attempts"]
    assert [one["userId"] for one in older] == [BEN]

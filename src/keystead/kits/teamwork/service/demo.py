"""A demo team, for development only: it has no authentication."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from secrets import randbelow, token_hex
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from keystead.catalogue import Language, message
from keystead.kits.teamwork.models import Deadline, UserSession
from keystead.kits.teamwork.service.events import Assigned, Commented, Event, StatusChanged, WorkItem
from keystead.kits.teamwork.service.messages import speaker
from keystead.kits.teamwork.service.notice_rows import Notice
from keystead.parts.jwt import NewAccess

if TYPE_CHECKING:
    from keystead.kits.teamwork.service.teamwork import Teamwork

DemoEvent: TypeAlias = Literal["assigned", "status-changed", "mentioned", "deployment-failed"]

# Far above generated ids, so that no row of a real user is overwritten.
TEAM: Final = 900_000_000


@dataclass(frozen=True)
class DemoPerson:
    id: int
    name: str
    role: str
    team_role: str

    @property
    def session(self) -> UserSession:
        email = f"{self.name.split()[0].lower()}@example.com"
        return UserSession(name=self.name, email=email, role=self.role, team_id=TEAM, team_role=self.team_role)


PEOPLE: Final = (
    DemoPerson(TEAM + 1, "Ada Lovelace", "PM", "OWNER"),
    DemoPerson(TEAM + 2, "Grace Hopper", "TEAM_LEAD", "ADMIN"),
    DemoPerson(TEAM + 3, "Alan Turing", "DEVELOPER", "MEMBER"),
)

_TITLES: Final = {
    "WORK_REQUEST": message("Print invoices in colour"),
    "TECH_TASK": message("Split the large table"),
    "TEST_SCENARIO": message("Sign-in on a slow phone"),
    "DEFECT": message("The sum is off by one"),
    "DEPLOYMENT": message("Release of the month"),
}
_COMMENT: Final = message("can you look at this?")
_PREFIXES: Final = {
    "WORK_REQUEST": "WR",
    "TECH_TASK": "TK",
    "TEST_SCENARIO": "TS",
    "DEFECT": "DF",
    "DEPLOYMENT": "DP",
}
# Examples for the calendar: type, number, days from today, index of the assignee in PEOPLE.
_DUE: Final = (
    ("DEFECT", 34, -2, 0),
    ("TEST_SCENARIO", 17, 0, 1),
    ("WORK_REQUEST", 101, 3, 0),
    ("TECH_TASK", 21, 3, 2),
    ("DEPLOYMENT", 5, 6, 0),
    ("WORK_REQUEST", 102, 11, 1),
    ("DEFECT", 35, 11, 2),
    ("TECH_TASK", 22, 17, 0),
)


class DemoTeam:
    def __init__(self, teamwork: Teamwork) -> None:
        self._teamwork = teamwork
        self._is_created = False

    async def sign_in(self, person: DemoPerson) -> NewAccess:
        """A token for a person of the team. Creates the team; persons who have left it are not added again."""
        await self._create()
        return self._teamwork.tokens.issue(str(person.id))

    async def find_by_name(self, name: str) -> int | None:
        """The person with this name, for sign-ins at the demo provider; None: there is none."""
        found = next((one.id for one in PEOPLE if one.name == name), None)
        if found is not None and not self._is_created:
            await self._create()
        return found

    async def join(self, user: int, person: UserSession) -> None:
        """Add a user without a team to this team."""
        await self._create()
        await self._teamwork.people.save(user, person.model_copy(update={"team_id": TEAM, "team_role": "MEMBER"}))

    async def _create(self) -> None:
        await self._teamwork.teams.ensure(TEAM, "Demo team")
        for one in PEOPLE:
            await self._teamwork.people.save_new(one.id, one.session)
        self._is_created = True

    async def trigger(self, what: DemoEvent, to: int, team: int, language: Language) -> list[Notice]:
        """Report an event by a colleague that notifies a user. Returns the new notices."""
        return await self._teamwork.tell(_make_event(what, to, language), within=team)

    async def fill_calendar(self, team: int, language: Language) -> int:
        """Add examples around today to the calendar of a team, and send their notices as the daily job does."""
        deadlines, say = self._teamwork.deadlines, speaker(language)
        today = deadlines.today_in((await deadlines.rules_of(team)).zone)
        for kind, number, days, who in _DUE:
            await deadlines.register(
                team,
                Deadline(kind, str(number)),
                today + timedelta(days=days),
                title=say(_TITLES[kind]),
                doc_no=_doc_no(kind, number),
                assignee=PEOPLE[who].id,
            )
        return (await deadlines.notify_due(at_any_hour=True)).notified


def demo_person(number: int) -> DemoPerson | None:
    """The person of the demo team with this id; None: there is none."""
    return next((one for one in PEOPLE if one.id == number), None)


def _make_event(what: DemoEvent, to: int, language: Language) -> Event:
    colleague = next(one for one in PEOPLE if one.id != to)
    number = 100 + randbelow(900)
    ids = {"id": f"demo:{token_hex(8)}", "actor_id": colleague.id}
    match what:
        case "assigned":
            return Assigned(item=_make_item("WORK_REQUEST", number, "접수대기", language, assignee_id=to), **ids)
        case "status-changed":
            item = _make_item("TECH_TASK", number, "개발중", language, owner_id=to)
            return StatusChanged(item=item, before="검토중", **ids)
        case "mentioned":
            person = demo_person(to)
            text = f"@[{person.name if person else to}]({to}) {speaker(language)(_COMMENT)}"
            return Commented(item=_make_item("DEFECT", number, "분석중", language), text=text, **ids)
        case "deployment-failed":
            item = _make_item("DEPLOYMENT", number, "실패", language, assignee_id=to)
            return StatusChanged(item=item, before="진행중", **ids)


def _make_item(kind: str, number: int, status: str, language: Language, **people: int) -> WorkItem:
    title = speaker(language)(_TITLES[kind])
    return WorkItem(ref_type=kind, ref_id=number, title=title, doc_no=_doc_no(kind, number), status=status, **people)


def _doc_no(kind: str, number: int) -> str:
    return f"{_PREFIXES[kind]}-{number:03}"

"""The key document of the console: one-time links, the sessions of people who use it, and what they did."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from keystead.parts.audit import AuditEntry
from keystead.parts.sessions import SessionRecord
from keystead.schema import EpochMs, Keyspace, Log, OmittedIfNone, Set, Value, after, never, sliding
from keystead.schema import link as relation

MEASURES_KEPT: Final = 168  # a week of hours

Role = Literal["viewer", "operator", "admin"]


class ConsoleLink(BaseModel):
    """A link that opens the console once."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    who: str
    """whom it is for, as the audit log names them: `operator:ann`"""
    role: Role
    """`viewer` reads; `operator` changes single keys, queues and jobs; `admin` erases people and repairs"""


class ConsoleSession(SessionRecord):
    """Somebody who uses the console. `uid` is their name, as in the audit log."""

    role: Role
    """what they may do"""
    subject: OmittedIfNone[str] = None
    """the signed-in user whose session this is, such as `login:42`; it ends when they sign out; none: by a link"""
    proven_at: OmittedIfNone[EpochMs] = None
    """when they last proved who they are: by a link, or by signing in"""


TaskKind = Literal["examine", "repair", "draft", "erase"]
TaskState = Literal["running", "done", "stopped", "failed"]


class ConsoleTask(BaseModel):
    """Work on many keys, and how far it is. The last one of each kind is kept."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    id: str
    kind: TaskKind
    what: str
    """what it works on, such as a code of the doctor, or the person to erase"""
    who: str
    state: TaskState = "running"
    why: str = ""
    """why it stopped or failed: `session`, `server`, `changed`, or a sentence"""
    examined: int = 0
    total: OmittedIfNone[int] = None
    findings: int = 0
    fixed: int = 0
    began_at: EpochMs
    changed_at: EpochMs
    """when its progress was last written; a running task writes it every second"""
    rows: int = 0
    """how many rows of tables were deleted"""
    left: int = 0
    """how many keys came back while they were deleted"""
    text: str = ""
    """its result: the drafted module"""


class FoundDefect(BaseModel):
    """An example of a finding, with credentials masked."""

    model_config = ConfigDict(frozen=True)

    code: str
    family: str
    where: str
    key: OmittedIfNone[str] = None  # of a family whose keys are no credentials
    sentence: str


class Removal(BaseModel):
    """A removal that needs confirmation: more than 1 % of a family."""

    model_config = ConfigDict(frozen=True)

    family: str
    count: int
    total: int
    repair: Literal["set aside", "delete"]


class Examination(BaseModel):
    """One run of the doctor."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    at: EpochMs
    who: str
    examined: int
    counts: dict[str, dict[str, int]]
    """how many findings, by code and family"""
    astray: dict[str, str] = {}
    """families of which nothing is deleted, because the other store or pattern is probably wrong; with the code"""
    removals: list[Removal] = []
    examples: list[FoundDefect] = []

    def count(self, code: str) -> int:
        return sum(self.counts.get(code, {}).values())

    @property
    def findings(self) -> int:
        return sum(map(self.count, self.counts))


class FamilyMeasure(BaseModel):
    """The size of a family at one time. `left`: how many keys live how much longer, by the steps of a survey."""

    model_config = ConfigDict(frozen=True)

    count: int
    bytes: int
    left: list[int]


class Measure(BaseModel):
    """The sizes of all families with keys at one time."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    at: EpochMs
    unknown: int
    shapes: dict[str, int] = {}
    """keys of no family, by shape: the most frequent ones"""
    is_sample: bool = False
    """whether the numbers are estimates"""
    families: dict[str, FamilyMeasure]


class ConsoleUndo(BaseModel):
    """How to undo an act, encrypted for the session that did it."""

    sealed: str


class ConsoleKeys(Keyspace):
    """The console: one-time links, sessions, measures, examinations, and the audit log of what was done in it."""

    link = Value(
        "keystead:console:link:{digest:token}",
        ConsoleLink,
        lifetime=after("1h"),
        role="console",
        doc="A link that was printed and not opened yet. The key holds the digest of its secret. Consumed once.",
        used_by=("keystead serve", "keystead console", "POST /console/enter"),
    )
    session = Value(
        "keystead:console:session:{sid:token}",
        ConsoleSession,
        lifetime=sliding("1h", touch_every="1m"),
        role="console",
        listed_in=relation("sessions", admits=True),
        tag="sid",
        doc="A session of the console. The key holds the digest of its token.",
        used_by=("/console",),
    )
    sessions = Set(
        "keystead:console:sessions:{uid}",
        str,
        lifetime=sliding("1h", touch_every="1m"),
        role="console",
        doc="The live sessions of one person: each member is the `sid` of a session.",
        used_by=("/console",),
    )
    audit = Log(
        "keystead:console:audit",
        AuditEntry,
        keep=10_000,
        lifetime=never("bounded by `keep`"),
        role="console",
        doc="Who did what in the console. An entry is written before the act.",
        used_by=("/console/audit",),
    )
    task = Value(
        "keystead:console:task:{kind:slug}",
        ConsoleTask,
        lifetime=after("30d"),
        role="console",
        doc="The last work on many keys of each kind, such as a repair. Its process writes the progress.",
        used_by=("/console/task",),
    )
    examinations = Log(
        "keystead:console:examinations",
        Examination,
        keep=60,
        lifetime=sliding("90d", touch_every="1h"),
        role="console",
        doc="Runs of the doctor, by the schedule or on demand: counts, and some masked examples.",
        used_by=("/console/findings",),
    )
    measures = Log(
        "keystead:console:measures",
        Measure,
        keep=MEASURES_KEPT,
        lifetime=sliding("30d", touch_every="1h"),
        role="console",
        doc="The sizes of families, hourly, for trends.",
        used_by=("/console",),
    )
    undo = Value(
        "keystead:console:undo:{id:token}",
        ConsoleUndo,
        lifetime=after("1h"),
        role="console",
        doc="How to undo an edit or a renewal, encrypted for the session that did it. Consumed once.",
        used_by=("POST /console/undo",),
    )

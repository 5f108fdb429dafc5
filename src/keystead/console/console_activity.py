"""The routes of the console for what goes on: findings, tasks, jobs, queues, sessions, and the audit log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args
from urllib.parse import urlencode

from fastapi.responses import Response, StreamingResponse

from keystead.console.console_findings import REPAIRS, family_names, removals_for
from keystead.console.console_keys import TaskKind
from keystead.console.console_requests import ConsoleRoute, ConsoleVisit, NotAllowed
from keystead.console.console_texts import (
    ASTRAY,
    FORBIDDEN,
    NO_FAMILY,
    NO_FINDING,
    NO_JOB,
    NO_QUEUE,
    NO_SHAPE,
    NO_TASK,
    TOO_MANY_STREAMS,
)
from keystead.errors import KeysteadError
from keystead.http.refusals import NO_STORE
from keystead.parts.audit import AuditEntry
from keystead.parts.outbox.outbox_keys import QueueName
from keystead.parts.schedule import Schedule
from keystead.parts.sessions import Act
from keystead.schema.finding import CODES
from keystead.schema.times import moment

_log = logging.getLogger("keystead.console")

_AUDIT_PAGE: Final = 100
_AUDIT_READ: Final = 1_000
_RUNS_SHOWN: Final = 8
_TASKS: Final[Mapping[str, TaskKind]] = {one: one for one in get_args(TaskKind)}
_TASK_PLACES: Final[Mapping[TaskKind, str]] = {
    "examine": "findings",
    "repair": "findings",
    "draft": "unknown",
    "erase": "erase",
}
_started: Final[set[asyncio.Task[Any]]] = set()


# --- findings ----------------------------------------------------------------------------------------------


async def findings_page(visit: ConsoleVisit) -> Response:
    """What the doctor found last, and what is new since yesterday."""
    last, older = await visit.console.findings.latest()
    tasks = [one for kind in ("examine", "repair") if (one := await visit.console.tasks.read(_TASKS[kind])) is not None]
    rows = []
    if last is not None:
        for code in sorted(last.counts, key=list(CODES).index):
            before = 0 if older is None else older.count(code)
            change = None if older is None else last.count(code) - before
            rows.append((CODES[code], last.counts[code], last.count(code), change))
    return visit.show(
        "findings",
        last=last,
        older=older,
        rows=rows,
        repairs=REPAIRS,
        tasks=tasks,
        running=[one for one in tasks if one.state == "running"],
        families_by_name=family_names(visit.console.keyspaces),
        family_of=visit.console.find_key,
        here="findings",
    )


async def examine(visit: ConsoleVisit) -> Response:
    await visit.console.start_examination(visit.actor, visit.is_still_in)
    return visit.redirect_to("/console/task/examine")


async def repair(visit: ConsoleVisit) -> Response:
    """The plan; and with the name typed, the repair of a code, or of the finding of one key."""
    query = visit.request.query_params
    code, key = query.get("code", ""), query.get("key")
    visit.require_fresh()
    last, _ = await visit.console.findings.latest()
    found = None if key is None else visit.console.find_key(key)
    if last is None or code not in REPAIRS or not last.count(code) or (key is not None and found is None):
        raise NotAllowed(404, NO_FINDING)
    removals = [] if key is not None else removals_for(last, code)
    name = code if found is None else found[0].family.name
    if visit.confirms(name):
        started = await visit.console.start_repair(code, key, removals, visit.actor, visit.is_still_in)
        if not started:
            return visit.problem(409, visit.say("This is already running. Wait until it ends."))
        return visit.redirect_to("/console/task/repair")
    counts = (
        dict.fromkeys([f"{type(found[0].keyspace).__name__}.{found[0].family.name}"], 1) if found else last.counts[code]
    )
    what = visit.say(REPAIRS[code])
    lines = [
        f"{family}: {visit.say(ASTRAY)}"
        if last.astray.get(family) == code
        else visit.say("{family}, {count}: {what}", count=f"{number:,}", family=family, what=what)
        for family, number in counts.items()
    ]
    notes = [
        visit.say(
            "More than 1 % of {family}: {count} of {total}. Typing the name confirms this, up to this number.",
            count=f"{one.count:,}",
            total=f"{one.total:,}",
            family=one.family,
        )
        for one in removals
        if last.astray.get(one.family) != code
    ]
    return visit.show_confirmation(
        "repair",
        name,
        lines=lines,
        notes=[
            visit.say(
                "Content that cannot be read is set aside for 30 days; keystead doctor --restore brings it back."
            ),
            *notes,
        ],
        cancel="/console/findings",
        here="findings",
    )


# --- live changes ------------------------------------------------------------------------------------------


async def live_page(visit: ConsoleVisit) -> Response:
    """Changes of keys as they happen."""
    family = visit.request.query_params.get("family", "")
    source = f"/console/live/changes?{urlencode({'family': family})}"
    return visit.show("live", family=family, source=source, here="live")


async def live_changes(visit: ConsoleVisit) -> Response:
    """The changes as server-sent events, as long as the session lasts."""
    family = visit.request.query_params.get("family", "")
    bound = family_names(visit.console.keyspaces).get(family)
    if family and bound is None:
        raise NotAllowed(404, NO_FAMILY)
    if visit.console.live.is_full:
        raise NotAllowed(429, TOO_MANY_STREAMS)
    events = visit.console.live.stream(
        None if bound is None else {bound.family},
        visit.references,
        visit.is_still_in,
    )
    headers = {**NO_STORE, "x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


# --- tasks -------------------------------------------------------------------------------------------------


async def task_page(visit: ConsoleVisit) -> Response:
    """How far a task is. The page refreshes itself while it runs."""
    kind = _TASKS.get(visit.request.path_params["kind"])
    task = None if kind is None else await visit.console.tasks.read(kind)
    if task is None:
        raise NotAllowed(404, NO_TASK)
    if task.kind == "erase" and not visit.may("admin"):
        raise NotAllowed(403, FORBIDDEN)  # it names a person
    return visit.show("task", task=task, here=_TASK_PLACES[task.kind])


async def draft(visit: ConsoleVisit) -> Response:
    """Draft families for all unknown keys, or for those of one shape."""
    shape = visit.form.get("shape", "")
    if shape and not any(shape in one.shapes for one in (await visit.console.measures.latest())[:1]):
        raise NotAllowed(404, NO_SHAPE)
    await visit.console.start_draft(shape, visit.actor, visit.is_still_in)
    return visit.redirect_to("/console/task/draft")


# --- jobs --------------------------------------------------------------------------------------------------


def _schedule(visit: ConsoleVisit) -> Schedule | None:
    found: Schedule | None = visit.request.app.state.schedule
    return found


async def jobs_page(visit: ConsoleVisit) -> Response:
    """Scheduled jobs with their last runs."""
    schedule = _schedule(visit)
    jobs = [] if schedule is None else await schedule.list()
    runs = [] if schedule is None else [await _runs(schedule, one.job.name) for one in jobs]
    return visit.show("jobs", jobs=list(zip(jobs, runs, strict=True)), moment=moment, here="jobs")


async def _runs(schedule: Schedule, name: str) -> Sequence[Any]:
    try:
        return await schedule.history(name, _RUNS_SHOWN)
    except KeysteadError:
        return ()  # the page shows the trouble of this job


async def run_job(visit: ConsoleVisit) -> Response:
    """Run a job now in this process, with its name typed."""
    schedule, name = _schedule(visit), visit.request.query_params.get("name", "")
    job = next((one for one in ([] if schedule is None else await schedule.list()) if one.job.name == name), None)
    if schedule is None or job is None:
        raise NotAllowed(404, NO_JOB)
    if job.running is not None:
        return visit.problem(409, visit.say("This is already running. Wait until it ends."))
    if not visit.confirms(name):
        return visit.show_confirmation(
            "run_job", name, lines=[visit.say(job.job.doc)] if job.job.doc else [], cancel="/console/jobs", here="jobs"
        )
    await visit.console.note("console-job-run", visit.actor, name)
    run = asyncio.create_task(_run(schedule, name), name=f"keystead console runs {name}")
    _started.add(run)
    run.add_done_callback(_started.discard)
    await asyncio.sleep(0)
    return visit.redirect_to("/console/jobs")


async def _run(schedule: Schedule, name: str) -> None:
    try:
        await schedule.run_now(name)
    except KeysteadError as error:
        _log.warning("%s did not run: %s", name, error)


# --- queues ------------------------------------------------------------------------------------------------


async def queues_page(visit: ConsoleVisit) -> Response:
    """Queues of the outbox: what waits, what fails, and dead letters."""
    operations = visit.console.operations
    queues = await operations.listed_queues()
    return visit.show("queues", queues=queues, has_queues=operations.queues is not None, moment=moment, here="queues")


async def act_on_queue(visit: ConsoleVisit) -> Response:
    """Retry a queue now, or drop its dead letters or its messages, with its name typed."""
    query, operations = visit.request.query_params, visit.console.operations
    act = visit.request.path_params["act"]
    found = await operations.queue(query.get("topic", ""), query.get("name", ""))
    if found is None or operations.queues is None or act not in _QUEUE_ACTS:
        raise NotAllowed(404, NO_QUEUE)
    if act in _ON_MANY_MESSAGES:
        visit.require_fresh()
    name = str(found.queue)
    if not visit.confirms(name):
        lines = [visit.say("Waiting: {waiting}; dead letters: {dead}", waiting=found.waiting, dead=found.dead)]
        return visit.show_confirmation(act, name, lines=lines, cancel="/console/queues", here="queues")
    await visit.console.note(_QUEUE_ACTS[act], visit.actor, name)
    queue = QueueName(*found.queue)
    if act == "retry":
        await operations.queues.retry(queue)
    elif act == "retry_dead":
        await operations.queues.retry_dead_letters(queue)
    elif act == "drop_dead":
        await operations.queues.drop_dead_letters(queue)
    else:
        await operations.queues.drop_waiting(queue)
    return visit.redirect_to("/console/queues")


_QUEUE_ACTS: Final = {
    "retry": "console-queue-retried",
    "retry_dead": "console-dead-letters-retried",
    "drop_dead": "console-dead-letters-dropped",
    "drop_waiting": "console-queue-dropped",
}
_ON_MANY_MESSAGES: Final = ("retry_dead", "drop_dead", "drop_waiting")


# --- sessions ----------------------------------------------------------------------------------------------


async def sessions_page(visit: ConsoleVisit) -> Response:
    """The sessions of a user; and with the user typed again, their end. A post: the name may be private."""
    operations = visit.console.operations
    bound = operations.session_family(visit.form.get("family", ""))
    user = visit.form.get("user", "").strip()
    sessions = [] if bound is None or not user else await operations.sessions(bound, user)
    text = ""
    if bound is not None and user and visit.confirms(user):
        if not visit.may("operator"):
            raise NotAllowed(403, FORBIDDEN)
        visit.require_fresh()
        actor = visit.actor
        await visit.console.note("console-sessions-ended", actor, f"{bound.family.name} {user}")
        ended = await operations.end_sessions(bound, user, Act(actor.who, actor.where))
        text, sessions = visit.say("{count} sessions of {user} were ended.", count=ended, user=user), []
    return visit.show(
        "sessions",
        session_families=operations.session_families,
        bound=bound,
        user=user,
        sessions=sessions,
        text=text,
        problem=visit.say("The two texts differ.") if visit.has_typed and not text else "",
        here="sessions",
    )


# --- the audit log -----------------------------------------------------------------------------------------


async def audit_page(visit: ConsoleVisit) -> Response:
    """The audit log, newest first, filtered by who, event and text; page by page."""
    query = visit.request.query_params
    filters = {name: query.get(name, "").strip() for name in ("who", "event", "text")}
    entries: list[AuditEntry] = []
    following = ""
    read = await visit.console.access.entries(_AUDIT_READ, query.get("before") or None)
    for number, entry in enumerate(read, 1):
        if entry.item is not None and _fits(entry.item, filters):
            entries.append(entry.item)
        if len(entries) == _AUDIT_PAGE or number == _AUDIT_READ:
            following = entry.id if number < len(read) or number == _AUDIT_READ else ""
            break
    kept = {name: text for name, text in filters.items() if text}
    return visit.show(
        "audit",
        entries=entries,
        filters=filters,
        following=f"/console/audit?{urlencode({**kept, 'before': following})}" if following else "",
        is_filtered=bool(kept),
        here="audit",
    )


def _fits(entry: AuditEntry, filters: dict[str, str]) -> bool:
    text = f"{entry.what or ''} {entry.where or ''} {entry.why or ''}".lower()
    return (
        filters["who"].lower() in (entry.who or "").lower()
        and filters["event"].lower() in entry.event
        and filters["text"].lower() in text
    )


ACTIVITY_ROUTES: Final[Sequence[ConsoleRoute]] = (
    ("GET /console/findings", "viewer", findings_page),
    ("POST /console/findings/examine", "operator", examine),
    ("GET /console/findings/repair", "admin", repair),
    ("POST /console/findings/repair", "admin", repair),
    ("GET /console/live", "viewer", live_page),
    ("GET /console/live/changes", "viewer", live_changes),
    ("GET /console/task/{kind}", "viewer", task_page),
    ("POST /console/unknown/draft", "operator", draft),
    ("GET /console/jobs", "viewer", jobs_page),
    ("GET /console/jobs/run", "operator", run_job),
    ("POST /console/jobs/run", "operator", run_job),
    ("GET /console/queues", "viewer", queues_page),
    ("GET /console/queues/{act}", "operator", act_on_queue),
    ("POST /console/queues/{act}", "operator", act_on_queue),
    ("GET /console/sessions", "viewer", sessions_page),
    ("POST /console/sessions", "viewer", sessions_page),
    ("GET /console/audit", "operator", audit_page),
)

"""Texts of the console that are chosen by a name: refusals, acts, places, tasks and relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from keystead.catalogue import message

# --- why a request is refused
CLOSED: Final = message(
    "You are not signed in, or your session has ended. Run keystead console link, and open the link."
)
FORBIDDEN: Final = message("Your role does not allow this. Ask for a link with another role.")
KEEPS_AUDIT: Final = message("This is an audit log. The console does not delete what was recorded.")
NOT_EDITABLE: Final = message("Values of this family cannot be edited here.")
NOT_RENEWABLE: Final = message("The lifetime of this family cannot be renewed.")
NO_FAMILY: Final = message("There is no such family.")
NO_FINDING: Final = message("There is no such finding.")
NO_JOB: Final = message("There is no such job.")
NO_KEY: Final = message("This address does not name a key of this family, or belongs to another session.")
NO_LIMIT: Final = message("No rate limit counts here.")
NO_PAGE: Final = message("The console has no such page.")
NO_QUEUE: Final = message("This queue is empty now.")
NO_SHAPE: Final = message("There are no unknown keys of this shape now.")
NO_TASK: Final = message("There is no such task.")
STALE: Final = message(
    "Acts on many keys need a recent sign-in, of the last 15 minutes. Sign in again, or open a new link."
)
TOO_MANY_STREAMS: Final = message("Too many live pages are open. Close one, and load this page again.")
ENTER_FAILED: Final = message("This link was already used, or has expired. keystead console link prints a new one.")
NO_ROLE: Final = message(
    "This user has no role in the console. The settings [console] admins, operators and viewers name those who do."
)

ASTRAY: Final = message(
    "left alone, because every key of it lacks its owner or target: the store or pattern is probably wrong"
)


class ActTexts(NamedTuple):
    """The texts of a confirmation: the name of the act, the question, and what it does."""

    name: str
    question: str
    lead: str


ACTS: Final[Mapping[str, ActTexts]] = {
    "delete": ActTexts(
        message("Delete"),
        message("Delete this key?"),
        message("These keys and entries are deleted together. This cannot be undone."),
    ),
    "reset": ActTexts(
        message("Reset limit"),
        message("Reset this rate limit?"),
        message("The requests of this client count from zero again."),
    ),
    "repair": ActTexts(
        message("Repair"),
        message("Repair this?"),
        message(
            "The keys are examined again, then each finding is repaired in one atomic step, only if it is still there."
        ),
    ),
    "run_job": ActTexts(
        message("Run now"),
        message("Run this job now?"),
        message("It runs once, beside its schedule. What it does cannot be undone."),
    ),
    "retry": ActTexts(
        message("Retry now"),
        message("Deliver this queue now?"),
        message("Ends the back-off. A process of the server delivers it at its next poll."),
    ),
    "drop_waiting": ActTexts(
        message("Drop messages"),
        message("Drop all messages of this queue?"),
        message("They are never delivered. This cannot be undone."),
    ),
    "retry_dead": ActTexts(
        message("Retry dead letters"),
        message("Send the dead letters again?"),
        message("They are added to the end of the queue with their ids, and delivered at the next poll."),
    ),
    "drop_dead": ActTexts(
        message("Drop dead letters"),
        message("Drop the dead letters?"),
        message("They and their records are deleted. This cannot be undone."),
    ),
}
TASKS: Final[Mapping[str, str]] = {
    "examine": message("Examination"),
    "repair": message("Repair"),
    "draft": message("Draft of families"),
    "erase": message("Erasure"),
}
TASK_STATES: Final[Mapping[str, str]] = {
    "running": message("Running…"),
    "done": message("Done."),
    "stopped": message("Stopped"),
    "failed": message("It failed"),
}
TASK_ENDS: Final[Mapping[str, str]] = {
    "session": message(
        "Stopped, because the session that started it has ended. What was done until then is shown here."
    ),
    "server": message("Stopped, because the server stopped. What was done until then is shown here."),
    "changed": message(
        "Nothing was repaired: more would be removed now than you confirmed. Examine again, and read the new plan."
    ),
}
ROLE_NAMES: Final[Mapping[str, str]] = {
    "viewer": message("viewer"),
    "operator": message("operator"),
    "admin": message("admin"),
}
RELATIONS: Final[Mapping[str, str]] = {
    "owned_by": message("Owned by"),
    "listed_in": message("Listed in"),
    "owns": message("Owns"),
    "lists": message("Lists"),
    "leads_to": message("Leads to"),
}
SEVERITIES: Final[Mapping[str, str]] = {
    "error": message("error"),
    "warning": message("warning"),
}
PLACE_NAMES: Final[Mapping[str, str]] = {
    "overview": message("Overview"),
    "findings": message("Findings"),
    "unknown": message("Unknown keys"),
    "live": message("Live changes"),
    "jobs": message("Jobs"),
    "queues": message("Queues"),
    "sessions": message("Sessions"),
    "audit": message("Audit log"),
    "erase": message("Erase a person"),
}
LEFT_STEPS: Final = (
    message("no deadline"),
    message("under a minute"),
    message("under an hour"),
    message("under a day"),
    message("under 30 days"),
    message("longer"),
)
OUTCOMES: Final[Mapping[str, str]] = {
    "done": message("done"),
    "failed": message("failed"),
    "stopped": message("stopped"),
    "lost": message("lost"),
}
GIVEN_UP: Final[Mapping[str, str]] = {
    "too old": message("too old"),
    "undeliverable": message("undeliverable"),
    "too many": message("too many"),
    "unreadable": message("unreadable"),
}

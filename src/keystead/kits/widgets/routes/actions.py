"""The actions of each service, as data: routing, responses, the guide and the API page are built from this table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from keystead.kits.camel_model import CamelBody
from keystead.kits.widgets.routes.requests import (
    BoardRequest,
    CleanUpRequest,
    CounterRequest,
    Format,
    LikeRequest,
    RankingRequest,
    WelcomeRequest,
)
from keystead.kits.widgets.routes.views import BOARD, COUNTER, LIKE, RANKING, WELCOME, View
from keystead.kits.widgets.service import Owner, Visitor

_SELECTS: Final = ("select1", "select2", "select3")


@dataclass(frozen=True)
class Call:
    """A call of a service method. Parameters are passed by keyword.

    needs        the required parameters, as in "url token"
    takes        the optional parameters
    is_by_owner  whether it needs the owner token, and the url or id of the widget
    unused       parameters that the original API needs, accepted and ignored
    when         if an action has several calls: the parameter that selects this one
    """

    method: str
    needs: str = ""
    takes: str = ""
    is_by_owner: bool = False
    unused: str = ""
    when: str = ""

    @cached_property
    def passed(self) -> tuple[str, ...]:
        return (*self.needs.split(), *self.takes.split())

    @cached_property
    def required(self) -> tuple[str, ...]:
        return (*self.needs.split(), *(("token",) if self.is_by_owner else ()))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        owner = ("token", "url", "id") if self.is_by_owner else ()
        return (*owner, *self.passed, *self.unused.split())

    def run(self, service: Any, given: Any, visitor: Visitor) -> Awaitable[Any]:
        """Call the service."""
        result: Awaitable[Any] = getattr(service, self.method)(**self.arguments(given), visitor=visitor)
        return result

    def arguments(self, given: Any) -> dict[str, Any]:
        """The given parameters as arguments of the method."""
        passed = {name: getattr(given, name) for name in self.passed if name in given.model_fields_set}
        if not passed.keys().isdisjoint(_SELECTS):
            passed["selects"] = tuple(passed.pop(name, None) for name in _SELECTS)
        if self.is_by_owner:
            passed["owner"] = Owner(given.token, given.url, given.id)
        return passed


@dataclass(frozen=True)
class Action:
    """One action of an endpoint.

    calls      what it calls: the first one whose `when` is given, or the last
    writes     whether it changes stored data
    visits     whether it counts a visit, which `get_writes = "visits"` allows by GET
    view       its text and picture formats; None: JSON only
    default    the default format
    is_public  whether everybody gets the same response: JSON without a wrapper, text and pictures cached for a minute
    body       the fields beside `success` in the response, from the result and the request
    """

    doc: str
    calls: tuple[Call, ...]
    writes: bool = True
    visits: bool = False
    view: View | None = None
    default: Format = "json"
    is_public: bool = False
    body: Callable[[Any, Any], Mapping[str, Any]] = field(default=lambda result, given: {"data": result})

    @cached_property
    def view_parameters(self) -> tuple[str, ...]:
        return (*self.view.parameters, "format") if self.view else ()

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        every = [name for call in self.calls for name in call.parameters]
        return tuple(dict.fromkeys((*every, *self.view_parameters)))

    def choose(self, given: Collection[str]) -> Call:
        return next((call for call in self.calls if call.when in given), self.calls[-1])


@dataclass(frozen=True)
class Endpoint:
    path: str
    name: str  # the attribute of `Widgets`
    noun: str
    request: type[CamelBody]
    actions: Mapping[str, Action]


def _action(doc: str, method: str, needs: str, takes: str = "", **more: Any) -> Action:
    return Action(doc, (Call(method, needs, takes),), **more)


def _owner_call(method: str, needs: str = "", takes: str = "", unused: str = "", when: str = "") -> Call:
    return Call(method, needs, takes, is_by_owner=True, unused=unused, when=when)


def _owner_action(doc: str, method: str, needs: str = "", takes: str = "", unused: str = "") -> Action:
    return Action(f"{doc} Owner only.", (_owner_call(method, needs, takes, unused),))


def _create(noun: str, takes: str, needs: str = "") -> Action:
    doc = f"Create the {noun} of a page, or return the existing one if the token matches."
    return _action(doc, "create", f"url token {needs}", f"id {takes}")


def _get(doc: str, view: View, takes: str = "") -> Action:
    calls = (_owner_call("get_as_owner", "", takes, when="token"), Call("get", "id", takes))
    return Action(f"{doc} With the owner token, also the webhook URL.", calls, writes=False, view=view)


def _display(doc: str, view: View, takes: str = "", default: Format = "json") -> Action:
    doc = f"The public view. {doc}"
    return Action(doc, (Call("get", "id", takes),), writes=False, view=view, is_public=True, default=default)


_DELETE: Final = _owner_action("Delete it with all its data.", "delete")
_UPDATE: Final = "The same as updateSettings, set, or both in one step."
_BATCHES: Final = {
    "batchCreate": _action(
        "Create several, each with its own id. Existing ones with the same token stay.",
        "batch_create",
        "token items",
    ),
    "batchGet": _action("Get several totals by id.", "batch_get", "ids", writes=False),
    "sumByPrefix": _action(
        "Get the sum of all totals whose ids have this prefix.",
        "sum_by_prefix",
        "prefix",
        writes=False,
        body=lambda total, given: {"data": {"prefix": given.prefix, "total": total}},
    ),
}

VISIT: Final = Endpoint(
    "/api/visit",
    "counters",
    "counter",
    CounterRequest,
    {
        "create": _create("counter", "webhook_url"),
        "increment": _action(
            "Count a visit, once per visitor and day. If it was already counted, duplicate is true.",
            "increment",
            "id",
            visits=True,
            view=COUNTER,
        ),
        "display": _display("The default format is image. JSON is the bare data.", COUNTER, default="image"),
        "get": _get("Get the counts.", COUNTER),
        "set": _owner_action("Set the total. The daily counts stay.", "set", "total"),
        "update": _owner_action(_UPDATE, "update_settings", takes="webhook_url total"),
        "updateSettings": _owner_action("Change the webhook.", "update_settings", takes="webhook_url"),
        "delete": _DELETE,
        **_BATCHES,
    },
)

LIKES: Final = Endpoint(
    "/api/like",
    "likes",
    "like button",
    LikeRequest,
    {
        "create": _create("like button", "icon webhook_url"),
        "toggle": _action("Like the page for today, or unlike it.", "toggle", "id"),
        "get": _get("Get the total, and whether this visitor likes the page today.", LIKE),
        "display": _display("JSON is the bare data. The picture does not show whether a visitor likes the page.", LIKE),
        "set": _owner_action("Set the total.", "set", "value"),
        "update": _owner_action(_UPDATE, "update_settings", takes="icon webhook_url value"),
        "updateSettings": _owner_action("Change the icon or the webhook.", "update_settings", takes="icon webhook_url"),
        "delete": _DELETE,
        **_BATCHES,
    },
)

_RANKING_SETTINGS: Final = "title description max_entries sort_order webhook_url"

RANKINGS: Final = Endpoint(
    "/api/ranking",
    "rankings",
    "ranking",
    RankingRequest,
    {
        "create": _create("ranking", _RANKING_SETTINGS),
        "submit": _action(
            "Submit a score, once every 60 seconds. A score that does not beat the previous one of its name changes "
            "nothing. Without a name, the visitor gets a nickname.",
            "submit",
            "id score",
            "name display_score",
        ),
        "update": Action(
            "Set the score of a name, even to a worse one. Without a name, the same as updateSettings. Owner only.",
            (
                _owner_call("update", "name score", "display_score", when="name"),
                _owner_call("update_settings", takes=_RANKING_SETTINGS),
            ),
        ),
        "remove": _owner_action("Remove an entry.", "remove", "name"),
        "clear": _owner_action("Remove all entries.", "clear"),
        "updateSettings": _owner_action(
            "Change the title, description, maximum number of entries, order or webhook.",
            "update_settings",
            takes=_RANKING_SETTINGS,
        ),
        "get": _get("Get the best entries.", RANKING, "limit"),
        "display": _display(
            "JSON is the bare data. Text has one line per entry. The picture shows the best five.", RANKING, "limit"
        ),
        "delete": _DELETE,
    },
)

_BOARD_SETTINGS: Final = "title messages_per_page max_messages enable_icons enable_selects webhook_url"
_CONTENT: Final = "author icon select1 select2 select3"
_BY_AUTHOR: Final = "id message_id edit_token"

BOARDS: Final = Endpoint(
    "/api/bbs",
    "boards",
    "board",
    BoardRequest,
    {
        "create": _create("board", _BOARD_SETTINGS),
        "post": _action(
            "Post a message, once every 10 seconds. Only this response contains the editToken, which lets the author "
            "change the message.",
            "post",
            "id message",
            _CONTENT,
            body=lambda posted, given: {
                "data": posted.data,
                "messageId": posted.message_id,
                "editToken": posted.edit_token,
            },
        ),
        "get": _get("Get a page of messages, newest first.", BOARD, "page limit"),
        "display": _display(
            "JSON is the bare data. Text has one line per message. The picture shows the newest three, or up to ten "
            "with limit.",
            BOARD,
            "page limit",
        ),
        "editMessageById": _action("Edit a message. Author only.", "edit", _BY_AUTHOR, f"message {_CONTENT}"),
        "deleteMessageById": _action("Delete a message. Author only.", "remove", _BY_AUTHOR),
        # The original API also needs the edit token here, which the owner does not have.
        "editMessage": _owner_action(
            "Edit any message.", "owner_edit", "message_id", f"message {_CONTENT}", "edit_token"
        ),
        "deleteMessage": _owner_action("Delete any message.", "owner_remove", "message_id", unused="edit_token"),
        "update": Action(
            "Edit a message: as its author with editToken, or as the owner with token. Without messageId, the same as "
            "updateSettings.",
            (
                Call("edit", _BY_AUTHOR, f"message {_CONTENT}", when="edit_token"),
                _owner_call("owner_edit", "message_id", f"message {_CONTENT}", when="message_id"),
                _owner_call("update_settings", takes=_BOARD_SETTINGS),
            ),
        ),
        "remove": Action(
            "Delete a message: as its author with editToken, or as the owner with token.",
            (Call("remove", _BY_AUTHOR, when="edit_token"), _owner_call("owner_remove", "message_id")),
        ),
        "clear": _owner_action("Delete all messages.", "clear"),
        "updateSettings": _owner_action(
            "Change the title, page size, maximum number of messages, icons, choices or webhook.",
            "update_settings",
            takes=_BOARD_SETTINGS,
        ),
        "delete": _DELETE,
    },
)

_WELCOME_SETTINGS: Final = "mode name avatar webhook_url"

WELCOMES: Final = Endpoint(
    "/api/yokoso",
    "welcomes",
    "welcome card",
    WelcomeRequest,
    {
        "create": _create("welcome card", _WELCOME_SETTINGS, "message"),
        "get": _get("Get the card.", WELCOME),
        "display": _display("JSON is the bare data. Text is the message.", WELCOME),
        "update": _owner_action("Change the card.", "update", takes=f"message {_WELCOME_SETTINGS}"),
        "delete": _DELETE,
    },
)

ENDPOINTS: Final = (VISIT, LIKES, RANKINGS, BOARDS, WELCOMES)

ADMIN: Final = Endpoint(
    "/api/admin/cleanup",
    "admin",
    "clean-up",
    CleanUpRequest,
    {
        "cleanup": _action(
            "Delete the widgets with this id, of all services or of one.",
            "cleanup",
            "admin_token target_id",
            "service dry_run",
        ),
        "autoCleanup": _action(
            "Delete widgets that were not used for idle_days, as the daily job does.",
            "auto_cleanup",
            "admin_token",
            "dry_run",
        ),
        "cleanupByUrl": _action(
            "Delete the widgets of one page, or of all pages that match a pattern.",
            "cleanup_by_url",
            "admin_token url_pattern",
            "dry_run",
        ),
    },
)

"""The actions of each service, as data: requests, answers, the guide and the API page go by them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
    """One call of a service. Parameters are passed to its method by keyword.

    needs      the parameters that must be given, as in "url token"
    takes      those that may be given
    is_owners  whether the owner calls it: by the token, with the address of the page or the id
    unused     what may be given because the original wants it, and is ignored
    when       of an action that stands for several calls: the parameter that asks for this one
    """

    method: str
    needs: str = ""
    takes: str = ""
    is_owners: bool = False
    unused: str = ""
    when: str = ""

    @cached_property
    def passed(self) -> tuple[str, ...]:
        return (*self.needs.split(), *self.takes.split())

    @cached_property
    def required(self) -> tuple[str, ...]:
        return (*self.needs.split(), *(("token",) if self.is_owners else ()))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        owner = ("token", "url", "id") if self.is_owners else ()
        return (*owner, *self.passed, *self.unused.split())

    async def run(self, service: Any, given: Any, visitor: Visitor) -> Any:
        """The result of the service. Raises what it raises."""
        return await getattr(service, self.method)(**self.arguments(given), visitor=visitor)

    def arguments(self, given: Any) -> dict[str, Any]:
        """What is passed to the service: what was given."""
        passed = {name: getattr(given, name) for name in self.passed if name in given.model_fields_set}
        if not passed.keys().isdisjoint(_SELECTS):
            passed["selects"] = tuple(passed.pop(name, None) for name in _SELECTS)
        if self.is_owners:
            passed["owner"] = Owner(given.token, given.url, given.id)
        return passed


@dataclass(frozen=True)
class Action:
    """One action of an endpoint.

    calls    what it does: of several, the first whose `when` is given, or the last
    writes   whether it changes what is stored
    visits   whether it counts a visit, which `get_writes = "visits"` still lets through by GET
    view     how it is shown as text and as a picture; None: it is JSON only
    default  the format without `format`
    display  whether everybody gets the same: JSON is the data alone, and text and pictures may be kept for a minute
    body     what stands beside `success` in the answer, by the result and what was given
    """

    doc: str
    calls: tuple[Call, ...]
    writes: bool = True
    visits: bool = False
    view: View | None = None
    default: Format = "json"
    display: bool = False
    body: Callable[[Any, Any], Mapping[str, Any]] = field(default=lambda result, given: {"data": result})

    @cached_property
    def looks(self) -> tuple[str, ...]:
        """The parameters of the view."""
        return (*self.view.parameters, "format") if self.view else ()

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        every = [name for call in self.calls for name in call.parameters]
        return tuple(dict.fromkeys((*every, *self.looks)))

    def choose(self, given: Collection[str]) -> Call:
        """The call that these parameters ask for."""
        return next((call for call in self.calls if call.when in given), self.calls[-1])


@dataclass(frozen=True)
class Endpoint:
    """One of the services: its path, its attribute of `Widgets`, what people call a widget of it, what requests to it
    can give, and its actions.
    """

    path: str
    name: str
    noun: str
    request: type[CamelBody]
    actions: Mapping[str, Action]


def _action(doc: str, method: str, needs: str, takes: str = "", **more: Any) -> Action:
    return Action(doc, (Call(method, needs, takes),), **more)


def _owner_call(method: str, needs: str = "", takes: str = "", unused: str = "", when: str = "") -> Call:
    return Call(method, needs, takes, is_owners=True, unused=unused, when=when)


def _own(doc: str, method: str, needs: str = "", takes: str = "", unused: str = "") -> Action:
    return Action(f"{doc} For its owner.", (_owner_call(method, needs, takes, unused),))


def _create(noun: str, takes: str, needs: str = "") -> Action:
    doc = f"Create the {noun} of a page. Where there is one with the same token, that one is answered."
    return _action(doc, "create", f"url token {needs}", f"id {takes}")


def _get(doc: str, view: View, takes: str = "") -> Action:
    """What everybody sees; and for the owner, who shows the token, also where events are sent."""
    calls = (_owner_call("get_as_owner", "", takes, when="token"), Call("get", "id", takes))
    return Action(f"{doc}; for its owner also where events are sent.", calls, writes=False, view=view)


def _display(doc: str, view: View, takes: str = "", default: Format = "json") -> Action:
    return Action(doc, (Call("get", "id", takes),), writes=False, view=view, display=True, default=default)


_DELETE: Final = _own("Delete it with everything that belongs to it.", "delete")
_BOTH: Final = "The same as updateSettings, set, or both, in one step."
_BATCHES: Final = {
    "batchCreate": _action(
        "Create many at once, each with an id of its own. Those that are there with the same token stay.",
        "batch_create",
        "token items",
    ),
    "batchGet": _action("The totals of many, by id.", "batch_get", "ids", writes=False),
    "sumByPrefix": _action(
        "All totals whose ids begin so, together.",
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
            "Count a visit: each visitor once a day. A repeated one is answered like the first, with duplicate: true.",
            "increment",
            "id",
            visits=True,
            view=COUNTER,
        ),
        "display": _display(
            "Show it: a picture unless format says otherwise. JSON is the data alone.", COUNTER, default="image"
        ),
        "get": _get("Its numbers", COUNTER),
        "set": _own("Set the total. The numbers of days stay.", "set", "total"),
        "update": _own(_BOTH, "update_settings", takes="webhook_url total"),
        "updateSettings": _own("Change where events are sent.", "update_settings", takes="webhook_url"),
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
        "toggle": _action("Like the page, or take it back, for today.", "toggle", "id"),
        "get": _get("Its total, and whether whoever asks likes it today", LIKE),
        "display": _display("Show it. JSON is the data alone; a picture does not tell who likes it.", LIKE),
        "set": _own("Set the total.", "set", "value"),
        "update": _own(_BOTH, "update_settings", takes="icon webhook_url value"),
        "updateSettings": _own(
            "Change its icon, and where events are sent.", "update_settings", takes="icon webhook_url"
        ),
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
            "Send a score. One that is no better than what the name has changes nothing. Without a name, the visitor "
            "gets one. Once in 60 seconds.",
            "submit",
            "id score",
            "name display_score",
        ),
        "update": Action(
            "Set the score of a name, also to a worse one; without a name, the same as updateSettings. For its owner.",
            (
                _owner_call("update", "name score", "display_score", when="name"),
                _owner_call("update_settings", takes=_RANKING_SETTINGS),
            ),
        ),
        "remove": _own("Take an entry out.", "remove", "name"),
        "clear": _own("Take all entries out.", "clear"),
        "updateSettings": _own(
            "Change its title, its description, how many it keeps, or its order.",
            "update_settings",
            takes=_RANKING_SETTINGS,
        ),
        "get": _get("The best entries", RANKING, "limit"),
        "display": _display(
            "Show it. JSON is the data alone; text is a line an entry; a picture has the best five.", RANKING, "limit"
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
            "Write a message. The editToken is told here once; it lets its author change the message. Once in 10 "
            "seconds.",
            "post",
            "id message",
            _CONTENT,
            body=lambda posted, given: {
                "data": posted.data,
                "messageId": posted.message_id,
                "editToken": posted.edit_token,
            },
        ),
        "get": _get("A page of its messages, the newest first", BOARD, "page limit"),
        "display": _display(
            "Show it. JSON is the data alone; text is a line a message; a picture has the newest three, or as many as "
            "limit says, up to ten.",
            BOARD,
            "page limit",
        ),
        "editMessageById": _action("Change a message. For its author.", "edit", _BY_AUTHOR, f"message {_CONTENT}"),
        "deleteMessageById": _action("Take a message away. For its author.", "remove", _BY_AUTHOR),
        # The original wants the author's secret of the owner, too, who does not have it.
        "editMessage": Action(
            "Change any message. For the board's owner.",
            (_owner_call("owner_edit", "message_id", f"message {_CONTENT}", unused="edit_token"),),
        ),
        "deleteMessage": Action(
            "Take any message away. For the board's owner.",
            (_owner_call("owner_remove", "message_id", unused="edit_token"),),
        ),
        "update": Action(
            "Change a message: with editToken its author, with token the owner. Without messageId, the same as "
            "updateSettings.",
            (
                Call("edit", _BY_AUTHOR, f"message {_CONTENT}", when="edit_token"),
                _owner_call("owner_edit", "message_id", f"message {_CONTENT}", when="message_id"),
                _owner_call("update_settings", takes=_BOARD_SETTINGS),
            ),
        ),
        "remove": Action(
            "Take a message away: with editToken its author, with token the board's owner.",
            (Call("remove", _BY_AUTHOR, when="edit_token"), _owner_call("owner_remove", "message_id")),
        ),
        "clear": _own("Take all messages away.", "clear"),
        "updateSettings": _own(
            "Change its title, and how many messages it keeps and shows.", "update_settings", takes=_BOARD_SETTINGS
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
        "get": _get("What it says", WELCOME),
        "display": _display("Show it. JSON is the data alone; text is the message.", WELCOME),
        "update": _own("Change what it says and who says it.", "update", takes=f"message {_WELCOME_SETTINGS}"),
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
            "Delete the widgets of an id: all of them, or that of one service.",
            "cleanup",
            "admin_token target_id",
            "service dry_run",
        ),
        "autoCleanup": _action(
            "Delete what nobody has used for idle_days, as the job does every day.",
            "auto_cleanup",
            "admin_token",
            "dry_run",
        ),
        "cleanupByUrl": _action(
            "Delete the widgets of one page, or of all pages that a pattern fits.",
            "cleanup_by_url",
            "admin_token url_pattern",
            "dry_run",
        ),
    },
)

"""What can be asked for: the actions of the services, as data. Requests, answers and the API page go by it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from keystead.kits.widgets.routes import parameters as p
from keystead.kits.widgets.routes.parameters import Parameter, named
from keystead.kits.widgets.routes.views import BOARD, COUNTER, LIKE, RANKING, WELCOME, View

Format: TypeAlias = Literal["json", "text", "image"]


@dataclass(frozen=True)
class Call:
    """One call of a service.

    method  the name of the method; parameters are passed by their keywords, and `visitor` beside them
    owner   whether it takes an `Owner` first: the token, with the address of the page or the id
    unused  what may stand there because the original wanted it, and is not looked at
    when    the parameters that ask for it, any of them, where an action stands for several
    """

    method: str
    needs: tuple[Parameter, ...] = ()
    takes: tuple[Parameter, ...] = ()
    owner: bool = False
    unused: tuple[Parameter, ...] = ()
    when: tuple[Parameter, ...] = ()

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        owner = (p.TOKEN, p.URL, p.ID) if self.owner else ()
        return (*owner, *self.needs, *self.takes, *self.unused)

    def keywords(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is passed to the method."""
        own = (*self.needs, *self.takes)
        passed = {one.keyword or one.name: given[one.name] for one in own if one.name in given}
        if "selects" in passed:  # of the three, those that were given
            passed["selects"] = tuple(given.get(one.name) for one in p.SELECTS)
        return passed


@dataclass(frozen=True)
class Action:
    """One action of an endpoint.

    calls    what it does: of several, the first whose `when` is given
    writes   whether it changes what is stored
    visits   whether it counts a visit, which `get_writes = "visits"` still lets through by GET
    view     how it is shown as text and as a picture; None: it is JSON only
    looks    the parameters of the view
    plain    what is called for text and pictures in the place of `calls`, where less is enough
    zero     whether one that is not there is shown as 0, as text and as a picture
    default  the format without `format`
    display  whether it is for everybody alike: JSON is the data alone, and what is shown may be kept for a minute
    answer   what stands in the answer, of the outcome and what was given
    """

    name: str
    doc: str
    calls: tuple[Call, ...]
    writes: bool = False
    visits: bool = False
    view: View | None = None
    looks: tuple[Parameter, ...] = ()
    plain: Call | None = None
    zero: bool = False
    default: Format = "json"
    display: bool = False
    answer: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] = field(default=lambda outcome, _: {"data": outcome})

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """All that it can take, by all names."""
        every = (one for call in self.calls for one in call.parameters)
        return named((*every, *self.looks, *((p.FORMAT,) if self.view else ())))

    def chosen(self, given: Collection[str]) -> Call:
        """The call that is asked for: the last one is for whatever the others are not asked for by."""
        return next(
            (call for call in self.calls if any(mark.name in given for mark in call.when)),
            self.calls[-1],
        )


@dataclass(frozen=True)
class Endpoint:
    """One of the services: its path, what `Widgets` calls it, and its actions."""

    path: str
    name: str
    noun: str
    actions: Mapping[str, Action]


def _all(*actions: Action) -> dict[str, Action]:
    return {action.name: action for action in actions}


def _owner(method: str, *takes: Parameter, needs: tuple[Parameter, ...] = (), when: tuple[Parameter, ...] = ()) -> Call:
    return Call(method, needs, takes, owner=True, when=when)


def _moderation(method: str, *takes: Parameter) -> Call:
    """The original wants the author's secret of its owner, too, who does not have it."""
    return Call(method, (p.MESSAGE_ID,), takes, owner=True, unused=(p.EDIT_TOKEN,))


def _one(method: str, *needs: Parameter, takes: tuple[Parameter, ...] = ()) -> tuple[Call]:
    return (Call(method, needs, takes),)


def _seen(*takes: Parameter) -> tuple[Call, ...]:
    """What everybody sees; and for its owner, who shows the token, also where events are sent."""
    return (_owner("get_as_owner", *takes, when=(p.TOKEN,)), Call("get", (p.ID,), takes))


def _posted(posted: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"data": posted.data, "messageId": posted.message_id, "editToken": posted.edit_token}


def _summed(total: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"data": {"prefix": given["prefix"], "total": total}}


_DELETE: Final = Action(
    "delete", "Delete it with everything that belongs to it. For its owner.", (_owner("delete"),), writes=True
)
_BATCHES: Final = (
    Action(
        "batchCreate",
        "Create many at once, each with an id of its own. Those that are there with the same token stay.",
        _one("batch_create", p.TOKEN, p.NEW_ITEMS),
        writes=True,
    ),
    Action("batchGet", "The totals of many, by id.", _one("batch_get", p.IDS_WANTED)),
    Action("sumByPrefix", "All totals whose ids begin so, together.", _one("sum_by_prefix", p.PREFIX), answer=_summed),
)

# --- counters -----------------------------------------------------------------------------------------------------

_COUNTER_LOOKS: Final = (p.TYPE, p.COUNTER_THEME, p.DIGITS)
_SHOWN: Final = Call("shown", (p.ID,), (p.TYPE,))

VISIT: Final = Endpoint(
    "/api/visit",
    "counters",
    "counter",
    _all(
        Action(
            "create",
            "Create the counter of a page. Where there is one with the same token, that one is answered.",
            _one("create", p.URL, p.TOKEN, takes=(p.NEW_ID, p.WEBHOOK)),
            writes=True,
        ),
        Action(
            "increment",
            "Count a visit: each visitor once a day. A repeated one is answered like the first, with duplicate: true.",
            _one("increment", p.ID),
            writes=True,
            visits=True,
            view=COUNTER,
            looks=_COUNTER_LOOKS,
        ),
        Action(
            "display",
            "Show it: a picture unless format says otherwise. JSON is the data alone.",
            _one("get", p.ID),
            view=COUNTER,
            looks=_COUNTER_LOOKS,
            plain=_SHOWN,
            default="image",
            display=True,
        ),
        Action(
            "get",
            "Its numbers; for its owner also where events are sent.",
            _seen(),
            view=COUNTER,
            looks=_COUNTER_LOOKS,
            plain=_SHOWN,
        ),
        Action(
            "set",
            "Set the total. The numbers of days stay. For its owner.",
            (_owner("set", needs=(p.TOTAL,)),),
            writes=True,
        ),
        Action(
            "update",
            "The same as updateSettings, set, or both, in one step. For its owner.",
            (_owner("update_settings", p.WEBHOOK, p.TOTAL),),
            writes=True,
        ),
        Action(
            "updateSettings",
            "Change where events are sent. For its owner.",
            (_owner("update_settings", p.WEBHOOK),),
            writes=True,
        ),
        _DELETE,
        *_BATCHES,
    ),
)

# --- like buttons -------------------------------------------------------------------------------------------------

_LIKE_SETTINGS: Final = (p.LIKE_ICON, p.WEBHOOK)

LIKES: Final = Endpoint(
    "/api/like",
    "likes",
    "like button",
    _all(
        Action(
            "create",
            "Create the like button of a page. Where there is one with the same token, that one is answered.",
            _one("create", p.URL, p.TOKEN, takes=(p.NEW_ID, *_LIKE_SETTINGS)),
            writes=True,
        ),
        Action("toggle", "Like the page, or take it back, for today.", _one("toggle", p.ID), writes=True),
        Action(
            "get",
            "Its total, and whether whoever asks likes it today; for its owner also where events are sent.",
            _seen(),
            view=LIKE,
            looks=(p.THEME,),
            zero=True,
        ),
        Action(
            "display",
            "Show it. JSON is the data alone; a picture does not tell who likes it.",
            _one("get", p.ID),
            view=LIKE,
            looks=(p.THEME,),
            zero=True,
            display=True,
        ),
        Action("set", "Set the total. For its owner.", (_owner("set", needs=(p.VALUE,)),), writes=True),
        Action(
            "update",
            "The same as updateSettings, set, or both, in one step. For its owner.",
            (_owner("update_settings", *_LIKE_SETTINGS, p.VALUE),),
            writes=True,
        ),
        Action(
            "updateSettings",
            "Change its icon, and where events are sent. For its owner.",
            (_owner("update_settings", *_LIKE_SETTINGS),),
            writes=True,
        ),
        _DELETE,
        *_BATCHES,
    ),
)

# --- rankings -----------------------------------------------------------------------------------------------------

_RANKING_SETTINGS: Final = (p.RANKING_TITLE, p.DESCRIPTION, p.MAX_ENTRIES, p.SORT_ORDER, p.WEBHOOK)

RANKINGS: Final = Endpoint(
    "/api/ranking",
    "rankings",
    "ranking",
    _all(
        Action(
            "create",
            "Create the ranking of a page. Where there is one with the same token, that one is answered.",
            _one("create", p.URL, p.TOKEN, takes=(p.NEW_ID, *_RANKING_SETTINGS)),
            writes=True,
        ),
        Action(
            "submit",
            "Send a score. One that is no better than what the name has changes nothing. Without a name, the visitor "
            "gets one. Once in 60 seconds.",
            _one("submit", p.ID, p.SCORE, takes=(p.NAME, p.DISPLAY_SCORE)),
            writes=True,
        ),
        Action(
            "update",
            "Set the score of a name, also to a worse one; without a name, the same as updateSettings. For its owner.",
            (
                _owner("update", p.DISPLAY_SCORE, needs=(p.NAME, p.SCORE), when=(p.NAME,)),
                _owner("update_settings", *_RANKING_SETTINGS),
            ),
            writes=True,
        ),
        Action("remove", "Take an entry out. For its owner.", (_owner("remove", needs=(p.NAME,)),), writes=True),
        Action("clear", "Take all entries out. For its owner.", (_owner("clear"),), writes=True),
        Action(
            "updateSettings",
            "Change its title, its description, how many it keeps, or its order. For its owner.",
            (_owner("update_settings", *_RANKING_SETTINGS),),
            writes=True,
        ),
        Action(
            "get",
            "The best entries; for its owner also where events are sent.",
            _seen(p.LIMIT),
            view=RANKING,
            looks=(p.THEME,),
        ),
        Action(
            "display",
            "Show it. JSON is the data alone; text is a line an entry; a picture has the best five.",
            _one("get", p.ID, takes=(p.LIMIT,)),
            view=RANKING,
            looks=(p.THEME,),
            display=True,
        ),
        _DELETE,
    ),
)

# --- boards -------------------------------------------------------------------------------------------------------

_BOARD_SETTINGS: Final = (
    p.BOARD_TITLE,
    p.PER_PAGE,
    p.MAX_MESSAGES,
    p.ICONS_ON,
    p.SELECTS_ON,
    p.WEBHOOK,
)
_CONTENT: Final = (p.AUTHOR, p.ICON, *p.SELECTS)
_BY_AUTHOR: Final = (p.ID, p.MESSAGE_ID, p.EDIT_TOKEN)

BOARDS: Final = Endpoint(
    "/api/bbs",
    "boards",
    "board",
    _all(
        Action(
            "create",
            "Create the board of a page. Where there is one with the same token, that one is answered.",
            _one("create", p.URL, p.TOKEN, takes=(p.NEW_ID, *_BOARD_SETTINGS)),
            writes=True,
        ),
        Action(
            "post",
            "Write a message. The editToken is told here once; it lets its author change the message. Once in 10 "
            "seconds.",
            _one("post", p.ID, p.MESSAGE, takes=_CONTENT),
            writes=True,
            answer=_posted,
        ),
        Action(
            "get",
            "A page of its messages, the newest first; for its owner also where events are sent.",
            _seen(p.PAGE, p.MESSAGES),
            view=BOARD,
            looks=(p.THEME,),
        ),
        Action(
            "display",
            "Show it. JSON is the data alone; text is a line a message; a picture has the newest three, or as many as "
            "limit says, up to ten.",
            _one("get", p.ID, takes=(p.PAGE, p.MESSAGES)),
            view=BOARD,
            looks=(p.THEME,),
            display=True,
        ),
        Action(
            "editMessageById",
            "Change a message. For its author.",
            (Call("edit", _BY_AUTHOR, (p.MESSAGE, *_CONTENT)),),
            writes=True,
        ),
        Action("deleteMessageById", "Take a message away. For its author.", _one("remove", *_BY_AUTHOR), writes=True),
        Action(
            "editMessage",
            "Change any message. For the board's owner.",
            (_moderation("owner_edit", p.MESSAGE, *_CONTENT),),
            writes=True,
        ),
        Action(
            "deleteMessage",
            "Take any message away. For the board's owner.",
            (_moderation("owner_remove"),),
            writes=True,
        ),
        Action(
            "update",
            "Change a message: with editToken its author, with token the owner. Without messageId, the same as "
            "updateSettings.",
            (
                Call("edit", _BY_AUTHOR, (p.MESSAGE, *_CONTENT), when=(p.EDIT_TOKEN,)),
                _owner("owner_edit", p.MESSAGE, *_CONTENT, needs=(p.MESSAGE_ID,), when=(p.MESSAGE_ID,)),
                _owner("update_settings", *_BOARD_SETTINGS),
            ),
            writes=True,
        ),
        Action(
            "remove",
            "Take a message away: with editToken its author, with token the board's owner.",
            (
                Call("remove", _BY_AUTHOR, when=(p.EDIT_TOKEN,)),
                _owner("owner_remove", needs=(p.MESSAGE_ID,)),
            ),
            writes=True,
        ),
        Action("clear", "Take all messages away. For its owner.", (_owner("clear"),), writes=True),
        Action(
            "updateSettings",
            "Change its title, and how many messages it keeps and shows. For its owner.",
            (_owner("update_settings", *_BOARD_SETTINGS),),
            writes=True,
        ),
        _DELETE,
    ),
)

# --- welcome cards ------------------------------------------------------------------------------------------------

_WELCOME_SETTINGS: Final = (p.MODE, p.WELCOMER, p.AVATAR, p.WEBHOOK)

WELCOMES: Final = Endpoint(
    "/api/yokoso",
    "welcomes",
    "welcome card",
    _all(
        Action(
            "create",
            "Create the welcome card of a page. Where there is one with the same token, that one is answered.",
            _one("create", p.URL, p.TOKEN, p.WELCOME, takes=(p.NEW_ID, *_WELCOME_SETTINGS)),
            writes=True,
        ),
        Action(
            "get",
            "What it says; for its owner also where events are sent.",
            _seen(),
            view=WELCOME,
            looks=(p.THEME, p.LANG),
        ),
        Action(
            "display",
            "Show it. JSON is the data alone; text is the message.",
            _one("get", p.ID),
            view=WELCOME,
            looks=(p.THEME, p.LANG),
            display=True,
        ),
        Action(
            "update",
            "Change what it says and who says it. For its owner.",
            (_owner("update", p.WELCOME, *_WELCOME_SETTINGS),),
            writes=True,
        ),
        _DELETE,
    ),
)

ENDPOINTS: Final = (VISIT, LIKES, RANKINGS, BOARDS, WELCOMES)

# --- for whoever runs the server ----------------------------------------------------------------------------------

ADMIN: Final = Endpoint(
    "/api/admin/cleanup",
    "admin",
    "clean-up",
    _all(
        Action(
            "cleanup",
            "Delete the widgets of an id: all of them, or that of one service.",
            _one("cleanup", p.ADMIN_TOKEN, p.TARGET, takes=(p.SERVICE, p.DRY_RUN)),
            writes=True,
        ),
        Action(
            "autoCleanup",
            "Delete what nobody has used for idle_days, as the job does every day.",
            _one("auto_cleanup", p.ADMIN_TOKEN, takes=(p.DRY_RUN,)),
            writes=True,
        ),
        Action(
            "cleanupByUrl",
            "Delete the widgets of one page, or of all pages that a pattern fits.",
            _one("cleanup_by_url", p.ADMIN_TOKEN, p.URL_PATTERN, takes=(p.DRY_RUN,)),
            writes=True,
        ),
    ),
)

"""The start page: the running kits, their stores, and first steps."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from markupsafe import Markup
from starlette.requests import HTTPConnection
from starlette.types import Scope

from keystead.catalogue import Catalogue, message
from keystead.kits.kit import Example, Kit
from keystead.kits.language import Speaker
from keystead.server.local_entry import is_own_browser
from keystead.server.page_frame import CATALOGUE, page_frame
from keystead.server.page_templates import render
from keystead.server.quickstart import first_steps
from keystead.server.settings import Settings

_CODE: Final = Markup("<code>{}</code>")
_BETWEEN_SETTINGS: Final = (message(", or "), message(", "), message(" and "), message(" or "))
TABLES: Final = " tables"  # cannot be a role, because roles are identifiers


class StoreRow(NamedTuple):
    """A store, its roles, and why it does not answer."""

    roles: str
    url: str
    problem: str | None


class KitCard(NamedTuple):
    """A running kit."""

    name: str
    doc: str
    route_count: int
    key_count: int
    stores: str  # roles of its families other than the default
    examples: Sequence[Example]


def render_start_page(scope: Scope, problems: Mapping[str, str | None]) -> str:
    """The page as HTML. `problems` has the reason why each role, and `TABLES`, does not answer.

    In production the page is public, so it only shows whether the stores answer.
    """
    state = scope["app"].state
    settings: Settings = state.settings
    say = page_frame(scope).say
    stores = _stores(state, problems) if settings.development else _states(problems)
    kits = [_card(kit, state, say) for kit in state.running]
    shown = [example for kit in kits for example in kit.examples if _is_page(example.path)]
    return render(
        "start.html",
        scope,
        development=settings.development,
        mode=settings.mode,
        metrics=settings.metrics,
        stores=stores,
        kits=kits,
        first_example=next(iter(shown), None),
        has_console=any(kit.name == "console" for kit in kits),
        may_enter=is_own_browser(HTTPConnection(scope)),
        kits_example=_CODE.format("--kits login,widgets"),
        kits_option=_CODE.format("--kits"),
        init=_CODE.format("keystead init"),
        file=_CODE.format("first_steps.py"),
        database=_CODE.format("first_steps.db"),
        off={name: _setting_names(how, say) for name, how in state.off.items()},
        first_steps=first_steps(),
    )


def _stores(state: Any, problems: Mapping[str, str | None]) -> list[StoreRow]:
    """Each store once, with all its roles. A store that is not open yet has no URL to show."""
    roles: dict[str, list[str]] = {}
    for role, store in state.stores.items():
        roles.setdefault(store.url, []).append(role)
    rows = [StoreRow(", ".join(names), url, problems.get(names[0])) for url, names in roles.items()]
    if state.tables is not None:
        rows.append(StoreRow("tables", state.tables.url, problems.get(TABLES)))
    return rows or [StoreRow("default", "", problems.get("default"))]


def _states(problems: Mapping[str, str | None]) -> list[StoreRow]:
    """Whether the store of each role answers, without its URL."""
    return [StoreRow(role.strip(), "", problem) for role, problem in problems.items()]


def _setting_names(how: str, say: Speaker) -> Markup:
    """The settings that turn a kit on, and the words between them."""
    parts = re.split(f"({'|'.join(_BETWEEN_SETTINGS)})", how)
    return Markup("").join(say(part) if part in _BETWEEN_SETTINGS else _CODE.format(part) for part in parts)


def _is_page(path: str) -> bool:
    return path.startswith("/") and not path.startswith("/api/")


def _card(kit: Kit, state: Any, say: Speaker) -> KitCard:
    roles = sorted({family.role for family in kit.keyspace.families.values()} & state.settings.stores.keys())
    is_open = kit.name in state.kits
    own = Speaker(say.language, Catalogue(kit.folder)).behind(CATALOGUE)
    examples = [
        dataclasses.replace(one, label=own(one.label), doc=own(one.doc) if one.doc else "")
        for one in kit.examples
        if is_open and one.is_there(state.kits[kit.name])
    ]
    return KitCard(
        kit.name, own(kit.doc), state.route_counts[kit.name], len(kit.keyspace.families), ", ".join(roles), examples
    )

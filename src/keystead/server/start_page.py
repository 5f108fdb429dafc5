"""The start page: the running kits, their stores, and first steps."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from keystead.kits.identity import PageHeader
from keystead.kits.kit import Example, Kit
from keystead.server.page_templates import TEMPLATES
from keystead.server.quickstart import first_steps
from keystead.server.settings import Settings

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


def render_start_page(state: Any, problems: Mapping[str, str | None], header: PageHeader | None) -> str:
    """The page as HTML. `problems` has the reason why each role, and `TABLES`, does not answer.

    In production the page is public, so it only shows whether the stores answer.
    """
    settings: Settings = state.settings
    stores = _stores(state, problems) if settings.development else _states(problems)
    return TEMPLATES.get_template("start.html").render(
        development=settings.development,
        mode=settings.mode,
        metrics=settings.metrics,
        stores=stores,
        problem=next((row.problem for row in stores if row.problem), None),
        kits=[_card(kit, state) for kit in state.running],
        off=state.off,
        first_steps=first_steps(),
        header=header,
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


def _card(kit: Kit, state: Any) -> KitCard:
    roles = sorted({family.role for family in kit.keyspace.families.values()} & state.settings.stores.keys())
    is_open = kit.name in state.kits
    examples = [one for one in kit.examples if is_open and one.is_there(state.kits[kit.name])]
    return KitCard(
        kit.name, kit.doc, state.route_counts[kit.name], len(kit.keyspace.families), ", ".join(roles), examples
    )

"""The start page: what Keystead is, which kits run on which stores, and what to try first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from keystead.kits.identity import PageHeader
from keystead.kits.kit import Example, Kit
from keystead.server.page_templates import TEMPLATES
from keystead.server.quickstart import first_steps
from keystead.server.settings import Settings

TABLES: Final = " tables"  # beside the roles, none of which is called so: they are identifiers


class StoreRow(NamedTuple):
    """A store, the roles it has, and why it does not answer."""

    roles: str
    url: str
    problem: str | None


class KitCard(NamedTuple):
    """A kit that runs, as the page shows it."""

    name: str
    doc: str
    route_count: int
    key_count: int
    stores: str  # where its families live, where that is not the default
    examples: Sequence[Example]


def render_start_page(state: Any, problems: Mapping[str, str | None], header: PageHeader | None) -> str:
    """The page as HTML. `problems` says of each role and of `TABLES` why it does not answer.

    Strangers see it in production, so there it says whether the stores answer, and nothing else of them.
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
    """Each store once, with all its roles. One that is not open yet has no URL that could be shown."""
    roles: dict[str, list[str]] = {}
    for role, store in state.stores.items():
        roles.setdefault(store.url, []).append(role)
    rows = [StoreRow(", ".join(names), url, problems.get(names[0])) for url, names in roles.items()]
    if state.tables is not None:
        rows.append(StoreRow("tables", state.tables.url, problems.get(TABLES)))
    return rows or [StoreRow("default", "", problems.get("default"))]


def _states(problems: Mapping[str, str | None]) -> list[StoreRow]:
    """Whether each role is answered, without a word on where and why not."""
    return [StoreRow(role.strip(), "", problem) for role, problem in problems.items()]


def _card(kit: Kit, state: Any) -> KitCard:
    roles = sorted({family.role for family in kit.keyspace.families.values()} & state.settings.stores.keys())
    is_open = kit.name in state.kits
    examples = [one for one in kit.examples if is_open and one.is_there(state.kits[kit.name])]
    return KitCard(
        kit.name, kit.doc, state.route_counts[kit.name], len(kit.keyspace.families), ", ".join(roles), examples
    )

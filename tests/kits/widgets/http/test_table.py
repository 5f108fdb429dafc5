"""The table of actions fits the services that it calls, and the API page tells all of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from keystead.kits.widgets.routes.actions import ADMIN, ENDPOINTS, Action, Call, Endpoint
from keystead.kits.widgets.service import Admin, Boards, Counters, Likes, Rankings, Welcomes
from tests.kits.widgets.http.visiting import Running

CLASSES: dict[str, type[Any]] = {
    "counters": Counters,
    "likes": Likes,
    "rankings": Rankings,
    "boards": Boards,
    "welcomes": Welcomes,
    "admin": Admin,
}
# As the tables of both eras have them, and those that the document calls not yet implemented.
ACTIONS = {
    "/api/visit": "create increment display get set update updateSettings delete batchCreate batchGet sumByPrefix",
    "/api/like": "create toggle get display set update updateSettings delete batchCreate batchGet sumByPrefix",
    "/api/ranking": "create submit update remove clear updateSettings get display delete",
    "/api/bbs": "create post get display editMessageById deleteMessageById editMessage deleteMessage update remove "
    "clear updateSettings delete",
    "/api/yokoso": "create get display update delete",
    "/api/admin/cleanup": "cleanup autoCleanup cleanupByUrl",
}
EVERY = [(endpoint, action) for endpoint in (*ENDPOINTS, ADMIN) for action in endpoint.actions.values()]
CALLS = [
    (endpoint, action, call)
    for endpoint, action in EVERY
    for call in (*action.calls, *((action.plain,) if action.plain else ()))
]


def test_every_action_of_both_eras_is_there() -> None:
    assert {endpoint.path: set(endpoint.actions) for endpoint in (*ENDPOINTS, ADMIN)} == {
        path: set(names.split()) for path, names in ACTIONS.items()
    }


@pytest.mark.parametrize(("endpoint", "action", "call"), CALLS, ids=lambda one: getattr(one, "name", ""))
def test_what_an_action_passes_is_what_its_method_takes(endpoint: Endpoint, action: Action, call: Call) -> None:
    method = getattr(CLASSES[endpoint.name], call.method)
    given = {one.name: "x" for one in (*call.needs, *call.takes)}
    owner = ("owner",) if call.owner else ()
    inspect.signature(method).bind("self", *owner, **call.keywords(given), visitor="visitor")
    needed = {one.name: "x" for one in call.needs}
    inspect.signature(method).bind("self", *owner, **call.keywords(needed), visitor="visitor")


@pytest.mark.parametrize(("endpoint", "action"), EVERY, ids=lambda one: one.name)
def test_one_name_means_one_parameter(endpoint: Endpoint, action: Action) -> None:
    for call in action.calls:
        names = [name for one in call.parameters for name in one.names]
        assert len(names) == len(set(names))


async def test_the_api_page_tells_every_action_with_its_parameters_and_an_example(site: Running) -> None:
    paths = site.app.openapi()["paths"]
    for endpoint, action in EVERY:
        get, post = paths[endpoint.path]["get"], paths[endpoint.path]["post"]
        assert action.name in get["parameters"][0]["schema"]["enum"]
        assert f"`{action.name}`: {action.doc}" in get["description"]
        content = post["requestBody"]["content"]["application/json"]
        [form] = [one for one in content["schema"]["oneOf"] if one["title"] == action.name]
        assert form["properties"].keys() == {"action", *action.parameters}
        assert content["examples"][action.name]["value"].keys() <= form["properties"].keys()
        in_query = {one["name"] for one in get["parameters"] if one["in"] == "query"}
        secrets = {name for name, one in action.parameters.items() if one.header}
        assert action.parameters.keys() - secrets - {"items"} <= in_query
        assert not secrets & in_query

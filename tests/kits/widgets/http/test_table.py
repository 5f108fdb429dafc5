"""The table of actions matches the services, and the API page documents it."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from keystead.kits.widgets.routes.actions import ADMIN, ENDPOINTS, Action, Call, Endpoint
from keystead.kits.widgets.routes.requests import names_of
from keystead.kits.widgets.service.admin import Admin
from keystead.kits.widgets.service.boards import Boards
from keystead.kits.widgets.service.counters import Counters
from keystead.kits.widgets.service.likes import Likes
from keystead.kits.widgets.service.rankings import Rankings
from keystead.kits.widgets.service.welcomes import Welcomes
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
EVERY = [(endpoint, name, action) for endpoint in (*ENDPOINTS, ADMIN) for name, action in endpoint.actions.items()]
CALLS = [(endpoint, call) for endpoint, _, action in EVERY for call in action.calls]


def test_every_original_action_exists() -> None:
    assert {endpoint.path: set(endpoint.actions) for endpoint in (*ENDPOINTS, ADMIN)} == {
        path: set(names.split()) for path, names in ACTIONS.items()
    }


@pytest.mark.parametrize(("endpoint", "call"), CALLS, ids=lambda one: getattr(one, "name", one))
def test_every_action_fits_the_signature_of_its_method(endpoint: Endpoint, call: Call) -> None:
    method = getattr(CLASSES[endpoint.name], call.method)
    for given in (call.parameters, call.required):
        values = dict.fromkeys(endpoint.request.model_fields) | dict.fromkeys(given, "x")
        arguments = call.arguments(SimpleNamespace(**values, model_fields_set=set(given)))
        assert ("owner" in arguments) == call.is_by_owner
        inspect.signature(method).bind("self", **arguments, visitor="visitor")


@pytest.mark.parametrize(("endpoint", "name", "action"), EVERY, ids=lambda one: getattr(one, "name", one))
def test_action_parameters_belong_to_their_endpoint(endpoint: Endpoint, name: str, action: Action) -> None:
    assert set(action.parameters) <= endpoint.request.model_fields.keys()
    for call in action.calls:
        assert len(call.parameters) == len(set(call.parameters))
        assert not call.when or call.when in call.required


def test_one_name_means_one_parameter() -> None:
    for endpoint in (*ENDPOINTS, ADMIN):
        names = names_of(endpoint.request)
        assert set(names.field.values()) == names.shown.keys() == endpoint.request.model_fields.keys()
        assert all(names.field[name] == field for field, name in names.shown.items())
        for action in endpoint.actions.values():
            given = [name for name, field in names.field.items() if field in action.parameters]
            assert len(given) == len(set(given)) >= len(action.parameters)


async def test_the_api_page_documents_every_action(site: Running) -> None:
    paths = site.app.openapi()["paths"]
    for endpoint, name, action in EVERY:
        get, post = paths[endpoint.path]["get"], paths[endpoint.path]["post"]
        names = names_of(endpoint.request)
        parameters = {one for one, field in names.field.items() if field in action.parameters}
        assert name in get["parameters"][0]["schema"]["enum"]
        assert f"`{name}`: {action.doc}" in get["description"]
        content = post["requestBody"]["content"]["application/json"]
        [form] = [one for one in content["schema"]["oneOf"] if one["title"] == name]
        assert form["properties"].keys() == {"action", *parameters}
        assert content["examples"][name]["value"].keys() <= form["properties"].keys()
        in_query = {one["name"] for one in get["parameters"] if one["in"] == "query"}
        secrets = {names.shown[field] for field in names.secrets} & parameters
        assert parameters - secrets - {"items"} <= in_query
        assert not secrets & in_query

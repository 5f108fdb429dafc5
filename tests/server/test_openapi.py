"""The OpenAPI document is tested against the server, with valid and invalid input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from keystead.kits.login import service as login
from keystead.kits.membership import service as membership
from keystead.kits.sessiondata import service as sessiondata
from keystead.kits.sharing import service as sharing
from keystead.kits.teamwork import service as teamwork
from keystead.kits.widgets import service as widgets
from tests.serving import Keystead, keystead_serving

# Without limits, or most requests would only meet them.
LIMITLESS = {
    f"KEYSTEAD_{kit}__LIMITS__{name}".upper(): "0"
    for kit, limits in (
        ("login", login.LIMITS),
        ("sharing", sharing.LIMITS),
        ("membership", membership.LIMITS),
        ("teamwork", teamwork.LIMITS),
        ("widgets", widgets.LIMITS),
        ("sessiondata", sessiondata.LIMITS),
    )
    for name in limits
}
# Where the document of the kit has status 400 for a text that is none of its tokens, names or times.
PARTICULAR = ("sharing", "membership", "widgets")
TRIED_AT_LEAST = {GenerationMode.POSITIVE: 48, GenerationMode.NEGATIVE: 34}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("openapi"), **LIMITLESS) as running:
        yield running


@pytest.mark.parametrize(
    ("mode", "examples", "one_in"),
    [
        pytest.param(GenerationMode.NEGATIVE, 2, 4, id="negative-few"),
        pytest.param(GenerationMode.NEGATIVE, 20, 1, id="negative-many", marks=pytest.mark.matrix),
        pytest.param(GenerationMode.POSITIVE, 20, 1, id="positive-many", marks=pytest.mark.matrix),
    ],
)
def test_no_request_makes_a_server_error_and_every_answer_is_described(
    server: Keystead, mode: GenerationMode, examples: int, one_in: int
) -> None:
    api = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in api.get_all_operations() if isinstance(found, Ok)]
    tried = 0
    for operation in operations[::one_in]:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def holds(case: Case[Any]) -> None:
            response = case.call()
            assert response.status_code < 500, f"{case.as_curl_command()} -> {response.status_code} {response.text}"
            is_particular = set(PARTICULAR) & set(case.operation.definition.raw["tags"])
            is_picture = response.headers.get("content-type") == ["image/svg+xml"]
            case.validate_response(
                response,
                excluded_checks=[
                    *((positive_data_acceptance,) if is_particular else ()),
                    # An <img> that asks wrongly shows a picture that says so.
                    *((negative_data_rejection,) if is_picture else ()),
                ],
            )

        try:
            holds()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE, operation.label  # it takes nothing that could be wrong
        else:
            tried += 1
    assert tried >= TRIED_AT_LEAST[mode] // one_in, tried

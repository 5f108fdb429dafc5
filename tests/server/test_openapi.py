"""The OpenAPI document against the server that it describes: each operation is tried with what it takes, and more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok

from tests.serving import Keystead, keystead_serving

# Without limits, or most requests would only meet them.
LIMITLESS = {
    f"KEYSTEAD_LOGIN__LIMITS__{name}": "0"
    for name in ("START", "CALLBACK", "CLAIM", "ME", "CSRF", "LOGOUT", "SESSIONS")
}
TRIED_AT_LEAST = {GenerationMode.POSITIVE: 15, GenerationMode.NEGATIVE: 6}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("openapi"), **LIMITLESS) as running:
        yield running


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
def test_no_request_makes_a_server_error_and_every_answer_is_described(server: Keystead, mode: GenerationMode) -> None:
    api = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in api.get_all_operations() if isinstance(found, Ok)]
    tried = 0
    for operation in operations:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def holds(case: Case[Any]) -> None:
            response = case.call()
            assert response.status_code < 500, f"{case.as_curl_command()} -> {response.status_code} {response.text}"
            case.validate_response(response)

        try:
            holds()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE, operation.label  # it takes nothing that could be wrong
        else:
            tried += 1
    assert tried >= TRIED_AT_LEAST[mode]

"""Django: values of the cache, and Django's own tests of caches and sessions."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import django
import pytest
from django.utils.safestring import SafeString, mark_safe
from hypothesis import given
from hypothesis import strategies as st

from keystead.errors import BadValue, Unreadable
from keystead.integrations.django.value_codec import CachedValueCodec
from tests import servers
from tests.every_store import EVERY, mariadb_server, on_urls, postgres_server, redis_server, urls
from tests.integrations.source_distributions import installed_package, unpacked_source

__all__ = ["mariadb_server", "postgres_server", "redis_server", "urls"]

CODEC = CachedValueCodec()
SUITE = Path(__file__).parent / "django_own_suite.py"
REQUESTS = Path(__file__).parent / "django_requests.py"

GUIDE = Path(__file__).parents[2] / "docs/django.md"

INSTALLED = str(django.__version__)
# The oldest that is supported, that before the newest, and the newest for this interpreter.
VERSIONS = sorted({*(["4.2.30"] if sys.version_info < (3, 13) else []), "5.2.19", INSTALLED})

NO_PICKLE = "values are JSON, never pickle: reading a cache must not run code"
DEVIATIONS = {
    "test_add_fail_on_pickleerror": f"{NO_PICKLE}; a type that cannot be stored is BadValue, not PickleError",
    "test_set_fail_on_pickleerror": f"{NO_PICKLE}; a type that cannot be stored is BadValue, not PickleError",
    "test_data_types": f"{NO_PICKLE}; functions and classes are refused",
    "test_cache_read_for_model_instance": f"{NO_PICKLE}; models are refused",
    "test_cache_read_for_model_instance_with_deferred": f"{NO_PICKLE}; query sets are refused",
    "test_cache_write_for_model_instance_with_deferred": f"{NO_PICKLE}; query sets are refused",
    "test_empty_session_saved": "it reads the table of Django's database sessions",
}
DEVIATIONS_SINCE_5 = {"test_create_and_save_async": "it calls a synchronous method in an event loop, which is refused"}
SKIPPED = {"test_cull", "test_cull_delete_when_store_empty", "test_zero_cull"}  # as for Redis in Django's own suite


# --- values --------------------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(ZoneInfo("Europe/Berlin")))
    | st.timedeltas()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.just("$"), inner, max_size=3)
        | st.frozensets(scalars, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_a_cached_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    back = CODEC.decode(CODEC.encode([value], "k"), "k")
    assert back == [value]
    assert _spelled(back) == _spelled([value])


def _spelled(value: Any) -> str:
    """Its `repr`, with the members of sets in a fixed order."""
    match value:
        case frozenset():
            return f"frozenset({sorted(map(_spelled, value))})"
        case list() | tuple():
            return f"{type(value).__name__}({[_spelled(one) for one in value]})"
        case dict():
            return f"dict({[(_spelled(key), _spelled(one)) for key, one in value.items()]})"
        case _:
            return repr(value)


def test_types_that_equality_does_not_tell_apart_come_back_too() -> None:
    given = [
        {1, 2},
        (True, 1),
        mark_safe("<b>"),
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    ]
    back = CODEC.decode(CODEC.encode(given, "k"), "k")
    assert back == given
    assert type(back[2]) is SafeString
    assert back[3].fold == 1
    assert back[3].tzinfo.key == "Europe/Berlin"
    assert math.isnan(CODEC.decode(CODEC.encode(math.nan, "k"), "k"))
    assert CODEC.encode(5, "k") == b"5", "the store adds to plain digits"


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize("value", [object(), len, Colour.RED, [Colour.RED], type("Sub", (dict,), {})()])
def test_a_type_that_would_come_back_as_another_is_refused(value: Any) -> None:
    with pytest.raises(BadValue, match="cannot be cached"):
        CODEC.encode(value, "k")


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(BadValue, match="nested too deeply"):
        CODEC.encode(value, "k")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80\x04K\x05.",  # a pickle
        b"NaN",
        b'{"$":"os.system","v":"id"}',
        b'{"$":"response","v":{"class":"Popen"}}',
        b'{"$":["list"],"v":1}',
        b'{"$":"bytes","v":"?"}',
        b'{"$":"decimal","v":"one"}',
        b'{"$":"datetime","v":["2026-01-01T00:00:00","../../etc/passwd",0]}',
        b"[" * 100_000,
    ],
)
def test_bytes_that_the_cache_did_not_write_are_unreadable_and_run_nothing(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        CODEC.decode(raw, "k")


# --- Django's own tests --------------------------------------------------------------------------------------


def with_django(version: str) -> dict[str, str]:
    """The environment of a process that has this version of Django."""
    paths = [] if version == INSTALLED else [str(installed_package("django", version))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
@pytest.mark.parametrize("version", VERSIONS)
def test_djangos_own_tests_pass_but_for_the_stated_deviations(
    version: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/suite.db"
    else:
        server: servers.Server = request.getfixturevalue(f"{kind}_server")
        url = server.url
    command = [sys.executable, str(SUITE), str(unpacked_source("django", version)), url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=with_django(version), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    deviations = DEVIATIONS if version.startswith("4.") else DEVIATIONS | DEVIATIONS_SINCE_5
    failed = {name.split(" ")[0]: text for name, text in report["failed"].items()}
    assert {name: text for name, text in failed.items() if name not in deviations} == {}
    assert failed.keys() == deviations.keys(), "a deviation is none any more: remove it from the list"
    assert set(report["skipped"]) == SKIPPED
    ran, skipped = report["ran"], len(report["skipped"])
    row = f"| {report['version']} | {ran} | {ran - skipped - len(failed)} | {skipped} | {len(failed)} |"
    assert (report["version"], row in GUIDE.read_text("utf-8").splitlines()) == (version, True), row


def test_the_guide_names_each_deviation_from_djangos_own_tests() -> None:
    text = GUIDE.read_text("utf-8")
    names = [*DEVIATIONS, *DEVIATIONS_SINCE_5, *SKIPPED]
    assert [name for name in names if f"`{name}`" not in text] == []


# --- real requests -------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("version", VERSIONS)
def test_real_requests_to_cached_and_limited_views(version: str) -> None:
    """The tests of `django_requests.py`, in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(REQUESTS)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=REQUESTS.parents[2], env=with_django(version)
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- two requests at once ------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
def test_in_every_order_of_two_requests_no_ended_session_is_revived_and_no_update_is_lost(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}"}
    url = urls.get(kind) or request.getfixturevalue("redis_server").url
    orders = run_interleavings(url)
    assert len(orders) == 17
    assert min(orders.values()) >= 3
    assert run_interleavings(url, "http")["http"] >= 15


def run_interleavings(*arguments: str) -> dict[str, int]:
    command = [sys.executable, "-W", "error::ResourceWarning", "-m", "tests.integrations.django_interleavings"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    orders: dict[str, int] = json.loads(done.stdout)
    return orders


@pytest.mark.matrix
def test_ten_thousand_visits_of_bots_leave_no_key(redis_server: servers.Server) -> None:
    redis_server.ask("FLUSHALL")
    assert run_interleavings(redis_server.url, "bots") == {"keys": 0}


@pytest.mark.matrix
@on_urls(*EVERY)
def test_a_cart_filled_in_two_tabs_at_once_survives_sign_in(urls: dict[str, str], tmp_path: Path) -> None:
    url = urls["default"]
    found = run_interleavings(f"sqlite:///{tmp_path}" if url.startswith("sqlite") else url, "cart")
    assert found.keys() == {"apple", "first", "pear"}

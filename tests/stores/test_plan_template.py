"""A template plans the same steps as planning them anew, or refuses."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import pytest

from keystead.errors import CommandError
from keystead.stores.atomic_steps import PlanTemplate
from keystead.stores.store_contract import Planned, Step, at_most, field_holds, holds, plan, required, store_ms

Make = Callable[..., Sequence[Step]]


def _parts(planned: list[Planned]) -> list[Any]:
    return [
        (one.call.spec.name, list(one.call.args), one.call.options, *astuple(one)[1:4], one.times) for one in planned
    ]


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (lambda key, value, at: [("SET", key, value, "PXAT", at, "NX"), ("PEXPIREAT", key, at, "GT")], [2]),
        (lambda key, value, at: [("EXPIRE", key, at), ("SET", "fixed", value, "EX", at)], [2]),
        (lambda key, value, at: [required(("INCRBY", key, at)), ("HINCRBY", "h", value, at), holds(key, at)], [2]),
        (lambda key, value, at: [("ZADD", key, at, value), field_holds("h", value, at)], [2]),
        (lambda key, value, at: [("ZADD", key, 1, value), at_most(("ZSCORE", key, value), 9), ("GET", at)], []),
        (lambda key, value, at: [("SET", key, value, "PXAT", store_ms(5)), ("MGET", key, at)], []),
    ],
)
def test_a_template_plans_what_planning_anew_does(make: Make, numbers: list[int]) -> None:
    template = PlanTemplate(make, 3, numbers)
    for given in ((b"a", b"b", b"1"), (b"\xff", b"", b"2000000000"), (b"12345000002", b"keystead", b"9000000000")):
        assert _parts(template.fill(given)) == _parts(plan(make(*given)))


@pytest.mark.parametrize(
    "make",
    [
        lambda key, at: [at_most(("GET", key), int(at))],
        lambda key, at: [("SET", key, b"at " + at)],
        lambda key, at: [("SET", key, int(at) + 1)],
        lambda key, at: [("ZADD", "z", key, at)],  # not a number: a key
    ],
)
def test_steps_with_arguments_in_other_places_have_no_template(make: Make) -> None:
    with pytest.raises(CommandError):
        PlanTemplate(make, 2, [1])


def test_a_number_that_is_none_is_refused_as_by_planning_anew() -> None:
    def make(key: bytes, at: bytes) -> list[Step]:
        return [("PEXPIREAT", key, at)]

    template = PlanTemplate(make, 2, [1])
    for at in (b"soon", b"1.5", b"99999999999999999999"):
        with pytest.raises(CommandError) as anew:
            plan(make(b"a", at))
        with pytest.raises(CommandError) as filled:
            template.fill((b"a", at))
        assert str(filled.value) == str(anew.value)

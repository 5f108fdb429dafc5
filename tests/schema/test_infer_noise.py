"""`infer` on random noise invents nothing that it calls sure; on the same values under real keys it is sure."""

from __future__ import annotations

import asyncio
import json
import random
import string
from collections.abc import Callable
from typing import Any

import pytest

from keystead import connect
from keystead.schema.check import check
from keystead.schema.infer import Inferred, infer
from tests.schema.drafted_keyspace import keyspace_of

_KEYS = 600
_TEXT = (
    "account air area back body book business car case change child city company country day door education end face "
    "family father force friend game girl group hand head health history home hour house idea information job kid law "
    "level life line lot man member minute moment money month morning mother name night number office order part "
    "party person place point power president problem program question reason research result right room school side "
    "state story student study system teacher team thing time war water way week woman word work world year"
)
_WORDS = _TEXT.split()

Draw = Callable[[random.Random], str]


def _letters(letters: str) -> Draw:
    return lambda draw: "".join(draw.choice(letters) for _ in range(draw.randint(1, 30)))


def _words(delimiters: str, ids: float) -> Draw:
    """Words one after the other, some of them numbers instead."""

    def piece(draw: random.Random) -> str:
        text = str(draw.getrandbits(draw.randint(1, 40))) if draw.random() < ids else draw.choice(_WORDS)
        return text + draw.choice(delimiters)

    return lambda draw: "".join(piece(draw) for _ in range(draw.randint(1, 5)))


NOISE: dict[str, Draw] = {
    "hex": _letters("0123456789abcdef"),
    "hex and colons": _letters("0123456789abcdef::"),
    "letters": _letters(string.ascii_lowercase),
    "letters and colons": _letters(string.ascii_lowercase + ":::"),
    "digits": _letters(string.digits),
    "digits and colons": _letters(string.digits + "::"),
    "letters and digits": _letters(string.ascii_letters + string.digits),
    "slashes": _letters(string.ascii_lowercase + string.digits + "///"),
    "all delimiters": _letters("ab1:/-_.#|@+=~{}"),
    "strange characters": _letters("abcdefghijklmnopqrstuvwxyzABCDEFXYZ0123456789:::--__..//{}%[]\"'\\\n é"),
    "words": _words(":", 0),
    "words and numbers": _words(":/-_.", 0.2),
}


def _any_value(draw: random.Random) -> str:
    """Readable values of all types: numbers, JSON, text."""
    kinds: list[Callable[[], Any]] = [
        lambda: draw.getrandbits(draw.randint(1, 60)),
        lambda: draw.random() * 1000,
        lambda: draw.choice([True, False]),
        lambda: [draw.getrandbits(9) for _ in range(draw.randint(0, 5))],
        lambda: {draw.choice(_WORDS): draw.choice([1, "x", None, [1], True]) for _ in range(draw.randint(0, 5))},
    ]
    return _text(draw) if draw.random() < 0.3 else json.dumps(draw.choice(kinds)())


def _text(draw: random.Random) -> str:
    return " ".join(draw.choice(_WORDS) for _ in range(draw.randint(1, 6)))


def _number(draw: random.Random) -> str:
    return str(draw.randrange(10_000))


def drafted(key: Draw, value: Draw, expiring: float, seed: object) -> Inferred:
    """The draft of a store with such keys and values. A part of the keys has deadlines."""
    draw = random.Random(f"{seed}")
    commands: list[tuple[Any, ...]] = []
    for name in sorted({key(draw) for _ in range(_KEYS)}):
        deadline = ("PX", draw.randint(10_000, 10**9)) if draw.random() < expiring else ()
        commands.append(("SET", name, value(draw), *deadline))

    async def look() -> Inferred:
        async with connect("memory://") as store:
            await store.run(commands)
            return await infer(store)

    return asyncio.run(look())


def sure(found: Inferred) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.pattern, one.evidence) for one in found.draft.families if one.confidence == "sure"]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(2, 5))])
@pytest.mark.parametrize("keys", NOISE)
def test_nothing_in_random_noise_is_called_sure(keys: str, seed: int) -> None:
    """Neither if all values agree, in their type and in that they have a deadline or none."""
    for value, expiring in ((_any_value, 0.4), (_text, 0.0), (_number, 1.0)):
        found = drafted(NOISE[keys], value, expiring, f"{keys} {seed}")
        assert sure(found) == []
        assert check([keyspace_of(found)]) == []


@pytest.mark.parametrize("value", [_text, _number])
def test_the_same_values_under_real_keys_are_sure(value: Draw) -> None:
    """So the test above does not hold because of its values."""
    [(pattern, evidence)] = sure(drafted(lambda draw: f"item:{draw.getrandbits(64):016x}", value, 0.0, "real"))
    assert pattern == "item:{item_id:hex}"
    assert evidence[0].startswith("600 keys, ")

"""Grouping keys by shape in bounded memory: what happens to words that are too many."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from keystead.schema import key_shapes as module
from keystead.schema.key_shapes import MOST_WORDS, KeyShapes, Tally

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def word(number: int) -> str:
    """A different word for each number: four letters or more, no id."""
    number, text = number + 26**3, ""
    while number:
        number, letter = divmod(number, 26)
        text += _LETTERS[letter]
    return text


def grouped(keys: Callable[[int], str], count: int) -> KeyShapes[Tally]:
    shapes = KeyShapes(Tally)
    for number in range(count):
        tally = shapes.add(keys(number))
        assert tally is not None
        tally.count += 1
    return shapes


def counts(shapes: KeyShapes[Tally]) -> dict[str, int]:
    return {shape.text: shape.leaf.count for shape in shapes.shapes()}


def test_words_are_literals_until_there_are_too_many_at_one_place() -> None:
    few = counts(grouped(lambda number: f"{word(number % MOST_WORDS)}:{number}", 2 * MOST_WORDS))
    assert set(few.values()) == {2}
    assert len(few) == MOST_WORDS
    many = counts(grouped(lambda number: f"{word(number)}:{number}", MOST_WORDS + 1))
    assert many == {"{alnum}:{int}": MOST_WORDS + 1}


def test_words_below_one_that_are_too_many_leave_other_places_alone() -> None:
    shapes = grouped(lambda number: f"user:{word(number)}:cart" if number % 2 else f"state:{word(number % 10)}", 1_000)
    assert counts(shapes) == {"user:{alnum}:cart": 500, **{f"state:{word(number)}": 100 for number in range(0, 10, 2)}}


# Keys whose shapes would be as many as they are, or a large part of them.
WORDY: dict[str, Callable[[int], str]] = {
    "one place": word,
    "two places": lambda number: f"{word(number % 180)}:{word(number)}",
    "three places": lambda number: f"{word(number % 150)}:{word(number // 150 % 150)}:{word(number // 7)}",
    "six places": lambda number: ":".join(word((number * 7_919 >> place) % 97) for place in range(6)),
    "words and ids": lambda number: f"{word(number % 180)}-{number}:{word(number % 170)}:{word(number * 31 % 190)}",
}


@pytest.mark.parametrize("keys", WORDY)
def test_nodes_are_thinned_out_and_no_key_is_lost(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NODES", 500)
    shapes = grouped(WORDY[keys], 4_000)
    assert shapes._nodes < 1_000
    assert sum(counts(shapes).values()) == 4_000


def test_a_shape_that_was_there_before_thinning_still_counts_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NODES", 500)
    draw = random.Random(4)

    def key(number: int) -> str:
        return f"order:{number}" if number % 4 == 0 else f"{word(draw.randrange(150))}:{word(draw.randrange(150))}:x"

    assert counts(grouped(key, 8_000)) == {"{alnum}:{alnum}": 2_000, "{alnum}:{alnum}:x": 6_000}


@pytest.mark.matrix
@pytest.mark.parametrize("keys", WORDY)
def test_three_hundred_thousand_words_need_little_memory(keys: str) -> None:
    tracemalloc.start()
    try:
        shapes = grouped(WORDY[keys], 300_000)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 30_000_000
    assert sum(counts(shapes).values()) == 300_000

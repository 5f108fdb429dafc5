"""Prepared steps: planned once and run many times with different keys and values.

Compiled procedures are made of them, see `compiled_procedure`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import astuple
from typing import Any, Generic, NamedTuple, TypeVar

from keystead.errors import BadDeclaration, Unreadable
from keystead.schema.family import Bound
from keystead.schema.lifetime import After, Never, Sliding, Until
from keystead.schema.operation import Operation
from keystead.schema.operation_batch import Done, stopped_batch
from keystead.schema.steps import Steps
from keystead.schema.unreadable import log_unreadable
from keystead.stores import AtMost, Call, Outcome, Required, Step, Store
from keystead.stores.store_contract import PROCEDURE

R = TypeVar("R")


class Place(NamedTuple):
    """In a template, the number of the argument that a word of a step stands for."""

    argument: int


PlaceOf = Callable[[type[Any] | None, Sequence[Any], int], int | None]


class StepTemplate(NamedTuple):
    """A step with places in its words. `kind` is the class of a guard; None: it is a command.

    The last word of a limit is the limit itself.
    """

    kind: type[Any] | None
    words: tuple[Any, ...]

    @classmethod
    def of(cls, step: Any, place_of: PlaceOf) -> StepTemplate:
        """The template of a step. `place_of` tells which argument the word at a position stands for, if any."""
        kind = None if isinstance(step, tuple | list | Call) else type(step)
        words = step.command if isinstance(step, AtMost | Required) else step
        if isinstance(words, Call):
            words = (words.spec.name, *words.args)
        elif not isinstance(words, tuple | list):
            words = astuple(step)
        if isinstance(step, AtMost):
            words = (*words, step.limit)
        places = [place_of(kind, words, at) for at in range(len(words))]
        filled = (word if place is None else Place(place) for word, place in zip(words, places, strict=True))
        return cls(kind, tuple(filled))

    def fill(self, arguments: Sequence[Any]) -> Step:
        words = [arguments[word.argument] if type(word) is Place else word for word in self.words]
        kind: Any = self.kind
        if kind is None:
            return words
        if kind is Required:
            return Required(words)
        return kind(words[:-1], words[-1]) if issubclass(kind, AtMost) else kind(*words)  # type: ignore[no-any-return]


class PreparedRun(Generic[R]):
    """The steps of a procedure, prepared in a store.

    remake   the operations of a call, made with its real keys: an error names them
    """

    def __init__(
        self,
        store: Store,
        steps: Steps[R],
        parts: Sequence[Sequence[Any]],
        templates: Sequence[StepTemplate],
        arguments: int,
        numbers: Collection[int],
        remake: Callable[[Any], Sequence[Operation[Any]]],
        name: str,
    ) -> None:
        def fill(*given: Any) -> list[Step]:
            filled = [int(one) if at in numbers else one for at, one in enumerate(given)] if numbers else given
            return [one.fill(filled) for one in templates]

        self._store = store
        self._operations = steps.operations
        self._parts = [list(part) for part in parts]
        self._remake = remake
        self._name = name
        self._run = store.prepared(fill, arguments, numbers)
        given = steps.given
        self._gives_each = isinstance(given, tuple)
        wanted = given if isinstance(given, tuple) else () if given is None else (given,)
        begins = [sum(map(len, parts[:place])) for place in range(len(parts) + 1)]
        places = [steps.operations.index(one) for one in wanted]
        self._given = [(at, begins[at], begins[at + 1]) for at in places]
        self._finish = [(begin, end, steps.operations[at].finish) for at, begin, end in self._given]

    async def __call__(self, given: Sequence[bytes], source: Any) -> Done[R]:
        """Run the steps with these arguments. One round trip. Raises Unreadable as the operations do.

        `source` is what `remake` makes the operations of this call from.
        """
        named = PROCEDURE.set(self._name)
        try:
            outcome = await self._run(*given)
        finally:
            PROCEDURE.reset(named)
        try:
            if outcome.stopped_at is None:
                replies = outcome.replies
                if not self._gives_each and len(self._finish) == 1:
                    begin, end, finish = self._finish[0]
                    return Done(finish(replies[begin:end]))
                values: list[Any] = []
                for begin, end, finish in self._finish:  # not a comprehension, which costs a call on Python 3.11
                    values.append(finish(replies[begin:end]))
                value: Any = tuple(values) if self._gives_each else None
                return Done(value)
            return stopped_batch(self._operations, self._parts, outcome)
        except Unreadable:
            return self._finish_remade(outcome, source)

    def _finish_remade(self, outcome: Outcome, source: Any) -> Done[R]:
        """The outcome, or the error, of operations with the real keys."""
        operations = self._remake(source)
        for one in operations:
            one.close()
        try:
            if not outcome:
                return stopped_batch(operations, self._parts, outcome)
            values = tuple(operations[at].finish(outcome.replies[begin:end]) for at, begin, end in self._given)
            value: Any = values if self._gives_each else values[0]
            return Done(value)
        except Unreadable as error:
            log_unreadable(self._store, error)
            raise


class Prepared(Generic[R]):
    """Steps that are planned once, with keys whose names differ from call to call.

        count = Prepared([keys.hits], lambda hits: Steps(hits.at_most(9), added := hits.increment()).giving(added))
        done = await count(b"hits:7")

    make    called once, with a key of each family, with `texts` texts that become members, and with the `values`
    values  pairs: a sample value to make the steps with, and its stored form. An integer stands for a positive number,
            such as a deadline in ms, which the caller checks. Nothing else in the steps may equal a sample

    A call takes the names of the keys, the texts and the stored values, all as bytes. Everything else, such as limits,
    is fixed. For parts whose steps are not a straight list, or whose keys are kept by name. Otherwise use a procedure,
    which is compiled as well.
    """

    def __init__(
        self,
        families: Sequence[Bound[Any]],
        make: Callable[..., Steps[R]],
        *,
        texts: int = 0,
        values: Sequence[tuple[Any, bytes | int]] = (),
        name: str = "",
    ) -> None:
        self._families = families
        self._make = make
        self._names = len(families) + texts
        self._values = [value for value, _ in values]
        names = [f"\x00place {number}\x00" for number in range(self._names)]
        stored = [form for _, form in values]
        takes_number = [isinstance(form, int) for form in stored]
        _refuse_varying_lifetimes(families, takes_deadline=any(takes_number))
        steps = self._steps_for(names)
        if any(one.follow is not None for one in steps.operations):
            raise BadDeclaration("a prepared step cannot have operations with upkeep, such as writes of listed records")
        parts = [one.in_batch() for one in steps.operations]
        numbers = [place for place, is_number in enumerate(takes_number, len(names)) if is_number]
        places = _places([*names, *stored])
        templates = [
            StepTemplate.of(step, lambda _, words, at: places.get(_word(words[at]))) for p in parts for step in p
        ]
        used = {word.argument for one in templates for word in one.words if type(word) is Place}
        if missing := set(places.values()) - used:
            raise BadDeclaration(f"arguments {sorted(missing)} of a prepared step are not in its steps as they are")
        store, arguments = families[0].store, len(names) + len(stored)
        self._run = PreparedRun(store, steps, parts, templates, arguments, numbers, self._remake, name)

    def __call__(self, *given: bytes) -> Coroutine[Any, Any, Done[R]]:
        """Run the steps as one atomic step, in one round trip. Raises Unreadable as the operations do."""
        return self._run(given, given)

    def _remake(self, given: Sequence[bytes]) -> Sequence[Operation[Any]]:
        return self._steps_for([name.decode() for name in given[: self._names]]).operations

    def _steps_for(self, names: Sequence[str]) -> Steps[R]:
        keys = [bound.family.verbs(bound, name) for bound, name in zip(self._families, names, strict=False)]
        return self._make(*keys, *names[len(keys) :], *self._values)


def _refuse_varying_lifetimes(families: Sequence[Bound[Any]], *, takes_deadline: bool) -> None:
    fixed = (After, Sliding, Never, Until) if takes_deadline else (After, Sliding, Never)
    for family in (bound.family for bound in families):
        if not isinstance(family.lifetime, fixed):
            raise BadDeclaration(f"{family.place}: its lifetime varies, so it cannot be prepared")


def _places(marks: Sequence[str | bytes | int]) -> Mapping[str | bytes | int, int]:
    """Which argument each word of a step stands for. A name may occur as text or as bytes."""
    places: dict[str | bytes | int, int] = {mark: place for place, mark in enumerate(marks)}
    return places | {mark.encode(): place for place, mark in enumerate(marks) if isinstance(mark, str)}


def _word(word: Any) -> Any:
    """A word that an argument may replace; None: it is something else, which may not be hashable."""
    return word if isinstance(word, str | bytes | int) else None

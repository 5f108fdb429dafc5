"""Type names for other languages: unique, and as short as possible."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def capitalize(name: str) -> str:
    """A name as types have it: `user_sessions` -> `UserSessions`, `Page[int]` -> `PageInt`."""
    joined = "".join(word[0].upper() + word[1:] for word in re.split(r"\W|_", name) if word)
    return joined if joined and not joined[0].isdigit() else f"T{joined}"


def short(keyspace: str) -> str:
    """The name of a keyspace in front of others: `LoginKeys` -> `Login`."""
    return capitalize(keyspace).removesuffix("Keys") or "Keys"


def choose_names(wanted: Mapping[T, Sequence[str]], reserved: Collection[str] = ()) -> dict[T, str]:
    """One unique name for each thing: its first choice, or a longer one to resolve a clash.

    All things have the same number of choices. If even the last ones clash, they are numbered.
    """
    names = {thing: choices[0] for thing, choices in wanted.items()}
    for choice in range(1, max(map(len, wanted.values()), default=0)):
        uses = Counter([*names.values(), *reserved, *reserved])
        names = {thing: name if uses[name] == 1 else wanted[thing][choice] for thing, name in names.items()}
    used = set(reserved)
    for thing, name in names.items():
        number = 2
        while names[thing] in used:
            names[thing] = f"{name}{number}"
            number += 1
        used.add(names[thing])
    return names

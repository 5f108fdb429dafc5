"""Schema versions of a stored object, and the upgraders from old ones to the current."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keystead.schema.codec.sentences import bad_version

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Versions:
    """The schema versions of a JSON object: `field` holds its version, and upgraders lead from old ones to `current`.

    `upgrades[1]` takes the plain dict of version 1 and returns that of version 2. An object without the field is of the
    `oldest` version. Writes always use `current`. A sealed field is still sealed in the dict: an upgrader may rename
    it. A plain value that is sealed in the new version goes through `unsealed`.
    """

    field: str
    current: int
    upgrades: Mapping[int, Upgrade]
    oldest: int = 1

    def __post_init__(self) -> None:
        if not self.field or type(self.current) is not int or type(self.oldest) is not int:
            raise bad_version(
                "versions need the name of a field and whole numbers", "write Versions('ver', 2, {1: ...})"
            )
        steps = set(range(self.oldest, self.current))
        if self.current < self.oldest or set(self.upgrades) != steps:
            wanted = ", ".join(map(str, sorted(steps))) or "none"
            raise bad_version(
                f"the upgrades do not lead from version {self.oldest} to {self.current}",
                f"give exactly one for each version in between: {wanted}",
            )


class VersionRefused(Exception):
    """Why the version of a stored value is refused; the message is completed with its key."""


def version_in(tree: dict[str, Any], versions: Versions) -> int | None:
    """The version of an object; None if it is not an integer."""
    version = tree.get(versions.field, versions.oldest)
    return version if type(version) is int else None


def upgrade(tree: dict[str, Any], version: int, versions: Versions) -> dict[str, Any]:
    """One step, from `version` to the next. Raises `VersionRefused`."""
    try:
        upgraded: Any = versions.upgrades[version](tree)
    except Exception as error:  # an upgrader may raise anything; its message may contain the value
        reason = f"failed with {type(error).__name__}"
    else:
        if isinstance(upgraded, dict):
            return upgraded
        reason = "did not return a dict"
    raise VersionRefused(f"is of version {version}, and its upgrade to version {version + 1} {reason}")

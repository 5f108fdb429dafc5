"""Errors in settings: each names the setting, its source, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError

from keystead.errors import KeysteadError, printable

CONFIG_FILE: Final = "keystead.toml"
SECRETS_FILE: Final = "keystead.secrets.toml"
PREFIX: Final = "KEYSTEAD_"

ADVICE: Final = {
    "store": "this is not the URL of a store; write one such as sqlite:///keystead.db",
    "stores": 'write a table of roles and URLs of stores, such as durable = "sqlite:///durable.db"',
    "database": "this is not the URL of a database; write one such as sqlite:///tables.db or postgresql://user@host/database",
    "host": "{given} is not an address; write one such as 127.0.0.1",
    "port": "{given} is not a number from 1 to 65535",
    "workers": "{given} is not a number from 1 to 256",
    "kits": "{given} is not a list of kits; write names such as login, separated by commas",
    "mode": "{given} is neither development nor production",
    "public_url": "write where browsers reach this server, such as https://example.com, without a path",
    "language": "{given} is none of en, ja and ko",
    "log_format": "{given} is neither text nor json",
    "log_level": "{given} is none of debug, info, warning and error",
    "max_body": "{given} is not a size; write one such as 500kB or 2MB",
    "request_timeout": "{given} is not a duration; write one with its unit, such as 500ms or 30s",
    "requests_at_once": "{given} is not a number of requests; write one such as 1000, or 0 for no limit",
    "header_timeout": "{given} is not a duration; write one with its unit, such as 500ms or 10s",
    "stop_timeout": "{given} is not a duration; write one with its unit, such as 500ms or 5s",
    "slow_call": "{given} is not a duration; write one with its unit, such as 500ms or 1s",
    "secrets_file": f"{{given}} is not the path of a file; write one such as {SECRETS_FILE}",
    "parameters": "{given} is not the path of a folder; write one such as App_Data/Parameters",
    "forwarded_allow": "{given} is not a list of addresses or networks; write some such as 127.0.0.1,10.0.0.0/8",
    "metrics": "{given} is neither true nor false",
}
FIELDS: Final = (*ADVICE, "seal_keys")
# Their values may contain secrets, so messages never repeat them.
_HIDDEN: Final = {"store", "stores", "database", "public_url"}


class WrongSettings(KeysteadError):
    """Invalid settings: one sentence for each, with its name, its source and what to write instead."""

    code = "wrong-settings"

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = tuple(sentences)


class MissingSettings(WrongSettings):
    """Settings that production needs and that are missing."""

    code = "missing-settings"

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(sentences)
        self.args = ("\n  - ".join(("production mode needs these settings:", *sentences)),)


@dataclass(frozen=True)
class SettingSource:
    """One source of settings."""

    values: Mapping[str, Any]
    flags: bool = False
    environment: bool = False
    file: str = ""
    named: Mapping[str, str] = field(default_factory=dict)  # dotted setting -> its place, if named differently
    secrets: bool = False
    exposed: str = ""  # who else can read or change the secrets file

    def place_of(self, path: tuple[str, ...]) -> str:
        """`--port`, `KEYSTEAD_PORT`, `port in keystead.toml`, `RetentionPeriod in Session.json`."""
        if self.flags:
            return _flag(path)
        if ".".join(path) in self.named:
            return self.named[".".join(path)]
        if self.environment:
            return PREFIX + "__".join(path).upper()
        return f"{'.'.join(path)} in {self.file}"

    def holds(self, path: tuple[str, ...]) -> bool:
        values: Any = self.values
        for part in path:
            if not isinstance(values, Mapping) or part not in values:
                return False
            values = values[part]
        return True


def describe_errors(
    error: ValidationError, sources: Sequence[SettingSource], values: Mapping[str, Any]
) -> Iterator[str]:
    """One sentence for each invalid setting."""
    seen = set()
    for wrong in error.errors(include_input=False, include_url=False, include_context=False):
        name = str(wrong["loc"][0])
        if name in seen:
            continue
        seen.add(name)
        place = place_of((name,), sources)
        if name == "seal_keys":
            yield f"{place}: {reword(wrong['msg'])}"
        elif name not in ADVICE:
            yield f"{place}: there is no such setting"
        else:
            given = printable(repr(values.get(name))) if name not in _HIDDEN else ""
            yield f"{place}: {ADVICE[name].format(given=given)}"


def place_of(path: tuple[str, ...], sources: Sequence[SettingSource]) -> str:
    """Where a setting came from; an unset one is named as in the file."""
    for length in range(len(path), 0, -1):
        for one in sources:
            if one.holds(path[:length]):
                return one.place_of(path if not one.flags else path[:length])
    return ".".join(path)


def _flag(path: tuple[str, ...]) -> str:
    if path[0] == "mode":
        return "--production/--development"
    return "--store" if path[0] == "stores" else f"--{path[0].replace('_', '-')}"


def reword(message: str) -> str:
    """Pydantic's message without its prefix and its name for the input."""
    message = message.removeprefix("Value error, ")
    return re.sub(r"^[A-Z]\w+ should", "this should", message).replace("Field required", "this must be set", 1)


def nearest(name: str, among: Sequence[str]) -> str:
    return next(iter(get_close_matches(name, among, 1)), "")


def unknown_setting(path: tuple[str, ...], near: str, sources: Sequence[SettingSource]) -> str:
    advice = f"did you mean {near}?" if near else "`keystead guide settings` lists all of them"
    return f"{place_of(path, sources)}: there is no such setting; {advice}"

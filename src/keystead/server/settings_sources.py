"""Sources of settings: flags, the environment, the secrets file, `keystead.toml` and the parameter files."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pydantic import BaseModel
from pydantic_settings import EnvSettingsSource, SettingsError

from keystead.kits import PARAMETERS
from keystead.server.secrets_file import read_secrets
from keystead.server.settings_errors import (
    ADVICE,
    CONFIG_FILE,
    FIELDS,
    PREFIX,
    SECRETS_FILE,
    SettingSource,
    WrongSettings,
    nearest,
    unknown_setting,
)

CONFIG_VARIABLE: Final = "KEYSTEAD_CONFIG"
_NEAR: Final = 0.8  # an environment variable this similar to a setting is a typo


def secrets_path(given: Path | None, store: str) -> Path:
    """The path of the secrets file: beside the database file, or in the working directory."""
    if given is not None:
        return given
    file = Path(unquote(store.removeprefix("sqlite:///").partition("?")[0]))
    return (file.parent if store.startswith("sqlite:///") else Path()) / SECRETS_FILE


def read_sources(flags: Mapping[str, Any], model: type[BaseModel]) -> list[SettingSource]:
    """All sources of settings, the strongest first."""
    given = _move_default(
        SettingSource({name: value for name, value in flags.items() if value is not None}, flags=True)
    )
    environment = _move_default(SettingSource(_read_environment(model), environment=True))
    config = _move_default(_read_config())
    parameters = _read_parameters(merge_sources([given, environment, config]))
    before = merge_sources([given, environment, config, parameters])
    path, store = before.get("secrets_file"), before.get("store")
    path = secrets_path(Path(path) if path else None, store if isinstance(store, str) else "")
    return [given, environment, _read_secrets(path), config, parameters]


def _move_default(source: SettingSource) -> SettingSource:
    """The source with `stores.default` moved to `store`: both name the same setting."""
    stores = source.values.get("stores")
    if not isinstance(stores, Mapping) or "default" not in stores:
        return source
    place = source.place_of(("stores", "default"))
    if "store" in source.values:
        places = f"{place} and {source.place_of(('store',))}"
        raise WrongSettings([f"{places}: both set the store of the role default; use one of them"])
    others = {role: url for role, url in stores.items() if role != "default"}
    values = {**source.values, "store": stores["default"], "stores": others}
    return dataclasses.replace(source, values=values, named={**source.named, "store": place})


def _read_parameters(before: Mapping[str, Any]) -> SettingSource:
    """The files in the folder `parameters`, the weakest source."""
    named = before.get("parameters")
    if not named or not isinstance(named, str | Path):
        return SettingSource({})
    module, _, function = PARAMETERS.partition(":")
    try:
        file, values, places = getattr(import_module(module), function)(Path(named), before)
    except ValueError as error:
        raise WrongSettings([f"parameters: {error}"]) from None
    return SettingSource(values, file=file, named=places)


def _read_secrets(path: Path) -> SettingSource:
    """The secrets file, if there is one. It may hold only secrets: others may be able to place it beside a database."""
    if not path.is_file():
        return SettingSource({})
    with _settings_errors(path):
        text, exposed = read_secrets(path)
        values = _check_names(tomllib.loads(text), path.name)
    source = SettingSource(values, file=path.name, secrets=True, exposed=exposed)
    if "tables" in values:  # kit tables are top-level; this one would be ignored
        raise WrongSettings([unknown_setting(("tables",), "", [source])])
    refuse_open_settings(source, ((name,) for name in values if name in FIELDS and name != "seal_keys"))
    return source


def refuse_open_settings(secrets: SettingSource, paths: Iterable[tuple[str, ...]], *table: str) -> None:
    """Raises `WrongSettings` for these paths in the secrets file, which are not secrets."""
    rule = "this file may only contain secrets; set it in"
    sentences = [
        f"{secrets.place_of((*table, *path))}: {rule} {CONFIG_FILE} or {PREFIX}{'__'.join((*table, *path)).upper()}"
        for path in paths
    ]
    if sentences:
        raise WrongSettings(sentences)


def _read_environment(model: type[BaseModel]) -> dict[str, Any]:
    for name in os.environ:
        setting = name.upper().removeprefix(PREFIX).lower()
        if not name.upper().startswith(PREFIX) or "__" in setting or setting in (*FIELDS, "config"):
            continue
        swapped = [one for one in FIELDS if sorted(one) == sorted(setting)]
        near = swapped or get_close_matches(setting, FIELDS, 1, _NEAR)
        if near:
            raise WrongSettings([f"{name}: there is no such setting; did you mean {PREFIX}{near[0].upper()}?"])
    try:
        values: dict[str, Any] = EnvSettingsSource(
            model,  # type: ignore[arg-type]  # it reads the fields of any model
            env_prefix=PREFIX,
            env_nested_delimiter="__",
            case_sensitive=False,
        )()
    except SettingsError:
        raise WrongSettings([f"{PREFIX}STORES: {ADVICE['stores']}"]) from None
    values.pop("tables", None)
    return values


def _read_config() -> SettingSource:
    """`keystead.toml`: the file that KEYSTEAD_CONFIG names, which must exist, or the one in the working directory."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or CONFIG_FILE)
    if not named and not path.is_file():
        return SettingSource({})
    with _settings_errors(path):
        values = _check_names(tomllib.loads(path.read_text("utf-8")), path.name)
    if "seal_keys" in values:
        raise WrongSettings(
            [f"seal_keys in {path.name}: this file may be shared; put keys in {SECRETS_FILE} or {PREFIX}SEAL_KEYS"]
        )
    return SettingSource(values, file=path.name)


@contextmanager
def _settings_errors(path: Path) -> Iterator[None]:
    """Convert errors in reading a file into `WrongSettings`."""
    try:
        yield
    except tomllib.TOMLDecodeError as error:
        # The message has a line, a column and perhaps a character; never a value.
        raise WrongSettings([f"{path.name} is not TOML: {error}"]) from None
    except UnicodeDecodeError:
        raise WrongSettings([f"{path.name} is not TOML: it is not UTF-8"]) from None
    except OSError as error:
        raise WrongSettings([f"{path}: cannot be read ({error.strerror or error})"]) from None


def _check_names(values: dict[str, Any], file: str) -> dict[str, Any]:
    """Raises `WrongSettings` for an unknown name. Tables pass: they belong to kits, which are not loaded yet."""
    for name, value in values.items():
        if name not in FIELDS and not isinstance(value, dict):
            raise WrongSettings([unknown_setting((name,), nearest(name, FIELDS), [SettingSource(values, file=file)])])
    return values


def merge_sources(sources: Sequence[SettingSource]) -> dict[str, Any]:
    """All settings merged, with the tables of kits under `tables`."""
    merged = merge_deep({}, *(one.values for one in reversed(sources)))
    tables = {name: merged.pop(name) for name in list(merged) if name not in FIELDS and isinstance(merged[name], dict)}
    given = tables.pop("tables", {})
    return {**merged, "tables": merge_deep(tables, given)} if tables or given else merged


def merge_deep(into: dict[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested tables into the first; later ones win."""
    for other in others:
        for name, value in other.items():
            old = into.get(name)
            if isinstance(old, Mapping) and isinstance(value, Mapping):
                value = merge_deep(dict(old), value)
            into[name] = value
    return into

"""The settings of one kit: its table in the files, and its environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from keystead.server.settings_errors import (
    PREFIX,
    SettingSource,
    WrongSettings,
    nearest,
    place_of,
    reword,
    unknown_setting,
)
from keystead.server.settings_sources import merge_deep, refuse_open_settings

if TYPE_CHECKING:
    from keystead.kits.kit import Kit


def kit_settings(kit: Kit, tables: Mapping[str, Mapping[str, Any]], sources: Sequence[SettingSource]) -> Any:
    """The settings of a kit: its table, overridden by its environment variables. Raises `WrongSettings`."""
    environment, named = _kit_environment(kit)
    all_sources = (SettingSource({kit.name: environment}, environment=True, named=named), *sources)
    table = merge_deep({}, tables.get(kit.name, {}), environment)
    unknown = [
        unknown_setting((kit.name, *path), near, all_sources) for path, near in _unknown_keys(kit.settings, table)
    ]
    if unknown:
        raise WrongSettings(unknown)
    for one in sources:
        if one.secrets:
            refuse_open_settings(one, _open_keys(kit.settings, one.values.get(kit.name, {})), kit.name)
    try:
        return kit.settings.model_validate(table)
    except ValidationError as error:
        raise WrongSettings(
            [
                f"{place_of((kit.name, *map(str, wrong['loc'])), all_sources)}: {reword(wrong['msg'])}"
                for wrong in error.errors(include_input=False, include_url=False, include_context=False)
            ]
        ) from None


def _unknown_keys(model: type[BaseModel], table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paths in a table that are not settings of the model, each with the nearest setting."""
    known = _annotations(model)
    for name, value in table.items():
        if name in known:
            for inner, path, deeper in _inner_tables(known[name], name, value):
                yield from (((*path, *rest), near) for rest, near in _unknown_keys(inner, deeper))
        elif model.model_config.get("extra") != "allow":
            yield (name,), nearest(name, list(known))


def _open_keys(model: type[BaseModel], table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The paths in a table that are not secrets."""
    known = _annotations(model)
    for name, value in table.items():
        if _inner_model(known.get(name))[0] is not None and isinstance(value, Mapping):
            for inner, path, deeper in _inner_tables(known[name], name, value):
                yield from ((*path, *rest) for rest in _open_keys(inner, deeper))
        elif not _is_secret(known.get(name)):
            yield (name,)


def _annotations(model: type[BaseModel]) -> dict[str, Any]:
    return {info.alias or name: info.annotation for name, info in model.model_fields.items()}


def _inner_tables(
    annotation: Any, name: str, value: Any
) -> Iterator[tuple[type[BaseModel], tuple[str, ...], Mapping[str, Any]]]:
    """The models that validate a table under this name, each with its path and its part of the table."""
    inner, by_name = _inner_model(annotation)
    if inner is None or not isinstance(value, Mapping):
        return
    if not by_name:
        yield inner, (name,), value
        return
    for key, deeper in value.items():
        if isinstance(deeper, Mapping):  # validation refuses anything else
            yield inner, (name, key), deeper


def _is_secret(annotation: Any) -> bool:
    return annotation in (SecretStr, SecretBytes) or any(map(_is_secret, get_args(annotation)))


def _inner_model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model of a table, and whether the table holds several such tables by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    arguments = get_args(annotation)
    if get_origin(annotation) in (dict, Mapping) and len(arguments) == 2:
        return _inner_model(arguments[1])[0], True
    for one in arguments:  # Annotated, and unions with None
        found = _inner_model(one)
        if found[0] is not None:
            return found
    return None, False


def _refuse_unknown_variables(kit: Kit) -> None:
    """Raises `WrongSettings` for `KEYSTEAD_LOGIN__CAPP`: with the prefix of the kit it is a typo."""
    prefix = f"{PREFIX}{kit.name.upper()}__"
    known = [name.upper() for name in _annotations(kit.settings)]
    if kit.settings.model_config.get("extra") == "allow":
        return
    for name in os.environ:
        setting, _, _ = name.upper().removeprefix(prefix).partition("__")
        if name.upper().startswith(prefix) and setting not in known:
            near = nearest(setting, known)
            advice = f"did you mean {prefix}{near}?" if near else "`keystead guide settings` lists all of them"
            raise WrongSettings([f"{name}: there is no such setting; {advice}"])


def _kit_environment(kit: Kit) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a kit in the environment, and the variables that are not named after their setting."""
    values: dict[str, Any] = {}
    named: dict[str, str] = {}
    for variable, setting in kit.environment.items():
        if os.environ.get(variable):  # empty counts as unset, as is common in container files
            named[f"{kit.name}.{setting}"] = variable
            *path, last = setting.split(".")
            inner = values
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = os.environ[variable]
    _refuse_unknown_variables(kit)
    try:
        own = EnvSettingsSource(
            kit.settings,  # type: ignore[arg-type]
            env_prefix=f"{PREFIX}{kit.name.upper()}__",
            env_nested_delimiter="__",
            case_sensitive=False,
        )()
    except SettingsError as error:
        raise WrongSettings([f"{PREFIX}{kit.name.upper()}__…: {error}"]) from None
    return merge_deep(values, own), named

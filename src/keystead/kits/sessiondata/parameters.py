"""Session.json and Kvs.json, the files with the settings of the document, read as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

__all__ = ["KVS", "SESSION", "SessionParameters", "key_value_store", "read_parameters", "session_parameters"]

SESSION: Final = "Session.json"
KVS: Final = "Kvs.json"

_RETENTION: Final = 1440  # minutes, where the file does not say
_INSTEAD: Final = 'or name the store itself in keystead.toml, as in store = "redis://user:password@host:6379/0"'

# A string is taken whole, so that what looks like a comment or a comma in it stays. So is one that has no end, and
# a comment without one: searched again from each of its characters, a broken file would take minutes.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*"?|/\*(?!.*?\*/).*)|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*"?)|,(?=\s*[}\]])', re.DOTALL)

_HOST = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_PORT, _TLS_PORT, _SENTINEL_PORT = 6379, 6380, 26379  # what the document's client takes where none is written

# The options of the document's client, by what they are to this one.
_KEPT: Final = frozenset(
    {"password", "user", "ssl", "defaultdatabase", "servicename", "connecttimeout", "synctimeout", "asynctimeout"}
)
_OF_NO_CONSEQUENCE: Final = frozenset(  # how that client is called, how it checks its connections, what it may do
    {
        *("abortconnect", "allowadmin", "channelprefix", "checkcertificaterevocation", "clientname", "configchannel"),
        *("configcheckseconds", "connectretry", "heartbeatinterval", "includeperformancecountersinexceptions"),
        *("includedetailinexceptions", "keepalive", "libname", "name", "preserveasyncorder", "protocol", "resolvedns"),
        *("responsetimeout", "setlib", "tiebreaker", "version", "writebuffer", "highprioritysocketthreads"),
        *("highintegrity", "heartbeatconsistencychecks"),
    }
)
_NOT_HERE: Final = frozenset({"proxy", "sslhost", "sslprotocols", "tunnel"})

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True)
class SessionParameters:
    """What Session.json says."""

    retention_minutes: int
    uses_key_value_store: bool


def read_parameters(folder: Path, before: Mapping[str, Any]) -> tuple[str, dict[str, Any], dict[str, str]]:
    """The settings in the files of this folder, and where each is written. `before`: what other settings say.

    Raises ValueError with a sentence that names the file.
    """
    session, stores = session_parameters(folder), before.get("stores")
    values: dict[str, Any] = {"sessiondata": {"retention": f"{session.retention_minutes}m"}}
    places = {"sessiondata.retention": f"RetentionPeriod in {SESSION}", "store": f"UseKeyValueStore in {SESSION}"}
    if "store" not in before:
        found = key_value_store(folder) if session.uses_key_value_store else None
        if found is not None:
            places["store"] = f"ConnectionStringForSession in {KVS}"
        store = found or (stores.get("durable") if isinstance(stores, Mapping) else None)
        if store:
            values["store"] = store
    return SESSION, values, places


def session_parameters(folder: Path) -> SessionParameters:
    """What Session.json in this folder says. Raises ValueError with a sentence that names the file."""
    found = _read(folder / SESSION)
    minutes = found.get("retentionperiod", _RETENTION)
    if type(minutes) is not int or minutes <= 0:
        raise ValueError(f"RetentionPeriod in {SESSION}: write a whole number of minutes, such as {_RETENTION}")
    uses = found.get("usekeyvaluestore", False)
    if type(uses) is not bool:
        raise ValueError(f"UseKeyValueStore in {SESSION}: write true or false")
    return SessionParameters(minutes, uses)


def key_value_store(folder: Path) -> str | None:
    """The URL of the store that Kvs.json in this folder names; None: its provider is the relational store.

    Raises ValueError with a sentence that names the file and never repeats what may be a secret.
    """
    found = _read(folder / KVS)
    provider = found.get("provider", "Redis")
    match provider.lower() if isinstance(provider, str) else provider:
        case "redis" | "":
            return _redis_url(found.get("connectionstringforsession"))
        case "rdb":
            return None
        case "memcached":
            raise ValueError(
                f"Provider in {KVS}: Memcached forgets sessions when it is full, and has no atomic steps; write Redis, "
                "or Rdb for the relational store"
            )
    raise ValueError(f"Provider in {KVS}: there is no such one here; write Redis, or Rdb for the relational store")


def _read(path: Path) -> dict[str, Any]:
    """The members of the object in a file by their names in small letters; those that are null are left out.

    As the document's own reader does, it takes comments, a comma after the last member, names in any case, and a byte
    order mark.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        text = data.decode(json.detect_encoding(data))
        plain = _LAST_COMMA.sub(_keep_match, _COMMENT.sub(_keep_match, text))
        found = json.loads(plain)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON: line {error.lineno} cannot be read") from None
    except (ValueError, RecursionError):  # no Unicode, or nested too deep
        raise ValueError(f"{path} is no JSON; save it as UTF-8") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: write an object, as in {{ }}")
    return {name.lower(): value for name, value in found.items() if value is not None}


def _keep_match(found: re.Match[str]) -> str:
    """A string as it is; of anything else, its lines only, so that what is wrong later has the same line."""
    return found[1] or "\n" * found[0].count("\n") or " "


def _redis_url(given: Any) -> str:
    """`host:6379,password=…,ssl=true,defaultDatabase=2`, as the URL of a store."""
    if given is None or given == "":
        raise _bad_string(f"{SESSION} wants a key-value store, so write where it is, such as localhost:6379,")
    if not isinstance(given, str):
        raise _bad_string("write a text such as localhost:6379,")
    servers, options = _parts(given)
    tls = _truth("ssl", options.get("ssl", "false"))
    service = options.get("servicename", "")
    if not servers:
        raise _bad_string("it names no server; write one such as localhost:6379,")
    if len(servers) > 1 and not service:
        raise ValueError(
            f"ConnectionStringForSession in {KVS}: it names several servers, and does not say whether they are a "
            'cluster; write store = "redis+cluster://…" in keystead.toml'
        )
    usual = _SENTINEL_PORT if service else _TLS_PORT if tls else _PORT
    hosts = ",".join(f"{host}:{port or usual}" for host, port in servers)
    scheme = ("rediss" if tls else "redis") + ("+sentinel" if service else "")
    database = _number("defaultDatabase", options.get("defaultdatabase", "0"), least=0)
    path = f"/{quote(service, safe='')}/{database}" if service else f"/{database}"
    return f"{scheme}://{_login(options)}{hosts}{path}{_times(options)}"


def _parts(given: str) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The servers, and the options by their names in small letters."""
    servers: list[tuple[str, str]] = []
    options: dict[str, str] = {}
    for place, part in enumerate((one.strip() for one in given.split(",")), 1):
        name, divided, value = (one.strip() for one in part.partition("="))
        host = _HOST.fullmatch(part)
        if not part or name.lower() in _OF_NO_CONSEQUENCE:
            continue
        if divided and name.lower() in _KEPT:
            options[name.lower()] = value
        elif divided and name.lower() in _NOT_HERE:
            raise _bad_string(f"the option {name} is not kept here; leave it out,")
        elif host is not None and servers and "password" in options:
            # With sentinels it would be asked for by its name, and repeated where it cannot be reached.
            said = "stands behind the password, and may be a piece of it; write all servers before it,"
            raise _bad_string(f"part {place} of it {said}")
        elif host is not None and host["port"] and not 0 < int(host["port"]) < 65536:
            raise _bad_string(f"part {place} of it has a port that is no number from 1 to 65535; write one,")
        elif host is not None:
            servers.append((host["host"], host["port"] or ""))
        else:
            # It is not repeated: it may be the second half of a password with a comma.
            raise _bad_string(f"part {place} of it is no server, and no option that is known here; leave it out,")
    return servers, options


def _login(options: Mapping[str, str]) -> str:
    user, password = (quote(options.get(name, ""), safe="") for name in ("user", "password"))
    return f"{user}:{password}@" if user or password else ""


def _times(options: Mapping[str, str]) -> str:
    times = {}
    for name, option in (
        ("timeout", "asyncTimeout"),
        ("timeout", "syncTimeout"),
        ("connect_timeout", "connectTimeout"),
    ):
        if option.lower() in options:
            times[name] = f"{_number(option, options[option.lower()], least=1)}ms"
    return "?" + "&".join(f"{name}={value}" for name, value in times.items()) if times else ""


def _truth(option: str, given: str) -> bool:
    if given.lower() not in _TRUE | _FALSE:
        raise _bad_string(f"the option {option} is true or false; write one of them,")
    return given.lower() in _TRUE


def _number(option: str, given: str, *, least: int) -> int:
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) >= least):
        raise _bad_string(f"the option {option} is a whole number from {least} on; write one,")
    return int(given)


def _bad_string(what: str) -> ValueError:
    return ValueError(f"ConnectionStringForSession in {KVS}: {what} {_INSTEAD}")

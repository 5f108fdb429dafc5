"""Reads the document's configuration files Session.json and Kvs.json."""

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

_RETENTION_MINUTES: Final = 1440  # the default
_INSTEAD: Final = 'or set the store in keystead.toml, as in store = "redis://user:password@host:6379/0"'

# Strings are matched whole, so that comments and commas inside them stay. Unterminated strings and comments are, too:
# matching again from each of their characters would take minutes for a broken file.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*"?|/\*(?!.*?\*/).*)|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*"?)|,(?=\s*[}\]])', re.DOTALL)

_HOST = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_PORT, _TLS_PORT, _SENTINEL_PORT = 6379, 6380, 26379  # defaults of the document's client

# Options of the document's client.
_SUPPORTED: Final = frozenset(
    {"password", "user", "ssl", "defaultdatabase", "servicename", "connecttimeout", "synctimeout", "asynctimeout"}
)
_IGNORED: Final = frozenset(  # they configure that client, not the connection
    {
        *("abortconnect", "allowadmin", "channelprefix", "checkcertificaterevocation", "clientname", "configchannel"),
        *("configcheckseconds", "connectretry", "heartbeatinterval", "includeperformancecountersinexceptions"),
        *("includedetailinexceptions", "keepalive", "libname", "name", "preserveasyncorder", "protocol", "resolvedns"),
        *("responsetimeout", "setlib", "tiebreaker", "version", "writebuffer", "highprioritysocketthreads"),
        *("highintegrity", "heartbeatconsistencychecks"),
    }
)
_UNSUPPORTED: Final = frozenset({"proxy", "sslhost", "sslprotocols", "tunnel"})

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True)
class SessionParameters:
    """The contents of Session.json."""

    retention_minutes: int
    uses_key_value_store: bool


def read_parameters(folder: Path, before: Mapping[str, Any]) -> tuple[str, dict[str, Any], dict[str, str]]:
    """The settings in the files of a folder, and the origin of each. `before`: settings from other sources.

    Raises ValueError with a one-line message that names the file.
    """
    session, stores = session_parameters(folder), before.get("stores")
    values: dict[str, Any] = {"sessiondata": {"retention": f"{session.retention_minutes}m"}}
    origins = {"sessiondata.retention": f"RetentionPeriod in {SESSION}", "store": f"UseKeyValueStore in {SESSION}"}
    if "store" not in before:
        found = key_value_store(folder) if session.uses_key_value_store else None
        if found is not None:
            origins["store"] = f"ConnectionStringForSession in {KVS}"
        store = found or (stores.get("durable") if isinstance(stores, Mapping) else None)
        if store:
            values["store"] = store
    return SESSION, values, origins


def session_parameters(folder: Path) -> SessionParameters:
    """Read Session.json. Raises ValueError with a one-line message that names the file."""
    found = _read(folder / SESSION)
    minutes = found.get("retentionperiod", _RETENTION_MINUTES)
    if type(minutes) is not int or minutes <= 0:
        raise ValueError(f"RetentionPeriod in {SESSION}: write a whole number of minutes, such as {_RETENTION_MINUTES}")
    uses = found.get("usekeyvaluestore", False)
    if type(uses) is not bool:
        raise ValueError(f"UseKeyValueStore in {SESSION}: write true or false")
    return SessionParameters(minutes, uses)


def key_value_store(folder: Path) -> str | None:
    """The URL of the store in Kvs.json; None: its provider is the relational store.

    Raises ValueError with a one-line message that names the file and never repeats a secret.
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
                f"Provider in {KVS}: Memcached evicts sessions when it is full, and has no atomic steps; write Redis, "
                "or Rdb for the relational store"
            )
    raise ValueError(f"Provider in {KVS}: unknown provider; write Redis, or Rdb for the relational store")


def _read(path: Path) -> dict[str, Any]:
    """The non-null members of the JSON object in a file, by lower-case name.

    Like the document's own reader, it accepts comments, a trailing comma, names in any case, and a byte order mark.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        text = data.decode(json.detect_encoding(data))
        plain = _TRAILING_COMMA.sub(_replace, _COMMENT.sub(_replace, text))
        found = json.loads(plain)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: line {error.lineno} cannot be read") from None
    except (ValueError, RecursionError):  # not Unicode, or nested too deeply
        raise ValueError(f"{path} is not JSON; save it as UTF-8") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: write an object, as in {{ }}")
    return {name.lower(): value for name, value in found.items() if value is not None}


def _replace(found: re.Match[str]) -> str:
    """Keep a string; replace anything else by its line breaks, so that line numbers in errors stay right."""
    return found[1] or "\n" * found[0].count("\n") or " "


def _redis_url(connection: Any) -> str:
    """The store URL of a connection string such as `host:6379,password=…,ssl=true,defaultDatabase=2`."""
    if connection is None or connection == "":
        raise _bad_connection(f"{SESSION} enables the key-value store; write its address, such as localhost:6379,")
    if not isinstance(connection, str):
        raise _bad_connection("write text such as localhost:6379,")
    servers, options = _split(connection)
    tls = _parse_bool("ssl", options.get("ssl", "false"))
    service = options.get("servicename", "")
    if not servers:
        raise _bad_connection("it names no server; write one such as localhost:6379,")
    if len(servers) > 1 and not service:
        raise ValueError(
            f"ConnectionStringForSession in {KVS}: it names several servers without saying whether they are a "
            'cluster; write store = "redis+cluster://…" in keystead.toml'
        )
    default_port = _SENTINEL_PORT if service else _TLS_PORT if tls else _PORT
    hosts = ",".join(f"{host}:{port or default_port}" for host, port in servers)
    scheme = ("rediss" if tls else "redis") + ("+sentinel" if service else "")
    database = _parse_number("defaultDatabase", options.get("defaultdatabase", "0"), least=0)
    path = f"/{quote(service, safe='')}/{database}" if service else f"/{database}"
    return f"{scheme}://{_credentials(options)}{hosts}{path}{_timeouts(options)}"


def _split(connection: str) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The servers, and the options by lower-case name. Errors give the number of a part, which may be a secret."""
    servers: list[tuple[str, str]] = []
    options: dict[str, str] = {}
    for number, part in enumerate((one.strip() for one in connection.split(",")), 1):
        name, equals, value = (one.strip() for one in part.partition("="))
        host = _HOST.fullmatch(part)
        if not part or name.lower() in _IGNORED:
            continue
        if equals and name.lower() in _SUPPORTED:
            options[name.lower()] = value
        elif equals and name.lower() in _UNSUPPORTED:
            raise _bad_connection(f"the option {name} is not supported; remove it,")
        elif host is not None and servers and "password" in options:
            # The rest of a password with a comma. As the name of a sentinel it would appear in connection errors.
            reason = "follows the password, and may be part of it; write all servers before it,"
            raise _bad_connection(f"part {number} {reason}")
        elif host is not None and host["port"] and not 0 < int(host["port"]) < 65536:
            raise _bad_connection(f"part {number} has a port that is not a number from 1 to 65535; write one,")
        elif host is not None:
            servers.append((host["host"], host["port"] or ""))
        else:
            raise _bad_connection(f"part {number} is not a server or a known option; remove it,")
    return servers, options


def _credentials(options: Mapping[str, str]) -> str:
    user, password = (quote(options.get(name, ""), safe="") for name in ("user", "password"))
    return f"{user}:{password}@" if user or password else ""


def _timeouts(options: Mapping[str, str]) -> str:
    times = {}
    for name, option in (
        ("timeout", "asyncTimeout"),
        ("timeout", "syncTimeout"),
        ("connect_timeout", "connectTimeout"),
    ):
        if option.lower() in options:
            times[name] = f"{_parse_number(option, options[option.lower()], least=1)}ms"
    return "?" + "&".join(f"{name}={value}" for name, value in times.items()) if times else ""


def _parse_bool(option: str, given: str) -> bool:
    if given.lower() not in _TRUE | _FALSE:
        raise _bad_connection(f"the option {option} must be true or false; correct it,")
    return given.lower() in _TRUE


def _parse_number(option: str, given: str, *, least: int) -> int:
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) >= least):
        raise _bad_connection(f"the option {option} must be a whole number of at least {least}; correct it,")
    return int(given)


def _bad_connection(problem: str) -> ValueError:
    return ValueError(f"ConnectionStringForSession in {KVS}: {problem} {_INSTEAD}")

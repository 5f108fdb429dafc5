"""What holds for the key documents of all kits."""

import importlib
from itertools import combinations
from typing import Any

import pytest
from fastapi.routing import APIRoute

from keystead import KeyRing, Keyspace, Store
from keystead.kits import KITS, ROUTED
from keystead.kits.kit import Kit
from keystead.kits.login import LoginKeys
from keystead.kits.membership import MembershipKeys
from keystead.kits.sessiondata import SessionDataKeys
from keystead.kits.sharing import SharingKeys
from keystead.kits.teamwork import TeamworkKeys
from keystead.kits.widgets import WidgetKeys
from keystead.schema.family import Family
from keystead.schema.keyspace import with_parts
from keystead.server.route_table import plain_routes

KEYSPACES: tuple[type[Keyspace], ...] = (
    LoginKeys,
    SharingKeys,
    MembershipKeys,
    TeamworkKeys,
    WidgetKeys,
    SessionDataKeys,
)
FAMILIES: list[Family[Any]] = [family for keyspace in KEYSPACES for family in keyspace.families.values()]


def test_a_keyspace_brings_along_what_its_kit_writes() -> None:
    """Commands name a kit by its keyspace alone, because they import no web framework."""
    kits: dict[str, Kit] = {name: importlib.import_module(module).KIT for name, module in ROUTED.items()}
    assert {name: set(kit.keyspaces) for name, kit in kits.items()} == {
        name: set(with_parts([kit.keyspace])) for name, kit in kits.items()
    }


def test_each_kit_is_where_the_list_of_kits_says() -> None:
    found = []
    for module_name in KITS.values():
        declared = vars(importlib.import_module(module_name)).values()
        found += [
            one
            for one in declared
            if isinstance(one, type) and issubclass(one, Keyspace) and one.__module__ == module_name
        ]
    assert tuple(found) == KEYSPACES


def test_each_event_stream_is_declared_and_each_declared_one_is_there() -> None:
    """Only these have a limit of their own, beside `requests_at_once`."""
    kits: list[Kit] = [importlib.import_module(module).KIT for module in ROUTED.values()]
    kits.append(importlib.import_module("keystead.console.console_kit").KIT)
    streaming = {
        route.path
        for kit in kits
        for route in plain_routes(kit.router().routes)
        if isinstance(route, APIRoute) and "text/event-stream" in route.responses.get(200, {}).get("content", {})
    }
    declared = {path for kit in kits for path in kit.streams}
    routes = [route for kit in kits for route in plain_routes(kit.router().routes)]
    assert streaming <= declared
    assert {path for path in declared if not any(route.path_regex.match(path) for route in routes)} == set()


@pytest.mark.parametrize("channels", [False, True], ids=["keys", "channels"])
def test_no_two_families_of_all_kits_can_make_the_same_key(channels: bool) -> None:
    compared = [family for family in FAMILIES if (family.kind == "channel") == channels]
    met = {
        (one.place, other.place): key
        for one, other in combinations(compared, 2)
        if (key := one.pattern.overlap(other.pattern)) is not None
    }
    assert met == {}


async def test_all_kits_can_share_one_store(store: Store, ring: KeyRing) -> None:
    for keyspace in KEYSPACES:
        keyspace(store, seal=ring)


def test_a_key_document_says_what_it_keeps_and_where_it_comes_from() -> None:
    offenders = [
        keyspace.__name__
        for keyspace in KEYSPACES
        if not (keyspace.__doc__ or "").endswith(".")
        or not keyspace.source
        or not all(sentence.endswith(".") for sentence in keyspace.changes)
    ]
    assert offenders == []


def test_a_family_says_what_it_is_for_and_who_uses_it() -> None:
    offenders = [
        family.place
        for family in FAMILIES
        if not family.doc.endswith(".")
        or not family.used_by
        or not (not family.changed or family.changed.endswith("."))
    ]
    assert offenders == []


def test_the_example_of_a_family_is_one_of_its_keys() -> None:
    offenders = []
    for family in FAMILIES:
        values = family.pattern.parse(family.pattern.example())
        if values is None or family.pattern.render(values) != family.pattern.example():
            offenders.append(family.place)
    assert offenders == []


def test_what_is_owned_by_the_same_id_is_in_the_same_slot_of_a_cluster() -> None:
    offenders = []
    for family in FAMILIES:
        for relation in family.owns:
            told_by_key = {
                name: origin.name
                for name, origin in relation.origins.items()
                if origin and origin.kind == "placeholder"
            }
            tag = family.pattern.tag
            if told_by_key and (tag is None or told_by_key.get(relation.target.pattern.tag or "") != tag):
                offenders.append((family.place, relation.target.place))
    assert offenders == []


def test_whom_a_key_of_a_kit_belongs_to_names_an_identity_space() -> None:
    """The same number in two kits is two people, so no kit says `user`: `keystead erase login:42` erases one."""
    offenders = [
        (family.place, family.subject.kind)
        for name, keyspace in zip(KITS, KEYSPACES, strict=True)
        for family in keyspace.families.values()
        if family.subject is not None and family.subject.kind not in (name, "login")
    ]
    assert offenders == []

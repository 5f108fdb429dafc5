"""Drafts of hand-written key documents: the five that the kits come from, and three in other styles."""
# ruff: noqa: RUF001 - punctuation of these languages

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from keystead import Keyspace
from keystead.cli.keyspace_arguments import named_keyspaces
from keystead.schema import Family
from keystead.schema.check import check
from keystead.schema.infer import keys_module
from keystead.schema.infer.document import DocumentDraft, draft_document
from keystead.schema.infer.draft import shape_of

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "documents"

# The lifetimes that the documents state for what they describe, in their own words where a kit has changed them.
DESCRIBED: dict[str, dict[str, str]] = {
    "LoginKeys": {"session": "30d", "user_sessions": "30d", "auth_state": "10m", "session_lock": "5s"},
    "SharingKeys": {"token": "until at most 14d", "index": "never", "meta": "never"},
    "MembershipKeys": {
        "session": "30d", "user_token": "31d", "membership": "1h", "refresh": "30d", "crash_report_limit": "1m",
        "rate_limit": "2m", "quota": "5m", "auth": "1m",
    },
    "TeamworkKeys": {
        "revoked_token": "until", "user_session": "sliding 30m", "notifications": "", "deadlines": "",
        "dashboard": "5m",
    },
    "WidgetKeys": {
        **dict.fromkeys(("counter_url", "counters", "counter", "counter_total", "counter_daily", "counter_owner"), ""),
        **dict.fromkeys(("like_url", "likes", "like", "like_total", "like_owner"), ""),
        **dict.fromkeys(("ranking_url", "rankings", "ranking", "ranking_scores", "ranking_owner", "ranking_meta"), ""),
        **dict.fromkeys(("bbs_url", "bbss", "bbs", "bbs_messages", "bbs_owner"), ""),
        "counter_visit": "end of day", "like_user": "end of day", "ranking_submit": "1m", "bbs_post": "10s",
    },
    "SessionDataKeys": {"session": "1d", "read_once": "1d", "user_area": ""},
}  # fmt: skip
# The words of its key are in the document, because another family has them, too.
NOT_DESCRIBED = {("WidgetKeys", "like_users")}
_NEW = ("New", "Not in the document", "The document says only")
# The documents in the order of their names, and the kits that come from each.
KITS = (("LoginKeys", "SharingKeys"), ("MembershipKeys",), ("TeamworkKeys",), ("WidgetKeys",), ("SessionDataKeys",))


class Drafted(NamedTuple):
    kind: str
    lifetime: str


def lifetime_words(family: Family[Any]) -> str:
    """`30d`, `sliding 30m`, `until at most 14d`, `end of day`, `never`; empty: the document states none."""
    said = family.lifetime.describe()
    if family.kind == "channel" or "TODO: state what removes these keys; the document does not say" in said:
        return ""
    if said.startswith("end of"):
        return "end of day"
    if said.startswith("never"):
        return "never"
    for word, unit in (("second", "s"), ("minute", "m"), ("hour", "h"), ("day", "d")):
        said = said.replace(f" {word}s", unit).replace(f" {word}", unit)
    if said.startswith("until"):
        return " ".join(["until", *said.partition(", ")[2].split()])
    return f"sliding {said.split()[0]}" if "last use" in said else said


def keyspace_of(found: DocumentDraft) -> type[Keyspace]:
    """The drafted module as Python runs it; `check` finds nothing in it."""
    module = ModuleType("drafted_from_document")
    sys.modules[module.__name__] = module
    exec(compile(keys_module(found.draft), "keys.py", "exec", dont_inherit=True), vars(module))
    keyspace: type[Keyspace] = module.AppKeys
    assert check([keyspace]) == []
    return keyspace


def drafted(found: DocumentDraft) -> dict[str, Drafted]:
    families = keyspace_of(found).families.values()
    return {shape_of(one.pattern.text): Drafted(one.kind_name, lifetime_words(one)) for one in families}


def described(document: str, name: str, families: Mapping[str, Family[Any]]) -> set[str]:
    """The families of a kit that this document describes: not declared as new, and it has all words of their keys."""
    plural = {f"{service}s" for service in ("counter", "like", "ranking", "bbs") if "{service}s" in document}
    known = plural | set(re.findall(r"[A-Za-z][A-Za-z_-]*", document))

    def words(family: Family[Any]) -> list[str]:
        return re.findall(r"[A-Za-z][A-Za-z_-]*", re.sub(r"\{[^{}]+\}", " ", family.pattern.text))

    return {
        attribute
        for attribute, family in families.items()
        if (name, attribute) not in NOT_DESCRIBED
        and not (family.changed or "").startswith(_NEW)
        and all(word.strip("_-") in known or word in known for word in words(family))
    }


def test_nine_of_ten_rows_of_the_five_documents_are_found() -> None:
    """Pattern shape, kind and stated lifetime all have to be right."""
    if not SHARED.parent.is_dir():
        pytest.skip("this clone has no folder ../shared, which holds the documents")
    documents = sorted(SHARED.glob("*.txt"))
    assert len(documents) == len(KITS)
    declared = {keyspace.__name__: keyspace.families for keyspace in named_keyspaces(None)}
    missing, count, invented = [], 0, []
    for document, names in zip(documents, KITS, strict=True):
        text = document.read_text(encoding="utf-8")
        found = drafted(draft_document(text))
        shapes = set()
        for name in names:
            assert described(text, name, declared[name]) == DESCRIBED[name].keys()
            for attribute, lifetime in DESCRIBED[name].items():
                family, count = declared[name][attribute], count + 1
                shapes.add(shape_of(family.pattern.text))
                drafted_row = found.get(shape_of(family.pattern.text))
                if drafted_row != Drafted(family.kind_name, lifetime):
                    missing.append((name, attribute, drafted_row))
        invented += sorted(found.keys() - shapes)
    assert count == 49
    assert len(missing) <= count * 0.1, missing
    assert invented == []


def rows_of(name: str) -> tuple[dict[str, Drafted], DocumentDraft]:
    found = draft_document((HERE / "key_documents" / name).read_text(encoding="utf-8"), title=name)
    return drafted(found), found


def model_fields(found: DocumentDraft, name: str) -> Mapping[str, str]:
    return {one.name: one.type for model in found.draft.models if model.name == name for one in model.fields}


def test_an_english_document_with_angle_brackets_and_numbered_rows() -> None:
    rows, found = rows_of("shop.md")
    assert rows == {
        "shop:session:{}": ("Value", "sliding 1d"),
        "shop:cart:{}": ("Hash", "7d"),
        "shop:cart:{}:coupons": ("Set", "7d"),
        "shop:stock:{}": ("Counter", "never"),
        "shop:bestsellers:{}": ("SortedSet", "14d"),
        "shop:recent:{}": ("List", "30d"),
        "shop:orders": ("Log", "never"),
        "shop:lock:checkout:{}": ("Value", "15s"),
        "shop:flags": ("Hash", "never"),
        "shop:price:{}:{}": ("Value", "end of day"),
        "shop:rl:{}": ("Counter", "1m"),
        "shop:reset:{}": ("Value", "15m"),
    }
    assert model_fields(found, "ShopSession")["createdAt"] == "EpochMs"
    assert model_fields(found, "ShopSession")["roles"] == "list[str]"
    assert [line for line, _ in found.problems] == [19, 42]
    assert "(reserved for later use)" in found.problems[0][1]
    assert "shop:search:{term}" in found.problems[1][1]


def test_a_japanese_document_with_colons_before_names_and_a_table_without_edges() -> None:
    rows, found = rows_of("booking.md")
    assert rows == {
        "room/{}": ("Hash", "never"),
        "room/{}/slots/{}": ("SortedSet", "90d"),
        "booking/{}": ("Value", "until"),
        "member/{}/bookings": ("Set", "never"),
        "otp/{}": ("Value", "5m"),
        "visit/{}": ("Counter", "end of day"),
        "draft/{}": ("Value", "sliding 2h"),
        "notify/{}": ("Channel", ""),
        "hold/{}": ("Value", "2m"),
        "waitlist/{}": ("List", ""),
        "mail:queue": ("List", "never"),
        "mail:sent:{}": ("Value", "7d"),
    }
    assert model_fields(found, "Room") == {"name": "str", "capacity": "str", "floor": "str"}
    assert model_fields(found, "Booking")["guests"] == "list[str]"
    assert {7, 9, 28} == {line for line, _ in found.problems}


def test_a_korean_text_with_aligned_columns_and_examples_of_commands() -> None:
    rows, found = rows_of("game.txt")
    assert rows == {
        "player:{}": ("Hash", "never"),
        "player:{}:friends": ("Set", "never"),
        "player:{}:online": ("Value", "sliding 30m"),
        "rank:season:{}": ("SortedSet", "90d"),
        "match:queue:{}": ("List", "10m"),
        "match:room:{}": ("Value", "2h"),
        "daily:reward:{}": ("Value", "end of day"),
        "chat:{}": ("Log", "1d"),
        "ban:{}": ("Value", "until at most 30d"),
        "events:{}": ("Channel", ""),
        "token:{}": ("Value", "1h"),
    }
    assert set(model_fields(found, "Player")) == {"nickname", "level", "guildId"}
    assert "9f86d081884c7d65" not in keys_module(found.draft)
    assert found.problems == [(29, "not a key: 이름표 없음")]


def test_comments_name_the_lines_that_a_family_comes_from() -> None:
    _, found = rows_of("game.txt")
    text = keys_module(found.draft)
    assert "# sure: lines 6, 24: player:{playerId}" in text
    assert "# lifetime: 30분 (접속 시 갱신)" in text


def test_no_text_puts_code_into_a_draft_or_stops_it() -> None:
    draw = random.Random(5)
    pieces = [
        *(
            "| Key | Type | TTL |",
            "|---|---|---|",
            "`a:{b}`",
            "Key: ",
            '");import os;os.abort()#',
            '"""',
            "{",
            "}",
            "|",
        ),
        *(
            "\x1b[31m",
            "\x00",
            "SET k v EX 9",
            "→",
            "{a:{b}}",
            "<id>",
            "キー",
            "```",
            "```json",
            '{"a": 1}',
            "30日",
            "\n",
        ),
        *("\n", "\n", " ", "class:{class}", "__init__", "TTL: never", "interface X {", "a:{x}:{x}", "%s", "* ", "- "),
        *("{a}{b}", "x:{" + "y" * 300 + "}", "Value", "型", "ZADD a:b 1 c", "\\", "'", "# ", "키: a:{1}", "，", "１日"),
    ]
    for _ in range(150):
        text = "".join(draw.choice(pieces) for _ in range(draw.randint(1, 80)))
        keyspace_of_any(draft_document(text))


def keyspace_of_any(found: DocumentDraft) -> None:
    text = keys_module(found.draft)
    assert all(character.isprintable() or character == "\n" for character in text)
    if found.draft.families:
        keyspace_of(found)


@pytest.mark.matrix
def test_a_long_document_is_read_in_time_proportional_to_its_length() -> None:
    def cpu_s(rows: int) -> float:
        table = "\n".join(f"| `area{number // 20}:item{number}:{{id}}` | string | 1d | x |" for number in range(rows))
        prose = "\n".join("The quick brown fox, `jumps`: over | the " * 3 for _ in range(rows * 10))
        began = time.process_time()
        found = draft_document(f"| Key | Type | TTL | Notes |\n|---|---|---|---|\n{table}\n\n{prose}\n")
        assert len(found.draft.families) == rows
        return time.process_time() - began

    short, long = cpu_s(30), cpu_s(90)
    assert long < short * 9 + 1, (short, long)


def test_lists_headings_yaml_indented_lines_and_unusual_columns() -> None:
    rows, found = rows_of("mixed.md")
    assert rows == {
        "session:{}": ("Value", "sliding 2h"),
        "user:{}": ("Hash", "never"),
        "feed:{}": ("List", "sliding 7d"),
        "online": ("SortedSet", ""),
        "jobs:{}": ("Log", ""),
        "cache:page:{}": ("Value", "1m"),
        "cart:{}": ("Hash", "3d"),
        "invite:{}": ("Value", "2d"),
        "ranking:{}:{}": ("SortedSet", "28d"),
        "ranking:{}:all": ("SortedSet", "never"),
        "api:token:{}": ("Value", "1h"),
        "api:quota:{}:{}": ("Counter", "1d 1h"),
        "pref:{}": ("Hash", "sliding 30d"),
        "lock:{}": ("Value", "10s"),
    }
    assert set(model_fields(found, "User")) == {"name", "email", "plan"}
    assert model_fields(found, "Invite") == {"inviter": "int", "createdAt": "IsoTime"}
    assert [line for line, _ in found.problems] == [11, 28, 33]
    assert "ranking:{game}:{week:int}" in found.problems[1][1]
    assert found.problems[2][1] == "columns that were not used: 担当"

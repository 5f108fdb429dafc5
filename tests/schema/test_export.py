"""The export matches the stored data."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from keystead.schema import (
    BigInt,
    Channel,
    Counter,
    EpochMs,
    Hash,
    IsoTime,
    KeyRing,
    Keyspace,
    List,
    Log,
    OmittedIfNone,
    Sealed,
    Set,
    SortedSet,
    Value,
    Versions,
    after,
    end_of_day,
    never,
    packed,
    sliding,
    until,
)
from keystead.schema.export import json_schema, typescript
from keystead.schema.export.type_names import capitalize, choose_names


class Level(Enum):
    GOLD = "gold"
    PLAIN = 'pl"ain'


class Address(BaseModel):
    """Where */ something is sent."""

    city: str
    lines: list[str] = []


class Customer(BaseModel):
    """Who buys."""

    card_number: BigInt = Field(alias="card-number", description="the number on the card")
    level: Level = Level.PLAIN
    home: Address
    nick: OmittedIfNone[str] = None
    mail: str | None = None
    token: Sealed[str] = Field(description="for the bank")
    seen_at: EpochMs
    born: date
    points: int = Field(0, ge=0, le=2**63 - 1)


class Basket(BaseModel):
    """What somebody wants to buy."""

    uid: str
    coupon: str | None = None
    to: Address | None = None


class Line(NamedTuple):
    article: str
    size: int


class ShopKeys(Keyspace):
    """A shop."""

    source = "the shop's own table"

    customers = SortedSet("shop:customers", str, score="when they came", lifetime=never("emptied with the shop"))
    customer = Value(
        "shop:customer:{uid:token}", Customer, lifetime=after("30d"), role="durable", doc="A customer.", tag="uid"
    )
    basket = Hash("shop:basket:{uid:token}[_{page:int}]", Basket, lifetime=sliding("30m", touch_every="1m"))
    visits = Counter("shop:visits:{day:date}", lifetime=end_of_day("UTC"))
    orders = List("shop:orders", Address, lifetime=until("paid_by", at_most="14d"))
    lines = Set("shop:lines", packed(Line, "{article}:{size:int}"), lifetime=after("1h"))
    words = Hash("shop:words", dict[str, int], lifetime=after("1h"))
    photo = Value("shop:photo:{uid}", bytes, lifetime=after("1h"))
    events = Log("shop:events", IsoTime, lifetime=after("1h"))
    bell = Channel("shop:bell", Level)


TYPESCRIPT = """\
/** Where *\\/ something is sent. */
export interface Address {
  city: string;
  lines: string[];
}

/** What somebody wants to buy. */
export interface Basket {
  uid: string;
  coupon?: string;
  to?: Address;
}

/** Who buys. */
export interface Customer {
  /** the number on the card */
  "card-number": string;
  level: Level;
  home: Address;
  nick?: string;
  mail: string | null;
  /** for the bank. Sealed: the encrypted text in the store. */
  token: string;
  /** milliseconds since 1970-01-01T00:00:00Z */
  seen_at: number;
  born: string;
  /** An integer beyond 2^53: read it with a JSON parser that preserves its digits. */
  points: string;
}

export type Level = "gold" | "pl\\"ain";

export type CustomersKey = "shop:customers";

/** A customer. */
export type CustomerKey = `shop:customer:${string}`;

export type BasketKey = `shop:basket:${string}` | `shop:basket:${string}_${string}`;

export type VisitsKey = `shop:visits:${string}`;

export type OrdersKey = "shop:orders";

export type LinesKey = "shop:lines";

export type WordsKey = "shop:words";

export type PhotoKey = `shop:photo:${string}`;

export type EventsKey = "shop:events";

export type BellKey = "shop:bell";

/** Each family by the names of its keyspace and its own: its keys, and their values. */
export interface KeyPatterns {
  /** A shop. */
  ShopKeys: {
    customers: {
      pattern: "shop:customers";
      key: CustomersKey;
      kind: "SortedSet";
      role: "default";
      member: string;
      /** when they came */
      score: number;
    };
    /** A customer. */
    customer: {
      pattern: "shop:customer:{uid:token}";
      key: CustomerKey;
      kind: "Value";
      role: "durable";
      value: Customer;
    };
    basket: {
      pattern: "shop:basket:{uid:token}[_{page:int}]";
      key: BasketKey;
      kind: "Hash";
      role: "default";
      fields: Basket;
    };
    visits: {
      pattern: "shop:visits:{day:date}";
      key: VisitsKey;
      kind: "Counter";
      role: "default";
      /** An integer of 64 bits, as a text of digits. */
      value: string;
    };
    orders: {
      pattern: "shop:orders";
      key: OrdersKey;
      kind: "List";
      role: "default";
      item: Address;
    };
    lines: {
      pattern: "shop:lines";
      key: LinesKey;
      kind: "Set";
      role: "default";
      /** written as {article}:{size} */
      member: string;
    };
    words: {
      pattern: "shop:words";
      key: WordsKey;
      kind: "Hash";
      role: "default";
      fields: { [name: string]: number };
    };
    photo: {
      pattern: "shop:photo:{uid}";
      key: PhotoKey;
      kind: "Value";
      role: "default";
      value: Uint8Array;
    };
    events: {
      pattern: "shop:events";
      key: EventsKey;
      kind: "Log";
      role: "default";
      item: string;
    };
    bell: {
      pattern: "shop:bell";
      key: BellKey;
      kind: "Channel";
      role: "default";
      message: "gold" | "pl\\"ain";
    };
  };
}
"""


def family(name: str, keyspace: type[Keyspace] = ShopKeys) -> dict[str, Any]:
    found: dict[str, Any] = json_schema([keyspace])["keyspaces"][keyspace.__name__]["families"][name]
    return found


def one_value(type_: Any) -> type[Keyspace]:
    """A keyspace with one value of this type."""

    class OneKeys(Keyspace):
        one = Value("one:{id}", type_, lifetime=after("1h"))

    return OneKeys


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


# --- JSON Schema ---------------------------------------------------------------------------------------


def test_it_is_one_document_of_json_schema_2020_12_that_is_json() -> None:
    document = json_schema([ShopKeys])
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(document)) == document
    assert document["keyspaces"]["ShopKeys"]["description"] == "A shop."
    assert document["keyspaces"]["ShopKeys"]["source"] == "the shop's own table"
    assert list(document["keyspaces"]["ShopKeys"]["families"]) == list(ShopKeys.families)


def test_a_family_has_its_pattern_kind_role_lifetime_and_value() -> None:
    assert family("customer") == {
        "description": "A customer.",
        "pattern": "shop:customer:{uid:token}",
        "display": "shop:customer:{uid}",
        "example": "shop:customer:Zk3-x_Q",
        "kind": "Value",
        "role": "durable",
        "lifetime": {"type": "after", "ms": 2_592_000_000, "text": "30 days"},
        "hash_tag": "uid",
        "value": {"$ref": "#/$defs/Customer"},
    }


@pytest.mark.parametrize(
    ("name", "lifetime"),
    [
        ("customers", {"type": "never", "reason": "emptied with the shop"}),
        ("basket", {"type": "sliding", "ms": 1_800_000, "touch_every_ms": 60_000}),
        ("visits", {"type": "end_of_day", "zone": "UTC"}),
        ("orders", {"type": "until", "field": "paid_by", "at_most_ms": 1_209_600_000, "unit": "ms"}),
    ],
)
def test_a_lifetime_is_exported_as_data_and_in_words(name: str, lifetime: dict[str, Any]) -> None:
    told = family(name)["lifetime"]
    assert told == lifetime | {"text": ShopKeys.families[name].lifetime.describe()}


@pytest.mark.parametrize(
    ("name", "part", "schema"),
    [
        ("customers", "member", {"type": "string"}),
        ("customers", "score", {"type": "number", "description": "when they came"}),
        ("basket", "fields", {"$ref": "#/$defs/Basket"}),
        ("orders", "item", {"$ref": "#/$defs/Address"}),
        ("visits", "value", {"type": "string", "format": "int64", "pattern": "^(0|-?[1-9][0-9]*)$"}),
        (
            "words",
            "fields",
            {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}},
        ),
        ("bell", "message", {"enum": ["gold", 'pl"ain'], "title": "Level", "type": "string"}),
    ],
)
def test_each_kind_describes_its_content(name: str, part: str, schema: dict[str, Any]) -> None:
    assert family(name)[part] == schema


def test_every_reference_leads_to_a_definition_and_every_definition_is_used() -> None:
    document = json_schema([ShopKeys])
    assert {f"#/$defs/{name}" for name in document["$defs"]} == set(references(document))
    assert list(document["$defs"]) == ["Address", "Basket", "Customer", "Level"]


def test_a_record_in_a_hash_is_an_object_without_null() -> None:
    assert json_schema([ShopKeys])["$defs"]["Basket"] == {
        "title": "Basket",
        "description": "What somebody wants to buy.",
        "type": "object",
        "properties": {"uid": {"type": "string"}, "coupon": {"type": "string"}, "to": {"$ref": "#/$defs/Address"}},
        "required": ["uid"],
    }


def fits(value: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Whether a JSON value fits a schema, as far as the schemas of these tests go."""
    if "$ref" in schema:
        return fits(value, definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    if "anyOf" in schema:
        return any(fits(value, choice, definitions) for choice in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    types: dict[str, Any] = {"string": str, "integer": int, "array": list, "object": dict, "null": type(None)}
    if type(value) is not types[schema["type"]]:
        return False
    if isinstance(value, list):
        return all(fits(item, schema["items"], definitions) for item in value)
    if isinstance(value, dict):
        known = set(schema["required"]) <= set(value) <= set(schema["properties"])
        return known and all(fits(one, schema["properties"][name], definitions) for name, one in value.items())
    return True


@pytest.mark.parametrize("mail", [None, "a@example.com"])
@pytest.mark.parametrize("nick", [None, "Al"])
def test_stored_values_fit_their_schema(mail: str | None, nick: str | None) -> None:
    customer = Customer.model_validate(
        {
            "card-number": 2**60,
            "home": {"city": "Kyoto"},
            "nick": nick,
            "mail": mail,
            "token": "secret",
            "seen_at": datetime(2026, 1, 1, tzinfo=UTC),
            "born": date(1990, 1, 1),
        }
    )
    stored = ShopKeys.customer.codec.encode(customer, "shop:customer:1", KeyRing({"a": bytes(32)}))
    definitions = json_schema([ShopKeys])["$defs"]
    assert fits(json.loads(stored), definitions["Customer"], definitions)


def test_a_version_that_is_stamped_on_a_value_is_in_its_schema() -> None:
    class VersionKeys(Keyspace):
        record = Value("v:{id}", Address, lifetime=after("1h"), versions=Versions("v", 2, {1: lambda old: old}))

    address = json_schema([VersionKeys])["$defs"]["Address"]
    assert address["properties"]["v"]["const"] == 2
    assert "v" in address["required"]


# --- Names ---------------------------------------------------------------------------------------------


def model(name: str, **fields: Any) -> type[BaseModel]:
    return type(name, (BaseModel,), {"__annotations__": fields, "__module__": __name__})


def test_two_models_of_the_same_name_get_that_of_their_keyspaces() -> None:
    class LoginKeys(Keyspace):
        session = Value("login:{id}", model("Session", uid=str), lifetime=after("1h"))

    class TeamKeys(Keyspace):
        session = Value("team:{id}", model("Session", team=int), lifetime=after("1h"))
        other = Value("other:{id}", Address, lifetime=after("1h"))

    document = json_schema([LoginKeys, TeamKeys])
    assert list(document["$defs"]) == ["Address", "LoginSession", "TeamSession"]
    families = {name: one["families"] for name, one in document["keyspaces"].items()}
    assert families["LoginKeys"]["session"]["value"] == {"$ref": "#/$defs/LoginSession"}
    assert families["TeamKeys"]["session"]["value"] == {"$ref": "#/$defs/TeamSession"}
    module = typescript([LoginKeys, TeamKeys])
    assert "export type LoginSessionKey = `login:${string}`;" in module
    assert "export type TeamSessionKey = `team:${string}`;" in module
    assert "export type OtherKey = " in module
    assert_sound(module)


def test_two_models_of_the_same_name_in_one_keyspace_get_that_of_their_families() -> None:
    class LoginKeys(Keyspace):
        web = Value("web:{id}", model("Session", uid=str), lifetime=after("1h"))
        app = Value("app:{id}", model("Session", device=int), lifetime=after("1h"))

    assert list(json_schema([LoginKeys])["$defs"]) == ["LoginAppSession", "LoginWebSession"]


def test_a_model_in_several_keyspaces_is_defined_once() -> None:
    document = json_schema([ShopKeys, one_value(Address)])
    assert [name for name in document["$defs"] if "Address" in name] == ["Address"]


def test_two_keyspaces_of_the_same_name_are_distinguished() -> None:
    first, second = one_value(str), one_value(int)
    second.__module__ = "another.module"
    document = json_schema([first, second])
    assert list(document["keyspaces"]) == [
        f"{__name__}:one_value.<locals>.OneKeys",
        "another.module:one_value.<locals>.OneKeys",
    ]
    assert_sound(typescript([first, second]))


def test_a_model_that_is_called_as_another_type_of_the_module_gets_another_name() -> None:
    class ShopKeys(Keyspace):
        one = Value("one:{id}", model("KeyPatterns", a=int), lifetime=after("1h"))
        two = Value("two:{id}", model("OneKey", b=int), lifetime=after("1h"))

    module = typescript([ShopKeys])
    assert "export interface ShopKeyPatterns {" in module
    assert "export interface ShopOneKey {" in module
    assert_sound(module)


def test_names_are_as_short_as_they_can_be_and_distinct() -> None:
    assert choose_names({1: ("a", "xa"), 2: ("b", "xb"), 3: ("a", "ya")}) == {1: "xa", 2: "b", 3: "ya"}
    assert choose_names({1: ("a", "xa"), 2: ("a", "xa")}) == {1: "xa", 2: "xa2"}
    assert choose_names({1: ("a", "xa")}, reserved=["a"]) == {1: "xa"}
    assert choose_names({1: ("a",)}, reserved=["a", "a2"]) == {1: "a3"}
    assert [capitalize(name) for name in ("user_sessions", "Page[int]", "2fa")] == ["UserSessions", "PageInt", "T2fa"]


# --- TypeScript ----------------------------------------------------------------------------------------


def assert_sound(module: str) -> None:
    """Every bracket is closed, every name that is used is declared once, and nothing of the comments leaks out."""
    tokens = r'"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\\n])*`|//[^\n]*|/\*.*?\*/'
    code = re.sub(tokens, lambda found: "" if found[0].startswith("/") else '""', module, flags=re.DOTALL)
    assert not re.search(r"[`*/\\]", code)
    waiting: list[str] = []
    for character in code:
        if character in "([{":
            waiting.append({"(": ")", "[": "]", "{": "}"}[character])
        elif character in ")]}":
            assert waiting.pop() == character
    assert waiting == []
    declared = re.findall(r"^export (?:interface|type) (\w+)", code, re.MULTILINE)
    assert sorted(set(declared)) == sorted(declared)
    used = set(re.findall(r"(?<![\w$])[A-Z]\w*(?!\w*\??:)", code))
    assert used <= {*declared, "Uint8Array"}
    ends = [line for line in code.splitlines() if line.strip() and not line.rstrip().endswith(("{", "}", ";"))]
    assert ends == []


def test_the_module_of_a_keyspace_is_this() -> None:
    module = typescript([ShopKeys])
    header, _, rest = module.partition("\n\n")
    assert all(line.startswith("//") for line in header.splitlines())
    assert rest == TYPESCRIPT
    assert_sound(module)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


@pytest.mark.parametrize(
    ("type_", "said"),
    [
        (str, "string"),
        (bool, "boolean"),
        (float, "number"),
        (UUID, "string"),
        (datetime, "string"),
        (BigInt, "string"),
        (list[int], "number[]"),
        (list[int | None], "(number | null)[]"),
        (list[Literal["a", "b"]], '("a" | "b")[]'),
        (dict[str, list[str]], "{ [name: string]: string[] }"),
        (dict[Literal["a", "b"], int], '{ [name in "a" | "b"]?: number }'),
        (dict[Level, int], "{ [name in Level]?: number }"),
        (dict[str, JsonValue], "{ [name: string]: JsonValue }"),
        (tuple[int, str], "[number, string]"),
        (tuple[int, ...], "number[]"),
        (Literal[1, 2], "1 | 2"),
        (list[Tree], "Tree[]"),
        (Tree, "Tree"),
    ],
)
def test_types_of_python_become_types_of_typescript(type_: Any, said: str) -> None:
    module = typescript([one_value(type_)])
    assert f"\n      value: {said};\n" in module
    assert_sound(module)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({}, "number"),
        ({"ge": 0}, "number"),
        ({"ge": 0, "le": 2**53 - 1}, "number"),
        ({"lt": 2**53}, "number"),
        ({"le": 2**53}, "string"),
        ({"lt": 2**53 + 1}, "string"),
        ({"ge": -(2**53) + 1}, "number"),
        ({"gt": -(2**53)}, "number"),
        ({"ge": -(2**53)}, "string"),
        ({"ge": -(2**63), "lt": 2**63}, "string"),
    ],
)
def test_an_integer_that_is_declared_to_pass_2_to_the_53_is_a_string(bounds: dict[str, int], said: str) -> None:
    class Holder(BaseModel):
        number: Annotated[int, Field(**bounds)]

    assert f"\n  number: {said};\n" in typescript([one_value(Holder)])


def test_models_that_take_other_fields_say_so() -> None:
    assert "export interface Open {\n  a: number;\n  [name: string]: unknown;\n}" in typescript([one_value(Open)])
    assert "export interface Tree {\n  name: string;\n  children: Tree[];\n}" in typescript([one_value(Tree)])
    assert_sound(typescript([one_value(Strict)]))


def test_odd_texts_in_keys_fields_and_comments_break_nothing() -> None:
    class Odd(BaseModel):
        odd: int = Field(alias='o"d`d\n', description="ends */ here\nand // there `${x}`")

    class OddKeys(Keyspace):
        """Ends */ here."""

        odd = Value('odd"`\\${id}:*/\n', Odd, lifetime=after("1h"), doc="ends */ here")
        plain = Value('odd"`\\:plain', str, lifetime=after("1h"))
        braced = Value("${{a}}:{id}", str, lifetime=after("1h"))

    module = typescript([OddKeys])
    assert 'export type OddKey = `odd"\\`\\\\$${string}:*/\\n`;' in module
    assert 'export type PlainKey = "odd\\"`\\\\:plain";' in module
    assert "export type BracedKey = `\\${a}:${string}`;" in module
    assert '  "o\\"d`d\\n": number;' in module
    assert_sound(module)


def test_the_order_of_keyspaces_changes_the_order_only() -> None:
    def lines(*keyspaces: type[Keyspace]) -> list[str]:
        return sorted(typescript(keyspaces).splitlines())

    assert lines(ShopKeys, one_value(Address)) == lines(one_value(Address), ShopKeys)


def test_the_export_is_the_same_in_every_process() -> None:
    program = (
        "import json; from tests.schema.test_export import ShopKeys; "
        "from keystead.schema.export import json_schema, typescript; "
        "print(json.dumps(json_schema([ShopKeys])), typescript([ShopKeys]))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=300,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] != b""


def test_nothing_is_exported_of_no_keyspace() -> None:
    assert json_schema([])["keyspaces"] == {}
    assert_sound(typescript([]))

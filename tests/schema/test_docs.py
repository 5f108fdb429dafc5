"""The key document: complete, deterministic, and safe for any text in a declaration."""

import dataclasses
import os
import re
import subprocess
import sys
from collections import Counter as Tally
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pydantic import BaseModel, Field

from keystead.schema import (
    VALUE,
    Channel,
    Counter,
    EpochMs,
    Hash,
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
    link,
    never,
    packed,
    sliding,
)
from keystead.schema.docs import document, html, html_index, in_words, is_made, markdown, markdown_index
from keystead.schema.docs.diagram import Box, diagram
from keystead.schema.docs.document import KeyDocument
from keystead.schema.docs.prose import as_cell, as_html, as_markdown, code
from keystead.schema.docs.relation_rows import LISTS, OWNS, Edge
from keystead.schema.docs.verbs import OF_EVERY_KEY, verbs_of_kind
from keystead.schema.procedure_tracing import READS


class Address(BaseModel):
    """Where something is sent."""

    city: str = Field(max_length=50)
    lines: list[str] = []


class Customer(BaseModel):
    """Who buys."""

    uid: str = Field(description="the number on the card")
    level: Literal["gold", "plain"] = "plain"
    visits: int = Field(0, ge=0, le=1_000_000)
    home: Address
    others: list[Address] = []
    nick: OmittedIfNone[str] = None
    mail: str | None = None
    token: Sealed[str] = Field(description="for the bank")
    seen_at: EpochMs


class Basket(BaseModel):
    uid: str
    coupon: str | None = None
    total: int = Field(0, ge=0)


class Line(NamedTuple):
    article: str
    size: int


class ShopKeys(Keyspace):
    """A shop: customers, what they want to buy, and what they bought.

    - customers are `gold` or plain
    - baskets end by themselves
    """

    source = "the shop's own table"
    changes = ("Baskets end; before, nobody removed them.",)

    customers = Set("shop:customers", str, lifetime=never("emptied with the shop"), doc="Everybody who has a card.")
    customer = Value(
        "shop:customer:{uid:token}",
        Customer,
        lifetime=never("removed when the card is returned"),
        listed_in=customers,
        owns=["basket", "day", link("mail", address="mail")],
        member_of="user:{uid}",
        doc="A customer.",
        used_by=("/api/customers/{uid}", "the till"),
        changed="The token is sealed; before, it was `plain`.",
    )
    basket = Hash(
        "shop:basket:{uid:token}",
        Basket,
        lifetime=sliding("30m", touch_every="1m"),
        role="cache",
        member_of="user:{uid}",
        tag="uid",
        doc="What a customer wants to buy.",
    )
    day = Counter("shop:day:{uid:token}:{date:date}", lifetime=end_of_day("Asia/Tokyo"))
    mail = Value("shop:mail:{address}", str, lifetime=after("1d"), leads_to=link("customer", uid=VALUE))
    deadlines = SortedSet("shop:deadlines", int, score="when it is due, in ms", lifetime=never("emptied by the clerk"))
    order = Value(
        "shop:order:{number:int}",
        Address,
        lifetime=after("14d"),
        listed_in=deadlines,
        versions=Versions("v", 2, {1: lambda old: old}),
    )
    wanted = SortedSet("shop:wanted", packed(Line, "{article}:{size:int}"), lifetime=never("emptied by the clerk"))
    seen = List("shop:seen:{uid:token}", Address, keep=10, lifetime=after("1h"))
    events = Log("shop:events", str, keep=100, lifetime=after("7d"))
    words = Hash("shop:words", dict[str, int], lifetime=after("1h"))
    bell = Channel("shop:bell", str)


class PlainKeys(Keyspace):
    lonely = Value("lonely", str, lifetime=after("1h"))


ODD = "a | b, `c|d`, <b>bold</b>, *stars*, _under_, [link](x), back\\slash, `lone, &amp; and snake_case"


class Odd(BaseModel):
    field: str = Field(alias="a|`b", description=ODD)


class OddKeys(Keyspace):
    __doc__ = f"{ODD}\n\n# no heading\n\n1. no list"
    source = ODD
    changes = (ODD, "- no list", "# no heading")
    index = Set("odd:`|<b>\"'&amp;", str, lifetime=never(ODD), doc=ODD)
    record = Value(
        "odd`|<script>:{id}[*{page:int}]",
        Odd,
        lifetime=after("1d"),
        doc=ODD,
        used_by=("/a|b", ODD),
        changed=ODD,
        owns="index",
    )


def parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)


def text_of(token: Token) -> str:
    """The visible text of a line."""
    return "".join(
        "\n" if child.type == "html_inline" and child.content == "<br>" else child.content
        for child in token.children or ()
    )


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a document, as rows of cells, as a reader sees them."""
    found: list[list[list[str]]] = []
    tokens = parsed(text)
    for token, inside in pairwise(tokens):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("th_open", "td_open"):
            found[-1][-1].append(text_of(inside))
    return found


def headings(text: str) -> list[str]:
    tokens = parsed(text)
    return [text_of(inside) for token, inside in pairwise(tokens) if token.type == "heading_open"]


def section(text: str, name: str) -> str:
    return text.partition(f"\n### {name}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def test_the_table_has_the_columns_of_a_key_document_and_a_row_for_each_family() -> None:
    head, *rows = tables(markdown(ShopKeys))[0]
    assert head == ["key", "kind", "role", "value", "lifetime", "operations", "used by"]
    assert [row[0].partition("\n")[0] for row in rows] == [one.pattern.display for one in ShopKeys.families.values()]
    assert [row[1] for row in rows] == [one.kind_name for one in ShopKeys.families.values()]
    assert rows[1] == [
        "shop:customer:{uid}\nA customer.",
        "Value",
        "default",
        "JSON Customer, 9 fields",
        "never expires: removed when the card is returned",
        "set, add, replace, change, consume, get, see, …",
        "/api/customers/{uid}, the till",
    ]
    assert rows[2][2:6] == [
        "cache",
        "fields { uid, coupon?, total }",
        "30 minutes after the last use; touched at most once in 1 minute",
        "set, add, update, put, add_field, get, field, …",
    ]


@pytest.mark.parametrize(
    ("family", "value"),
    [
        ("customers", "member: string"),
        ("deadlines", "member: integer; score: when it is due, in ms"),
        ("wanted", "member: {article}:{size}; score: number"),
        ("seen", "items: JSON { city, lines }; at most 10"),
        ("events", "entries: string; the last 100"),
        ("words", "fields: string → integer"),
        ("bell", "message: string"),
    ],
)
def test_the_table_shows_the_value_of_a_key(family: str, value: str) -> None:
    row = next(row for row in tables(markdown(ShopKeys))[0] if row[0].startswith(f"shop:{family}"))
    assert row[3] == value


def test_a_channel_stores_nothing_and_is_documented_so() -> None:
    assert tables(markdown(ShopKeys))[0][-1][4] == "messages are not stored"


def test_the_document_starts_with_the_docstring_of_the_keyspace() -> None:
    top = markdown(ShopKeys).partition("## All keys")[0]
    assert "# Shop keys\n\nA shop: customers, what they want to buy, and what they bought.\n" in top
    assert "\n- customers are `gold` or plain\n- baskets end by themselves\n" in top
    assert "\nSource: the shop's own table\n" in top
    assert "\nChanges, and why:\n\n- Baskets end; before, nobody removed them.\n" in top


def test_a_family_has_a_section_with_pattern_example_relations_and_changes() -> None:
    text = section(markdown(ShopKeys), "customer")
    assert "\n`shop:customer:{uid}`, Value\n\nA customer.\n" in text
    assert "- Pattern: `shop:customer:{uid:token}`, where `uid` takes a str of A-Z" in text
    assert "\n- Example: `shop:customer:Zk3-x_Q`\n" in text
    assert "\n**Changed:** The token is sealed; before, it was `plain`.\n" in text


def test_a_pattern_equal_to_the_key_is_not_repeated() -> None:
    text = section(markdown(ShopKeys), "mail")
    assert "Pattern:" not in text
    assert "- Example: `shop:mail:a1b2c3`\n- Holds: string\n" in text


def test_relations_are_described_at_both_ends() -> None:
    told = {entry.name: entry.relations for entry in document(ShopKeys).families}
    assert told["customer"] == (
        "Listed in `shop:customers` by `uid`.",
        "Deleted with it: `shop:basket:{uid}`.",
        "Deleted with it: every `shop:day:{uid}:{date}`, whatever `date` is; a scan finds them.",
        "Deleted with it: `shop:mail:{address}`, where `address` is its field `mail`.",
        "`shop:mail:{address}` leads here.",
        "Belongs to the user `{uid}`: `keystead erase user:ID` deletes it.",
    )
    assert told["customers"] == ("Lists `shop:customer:{uid}` by `uid`.",)
    assert told["basket"] == (
        "Deleted with `shop:customer:{uid}`.",
        "Belongs to the user `{uid}`: `keystead erase user:ID` deletes it.",
    )
    assert told["mail"][-1] == "Leads to `shop:customer:{uid}`, where `uid` is its value."
    assert told["order"] == (
        "Listed in `shop:deadlines` by `number`; its score is its deadline, or the time of writing.",
    )
    assert told["bell"] == ()


def test_a_relation_from_a_field_is_documented() -> None:
    class LinkKeys(Keyspace):
        target = Value("target:{id}", str, lifetime=after("1h"))
        scored = SortedSet("scored", str, lifetime=never("x"))
        record = Value(
            "record:{uid}",
            Customer,
            lifetime=after("1h"),
            owns=target.by(id="nick"),
            listed_in=scored.by(score="seen_at"),
            member_of="user:{mail}",
        )

    assert {entry.name: entry.relations for entry in document(LinkKeys).families}["record"] == (
        "Listed in `scored` by `uid`; its score is its field `seen_at`.",
        "Deleted with it: `target:{id}`, where `id` is its field `nick`.",
        "Belongs to the user in its field `mail`: `keystead erase user:ID` deletes it.",
    )


def test_a_relation_names_a_field_as_it_is_stored() -> None:
    class Owned(BaseModel):
        user_id: str = Field(alias="userId")

    class OwnedKeys(Keyspace):
        target = Value("target:{id}", str, lifetime=after("1h"))
        record = Value(
            "record:{uid}", Owned, lifetime=after("1h"), owns=target.by(id="user_id"), member_of="user:{user_id}"
        )

    assert {entry.name: entry.relations for entry in document(OwnedKeys).families}["record"] == (
        "Deleted with it: `target:{id}`, where `id` is its field `userId`.",
        "Belongs to the user in its field `userId`: `keystead erase user:ID` deletes it.",
    )


def test_a_hash_tag_is_named() -> None:
    assert "- In a cluster, keys with the same `uid` (the hash tag) are" in section(markdown(ShopKeys), "basket")
    assert "slot" not in section(markdown(ShopKeys), "customer")


def test_an_exemption_from_the_naming_rule_is_shown_with_its_reason() -> None:
    class OldKeys(Keyspace):
        ticket = Value("{guid:alnum}", str, lifetime=after("1h"), naming_exempt="the *old* portal writes `it`")
        other = Value("app:other:{id}", str, lifetime=after("1h"))

    assert r"- Exempt from the naming rule: the \*old\* portal writes `it`" in section(markdown(OldKeys), "ticket")
    assert "Exempt" not in section(markdown(OldKeys), "other")
    assert html(OldKeys).count("the *old* portal writes <code>it</code>") == 1


def test_the_fields_of_a_model_are_shown_as_stored() -> None:
    fields, address = tables(section(markdown(ShopKeys), "customer"))
    assert fields == [
        ["field", "type", "required", "sealed", "description"],
        ["uid", "string", "yes", "-", "the number on the card"],
        ["level", '"gold" or "plain"', "yes", "-", "-"],
        ["visits", "integer, 0 to 1000000", "yes", "-", "-"],
        ["home", "Address", "yes", "-", "-"],
        ["others", "list of Address", "yes", "-", "-"],
        ["nick", "string", "no", "-", "-"],
        ["mail", "string or null", "yes", "-", "-"],
        ["token", "string", "yes", "sealed", "for the bank"],
        ["seen_at", "time in ms since 1970", "yes", "-", "-"],
    ]
    assert address == [
        ["field", "type", "required"],
        ["city", "string, at most 50 characters", "yes"],
        ["lines", "list of string", "yes"],
    ]


def test_a_model_in_two_families_is_shown_once_and_linked_from_the_other() -> None:
    text = section(markdown(ShopKeys), "seen")
    assert tables(text) == []
    assert "See the fields of `Address` under [customer](#customer)." in text


def test_a_version_that_is_stamped_on_a_value_is_one_of_its_fields() -> None:
    [fields] = tables(section(markdown(ShopKeys), "order"))
    assert fields[-1][:3] == ["v", "2", "yes"]


def test_a_field_of_a_hash_that_may_be_none_is_not_required() -> None:
    [fields] = tables(section(markdown(ShopKeys), "basket"))
    assert fields[1:] == [
        ["uid", "string", "yes"],
        ["coupon", "string", "no"],
        ["total", "integer, 0 or more", "yes"],
    ]


def test_every_verb_of_every_kind_is_shown_writes_first() -> None:
    head, *rows = tables(markdown(ShopKeys))[-1]
    assert head == ["kind", "writes", "reads"]
    assert [row[0] for row in rows] == list(dict.fromkeys(one.kind_name for one in ShopKeys.families.values()))
    for family in ShopKeys.families.values():
        row = next(row for row in rows if row[0] == family.kind_name)
        told = {verb for cell in row[1:] for verb in cell.split(", ")}
        methods = {name for cls in family.verbs.__mro__ for name in vars(cls) if not name.startswith("_")}
        assert told == methods - {"bound", "key", "values", "alone", *OF_EVERY_KEY}


def test_the_verbs_that_only_read_are_verbs() -> None:
    kinds = {one.kind_name: verbs_of_kind(one.verbs) for one in ShopKeys.families.values()}
    assert len(kinds) == 8
    assert {verb for one in kinds.values() for verb in one.reads} | set(OF_EVERY_KEY) >= READS
    assert all("Atomic" not in (getattr(one.verbs, verb).__doc__ or "") for one in ShopKeys.families.values()
               for verb in kinds[one.kind_name].reads)  # fmt: skip


def test_verbs_that_make_no_sense_for_a_family_are_not_offered() -> None:
    offered = {entry.name: {*entry.operations.writes, *entry.operations.reads} for entry in document(ShopKeys).families}
    assert {name for name, verbs in offered.items() if "touch" in verbs} == {"basket"}
    assert {name for name, verbs in offered.items() if "live" in verbs} == {"customers", "deadlines"}
    assert {name for name, verbs in offered.items() if "compare_and_set" in verbs} == {"mail"}


def test_the_picture_in_markdown_shows_every_relation() -> None:
    drawn = markdown(ShopKeys).partition("```mermaid\n")[2].partition("```")[0].splitlines()
    assert drawn[0] == "flowchart LR"
    assert '    k_customer["shop:customer:{uid}<br>Value, of a user"]' in drawn
    assert [line.strip() for line in drawn if "|" in line] == [
        "k_customers -.->|lists| k_customer",
        "k_customer -->|owns| k_basket",
        "k_customer -->|owns| k_day",
        "k_customer -->|owns| k_mail",
        "k_mail ==>|leads to| k_customer",
        "k_deadlines -.->|lists| k_order",
    ]
    assert "k_bell" not in "\n".join(drawn)


def test_without_relations_there_is_no_diagram() -> None:
    assert "mermaid" not in markdown(PlainKeys)
    assert '<svg width="44"' not in html(PlainKeys)
    assert "Relation diagram" not in html(PlainKeys)


def test_a_keyspace_without_a_docstring_has_a_document() -> None:
    assert headings(markdown(PlainKeys)) == [
        "Plain keys",
        "All keys at a glance",
        "All families",
        "lonely",
        "Operations by kind",
    ]


def test_families_of_a_derived_keyspace_are_not_in_the_document_of_its_base() -> None:
    class BaseKeys(Keyspace):
        index = Set("base:index", str, lifetime=never("x"))

    before = markdown(BaseKeys)

    class MoreKeys(BaseKeys):
        record = Value("more:{id}", str, lifetime=after("1h"), listed_in="index")

    assert markdown(BaseKeys) == before
    assert "Lists `more:{id}` by `id`." in markdown(MoreKeys)


def test_links_lead_to_sections() -> None:
    text = markdown(ShopKeys)
    anchors = {name.lower() for name in ShopKeys.families}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) == anchors
    assert anchors <= {heading.lower() for heading in headings(text)}


def test_odd_texts_stay_as_they_were_written_in_markdown() -> None:
    text = markdown(OddKeys)
    tokens = parsed(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.content for child in inline if child.type == "html_inline"} == {"<br>"}
    assert [token.content for token in tokens if token.type == "html_block"] == [text.splitlines()[0] + "\n"]
    assert not [child for child in inline if child.type in ("em_open", "s_open")]
    assert {child.attrGet("href") for child in inline if child.type == "link_open"} == {"#index", "#record"}
    assert headings(text)[1:] == [
        *("All keys at a glance", "Relation diagram", "All families"),
        *("index", "record", "Operations by kind"),
    ]
    seen = ODD.replace("`c|d`", "c|d")
    [_, index, record] = tables(text)[0]
    assert index[0] == f"odd:`|<b>\"'&amp;\n{seen}"
    assert index[4] == f"never expires: {seen}"
    assert record[0] == f"odd`|<script>:{{id}}[*{{page}}]\n{seen}"
    assert record[6] == f"/a|b, {seen}"
    assert tables(text)[1][1] == ["a|`b", "string", "yes", seen]
    paragraphs = [text_of(token) for token in tokens if token.type == "inline"]
    assert f"Changed: {seen}" in paragraphs
    assert {seen, "# no heading", "1. no list", "- no list", f"Source: {seen}"} <= set(paragraphs)


PRINTABLE = st.text().map(lambda text: " ".join("".join(c for c in text if c.isprintable()).split()))


@given(PRINTABLE)
def test_any_text_is_seen_as_it_is_in_a_cell_and_in_a_paragraph(text: str) -> None:
    plain = text.replace("`", "'")
    [[_, [first, second]]] = tables(f"| a | b |\n|---|---|\n| x{as_cell(plain)} | {as_cell(code(f'x{text}'))} |\n")
    assert first == f"x{plain}"
    assert second == f"x{text}"
    assert [text_of(token) for token in parsed(as_markdown(plain)) if token.type == "inline"] == (
        [plain] if plain else []
    )


@given(PRINTABLE.filter(bool))
def test_any_text_can_be_code(text: str) -> None:
    [inline] = [token for token in parsed(as_markdown(f"so: {code(text)}")) if token.type == "inline"]
    assert [child.content for child in inline.children or () if child.type == "code_inline"] == [text]
    assert HtmlText.of(str(as_html(f"so: {code(text)}"))) == f"so: {text}"


class HtmlText(HTMLParser):
    """The text of a page, its tags and their attributes; fails where tags are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    @classmethod
    def of(cls, text: str) -> str:
        page = cls()
        page.feed(text)
        page.close()
        return "".join(page.said)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.said.append(data)


def page_of(text: str) -> HtmlText:
    page = HtmlText()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


@pytest.mark.parametrize("keyspace", [ShopKeys, PlainKeys, OddKeys])
def test_the_page_is_whole_and_loads_nothing(keyspace: type[Keyspace]) -> None:
    page = page_of(html(keyspace))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert [name for name, count in Tally(ids).items() if count > 1] == []
    targets = [
        value or "" for _, attributes in page.tags for name, value in attributes.items() if name in ("href", "src")
    ]
    assert [target for target in targets if not target.startswith(("#", "data:"))] == []
    assert {target[1:] for target in targets if target.startswith("#")} <= set(ids)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "iframe", "object", "font"})
    assert "@import" not in html(keyspace)
    assert "url(http" not in html(keyspace)


def test_the_html_page_equals_the_markdown() -> None:
    said = " ".join("".join(page_of(html(ShopKeys)).said).split())
    for entry in document(ShopKeys).families:
        for prose in (entry.key, entry.example, entry.doc, entry.short_value, entry.lifetime, *entry.relations):
            assert prose.replace("`", "") in said
        assert all(field.name in said and field.description in said for one in entry.models for field in one.fields)
    assert "Changed: The token is sealed; before, it was plain." in said
    assert "Baskets end; before, nobody removed them." in said


def test_odd_texts_stay_as_they_were_written_in_html() -> None:
    said = "".join(page_of(html(OddKeys)).said)
    seen = ODD.replace("`c|d`", "c|d")
    assert said.count(seen) == 11
    assert "odd`|<script>:{id}[*{page}]" in said


@pytest.mark.everyday("html")
@pytest.mark.parametrize("make", [markdown, html])
def test_the_document_is_the_same_in_every_process(make: object, tmp_path: Path) -> None:
    name = "markdown" if make is markdown else "html"
    program = (
        f"import sys; from tests.schema.test_docs import ShopKeys; from keystead.schema.docs import {name}; "
        f"sys.stdout.write({name}(ShopKeys))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
            timeout=300,
        ).stdout.decode()
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].endswith("\n")
    assert len(said[0]) > 4000


def test_the_index_leads_to_every_document_and_every_key() -> None:
    files = {"shop.md": ShopKeys, "plain.md": PlainKeys}
    documents, keys = tables(markdown_index(files))
    assert documents[1:] == [
        ["Shop keys", "A shop: customers, what they want to buy, and what they bought.", "12"],
        ["Plain keys", "-", "1"],
    ]
    assert [row[0] for row in keys[1:]] == [
        family.pattern.display for one in files.values() for family in one.families.values()
    ]
    assert "(shop.md#customer)" in markdown_index(files)
    page = page_of(html_index({"shop.html": ShopKeys}))
    assert "shop.html#customer" in [attributes.get("href") for _, attributes in page.tags]


def test_generated_files_carry_the_marker() -> None:
    for text in (markdown(ShopKeys), html(ShopKeys), markdown_index({}), html_index({})):
        assert is_made(text)
    assert not is_made("# Notes\n\nSomebody wrote this about `keystead docs`.\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SharingKeys", "Sharing keys"),
        ("URLKeys", "URL keys"),
        ("Keys", "Keys"),
        ("app_keys", "App keys"),
        ("K", "K"),
    ],
)
def test_the_title_is_the_name_of_the_class_in_words(name: str, said: str) -> None:
    assert in_words(name) == said


def overlapping(one: Box, other: Box) -> bool:
    apart = one.x + one.width <= other.x or other.x + other.width <= one.x
    return not (apart or one.y + one.height <= other.y or other.y + other.height <= one.y)


def drawn(edges: list[Edge], names: list[str]) -> KeyDocument:
    """A document whose families have these names and relations."""
    whole = document(PlainKeys)
    entries = tuple(dataclasses.replace(whole.families[0], name=name, key=f"key:{name}") for name in names)
    return dataclasses.replace(whole, families=entries, edges=tuple(edges))


NAMES = [f"f{number}" for number in range(9)]


@given(
    st.lists(
        st.builds(Edge, st.sampled_from(NAMES), st.sampled_from([OWNS, LISTS]), st.sampled_from(NAMES)),
        unique=True,
        max_size=16,
    )
)
def test_in_the_picture_no_box_lies_on_another_and_all_is_inside(edges: list[Edge]) -> None:
    picture = diagram(drawn(edges, NAMES))
    between = [edge for edge in edges if edge.start != edge.end]
    if picture is None:
        assert between == []
        return
    assert {box.name for box in picture.boxes} == {name for edge in between for name in (edge.start, edge.end)}
    assert sorted((one.start, one.says, one.end) for one in picture.arrows) == sorted(between)
    boxes = picture.boxes
    assert not [pair for n, one in enumerate(boxes) for other in boxes[:n] if overlapping(one, pair := other)]
    assert all(box.x >= 0 and box.x + box.width <= picture.width for box in boxes)
    assert all(box.y >= 0 and box.y + box.height <= picture.height for box in boxes)


def test_an_arrow_points_from_source_to_target() -> None:
    picture = diagram(drawn([Edge("f0", OWNS, "f1"), Edge("f1", OWNS, "f2"), Edge("f2", LISTS, "f0")], NAMES[:3]))
    assert picture is not None
    box = {one.name: one for one in picture.boxes}
    assert box["f0"].x < box["f1"].x < box["f2"].x
    for arrow in picture.arrows:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", arrow.path)]
        start, end = box[arrow.start], box[arrow.end]
        assert numbers[0] in (start.x, start.x + start.width)
        assert numbers[-2] in (end.x, end.x + end.width)
        assert end.y < numbers[-1] < end.y + end.height


def test_a_relation_across_a_layer_is_routed_around_boxes() -> None:
    picture = diagram(drawn([Edge("f0", OWNS, "f1"), Edge("f1", OWNS, "f2"), Edge("f0", LISTS, "f2")], NAMES[:3]))
    assert picture is not None
    middle = next(box for box in picture.boxes if box.name == "f1")
    long = next(arrow for arrow in picture.arrows if arrow.says == LISTS)
    points = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)(?=C|$)", long.path)]
    passing = [y for x, y in points if middle.x <= x <= middle.x + middle.width]
    assert len(passing) == 2
    assert not [y for y in passing if middle.y <= y <= middle.y + middle.height]


def test_a_long_key_is_broken_in_the_picture() -> None:
    class LongKeys(Keyspace):
        owned = Value("a-rather-long-domain:and-a-long-entity:{identifier}:scope", str, lifetime=after("1h"))
        owner = Value("owner:{identifier}", str, lifetime=after("1h"), owns=owned)

    picture = diagram(document(LongKeys))
    assert picture is not None
    [box] = [box for box in picture.boxes if box.name == "owned"]
    assert "".join(box.lines) == "a-rather-long-domain:and-a-long-entity:{identifier}:scope"
    assert len(box.lines) > 1
    assert box.width < 300

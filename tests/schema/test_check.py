"""`check`: for each code an invalid declaration, and a valid one without findings."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from keystead.errors import BadDeclaration
from keystead.schema import (
    Channel,
    Counter,
    Family,
    Hash,
    KeyRing,
    Keyspace,
    Lifetime,
    Set,
    SortedSet,
    Steps,
    Value,
    Versions,
    after,
    end_of_day,
    never,
    placeholder,
    procedure,
    sliding,
    until,
)
from keystead.schema.check import check
from keystead.schema.docs import markdown
from keystead.schema.finding import CODES, Finding
from keystead.schema.keyspace import with_parts
from keystead.stores import Guarantees

DAY = after("1d")
EVICTING = Guarantees(evicts=True)
SLOTS = Guarantees(atomic="one slot")


def keyspace(name: str = "AppKeys", naming: Any = None, **families: Family[Any]) -> type[Keyspace]:
    return type(name, (Keyspace,), {**families, "naming": naming})


def value(pattern: str, **options: Any) -> Value[str]:
    return Value(pattern, str, **{"lifetime": DAY, "doc": "a value", **options})


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def good(declare: Callable[[], object]) -> None:
    """It is declared, and where it is a keyspace nothing is found in it."""
    declared = declare()
    if isinstance(declared, type) and issubclass(declared, Keyspace):
        assert check([declared]) == []


def upgrade(old: dict[str, Any]) -> dict[str, Any]:
    return old


# Errors on import: the code, the invalid declaration, and a valid one.
AT_IMPORT: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
    (
        "bad-declaration",
        lambda: keyspace(stores=value("user:{uid}")),
        lambda: keyspace(users=value("user:{uid}")),
    ),
    ("bad-pattern", lambda: value("user:{uid"), lambda: value("user:{uid}")),
    ("ambiguous-pattern", lambda: value("user:{uid}{device}"), lambda: value("user:{uid}:{device}")),
    (
        "bad-placeholder",
        lambda: placeholder("text", str, render=str, parse=str),
        lambda: placeholder("check_tests", str, render=str, parse=str),
    ),
    ("no-lifetime", lambda: value("user:{uid}", lifetime=None), lambda: value("user:{uid}")),
    ("bad-lifetime", lambda: after(30), lambda: after("30d")),  # type: ignore[arg-type]
    ("bad-role", lambda: value("user:{uid}", role="my cache"), lambda: value("user:{uid}", role="my_cache")),
    (
        "bad-value-type",
        lambda: Hash("user:{uid}", str, lifetime=DAY),  # type: ignore[type-var]
        lambda: Hash("user:{uid}", dict[str, str], lifetime=DAY),
    ),
    ("bad-version", lambda: Versions("ver", 3, {1: upgrade}), lambda: Versions("ver", 3, {1: upgrade, 2: upgrade})),
    ("bad-seal-key", lambda: KeyRing({"2026": b"short"}), lambda: KeyRing({"2026": bytes(32)})),
    (
        "dangling-relation",
        lambda: keyspace(user=value("user:{uid}", owns="tokn"), token=value("token:{uid}")),
        lambda: keyspace(user=value("user:{uid}", owns="token"), token=value("token:{uid}")),
    ),
    (
        "circular-relation",
        lambda: keyspace(a=value("a:{id}", owns="b"), b=value("b:{id}", owns="a")),
        lambda: keyspace(a=value("a:{id}", owns="b"), b=value("b:{id}", leads_to="a")),
    ),
]


@pytest.mark.parametrize(("code", "bad", "fine"), [pytest.param(*row, id=row[0]) for row in AT_IMPORT])
def test_a_bad_declaration_is_raised_at_import_under_its_code(
    code: str, bad: Callable[[], object], fine: Callable[[], object]
) -> None:
    with pytest.raises(BadDeclaration) as raised:
        bad()
    assert raised.value.finding == code
    assert CODES[code].tool == "check"
    good(fine)


def test_families_that_are_declared_well_have_no_findings() -> None:
    tokens = SortedSet("tokens", str, lifetime=never("pruned by readers"), doc="all tokens")
    token = value("token:{id}", listed_in=tokens)
    assert check([keyspace(tokens=tokens, token=token, user=value("user:{uid}"))]) == []


def test_overlap_names_both_sides_and_a_key_that_both_make() -> None:
    user, count = value("user:{uid}"), Counter("user:count", lifetime=DAY, doc="how many")
    [finding] = check([keyspace(user=user, count=count)])
    assert finding.code == "overlap"
    assert finding.family == "AppKeys.user"
    assert "AppKeys.user (user:{uid})" in finding.sentence
    assert "AppKeys.count (user:count)" in finding.sentence
    assert finding.key == "user:count"
    assert "user:count" in finding.sentence
    assert user.pattern.parse(finding.key) is not None
    assert count.pattern.parse(finding.key) is not None


def test_families_that_cannot_meet_do_not_overlap() -> None:
    assert check([keyspace(user=value("user:{uid:int}"), count=value("user:count"), users=value("users:{uid}"))]) == []


def test_overlap_is_found_between_two_keyspaces() -> None:
    one, other = keyspace("ShopKeys", cart=value("cart:{uid}")), keyspace("SiteKeys", basket=value("cart:{id}"))
    [finding] = check([one, other])
    assert finding.code == "overlap"
    assert "ShopKeys.cart (cart:{uid})" in finding.sentence
    assert "SiteKeys.basket (cart:{id})" in finding.sentence


def test_a_family_does_not_overlap_with_itself_in_a_derived_keyspace() -> None:
    base = keyspace("BaseKeys", user=value("user:{uid}"))
    derived = type("MoreKeys", (base,), {"token": value("token:{id}")})
    assert check([base, derived]) == []


def test_a_channel_overlaps_with_channels_and_not_with_keys() -> None:
    first, second = Channel("news:{uid}", str, doc="a channel"), Channel("news:{topic}", str, doc="a channel")
    assert check([keyspace(first=first, record=value("news:{uid}"))]) == []
    [finding] = check([keyspace(first=first), keyspace("MoreKeys", second=second)])
    assert finding.code == "overlap"
    assert "the channel news:" in finding.sentence


def test_roles_may_share_a_store_until_stores_are_given() -> None:
    keys = keyspace(record=value("user:{uid}"), copy=value("user:{uid}", role="cache"))
    assert codes(check([keys])) == ["overlap"]
    here, there = ("redis://here", Guarantees()), ("redis://there", Guarantees())
    assert codes(check([keys], {"default": here})) == ["overlap"]
    assert codes(check([keys], {"default": here, "cache": here})) == ["overlap"]
    assert check([keys], {"default": here, "cache": there}) == []


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("{uid}:profile:x", "the domain is '{uid}'"),
        ("app", "there is no entity"),
        ("app:{uid}", "the entity is '{uid}'"),
        ("app:user-{uid}", "the entity is 'user-{uid}'"),
        ("app:profile:{uid}_{part}", "'{uid}_{part}' in the scope"),
        ("app:profile:{uid}[_{page}]", "'{uid}[_{page}]' in the scope"),
        ("app:profile::{uid}", "'' in the scope"),
    ],
)
def test_naming_reports_the_offending_segment(pattern: str, said: str) -> None:
    [finding] = check([keyspace(naming="domain:entity:scope", one=value(pattern))])
    assert finding.code == "naming"
    assert said in finding.sentence
    assert check([keyspace(one=value(pattern))]) == []


@pytest.mark.parametrize("pattern", ["app:index", "app:profile:{uid}", "app:profile:{uid:token<=120}:parts:{day:date}"])
def test_a_key_that_follows_the_naming_rule_is_not_a_finding(pattern: str) -> None:
    assert check([keyspace(naming="domain:entity:scope", one=value(pattern))]) == []


def test_an_exemption_with_its_reason_lets_one_family_break_the_naming_rule() -> None:
    exempt = value("{guid:alnum}", naming_exempt="  the old portal\n writes it ")
    assert exempt.naming_exempt == "the old portal writes it"
    assert check([keyspace(naming="domain:entity:scope", ticket=exempt)]) == []
    [finding] = check([keyspace(naming="domain:entity:scope", ticket=exempt, profile=value("profile-{uid}"))])
    assert (finding.code, finding.family) == ("naming", "AppKeys.profile")


def test_a_needless_exemption_is_reported() -> None:
    def found(pattern: str, naming: str | None) -> Finding:
        exempt = value(pattern, naming_exempt="the old portal writes it")
        [finding] = check([keyspace(naming=naming, one=exempt)])
        return finding

    follows = found("app:profile:{uid}", "domain:entity:scope")
    assert (follows.code, follows.severity, follows.family) == ("naming-exemption", "warning", "AppKeys.one")
    assert "its keys follow the rule" in follows.sentence
    no_rule = found("{guid:alnum}", None)
    assert no_rule.code == "naming-exemption"
    assert "no naming rule" in no_rule.sentence


def test_an_exemption_of_a_family_that_a_stricter_keyspace_inherits_is_needed() -> None:
    loose = keyspace("LooseKeys", ticket=value("{guid:alnum}", naming_exempt="the old portal writes it"))
    strict = type("StrictKeys", (loose,), {"naming": "domain:entity:scope"})
    assert check([loose, strict]) == []
    assert codes(check([loose])) == ["naming-exemption"]


@pytest.mark.parametrize("reason", ["", "   ", "-", True, 42])
def test_an_exemption_without_a_reason_in_words_is_refused(reason: Any) -> None:
    with pytest.raises(BadDeclaration, match="needs a reason in words"):
        value("{uid}", naming_exempt=reason)
    with pytest.raises(BadDeclaration, match="needs a reason in words"):
        Channel("{uid}", str, naming_exempt=reason)


def test_a_keyspace_can_only_require_the_known_naming_rule() -> None:
    with pytest.raises(BadDeclaration, match="naming must be 'domain:entity:scope'"):
        keyspace(naming="domain:entity", one=value("app:profile:{uid}"))


def test_role_unfit_gives_the_reason() -> None:
    stores = {"default": ("sqlite:///a.db", Guarantees()), "cache": ("evicting://", EVICTING)}
    [finding] = check([keyspace(cart=value("cart:{uid}"))], {"default": stores["cache"]})
    assert finding.code == "role-unfit"
    assert finding.family == "AppKeys.cart"
    assert "evicting://" in finding.sentence
    assert check([keyspace(cart=value("cart:{uid}"), page=value("page:{id}", role="cache"))], stores) == []


def test_role_unfit_is_a_role_without_a_store() -> None:
    stores = {"cache": ("sqlite:///a.db", Guarantees())}
    [finding] = check([keyspace(cart=value("cart:{uid}"))], stores)
    assert (finding.code, "'default'" in finding.sentence) == ("role-unfit", True)
    assert check([keyspace(cart=value("cart:{uid}", role="cache"))], stores) == []


def test_role_unfit_is_an_index_in_another_store_than_its_records() -> None:
    index = Set("carts", str, lifetime=never("pruned"), doc="all carts", role="durable")
    keys = keyspace(index=index, cart=value("cart:{uid}", listed_in=index))
    here, there = ("sqlite:///a.db", Guarantees()), ("sqlite:///b.db", Guarantees())
    [finding] = check([keys], {"default": here, "durable": there})
    assert finding.code == "role-unfit"
    assert finding.family == "AppKeys.cart"
    assert "AppKeys.index (carts)" in finding.sentence
    assert check([keys], {"default": here}) == []


def test_role_weak_warns_of_weaker_guarantees_than_the_role() -> None:
    keys = keyspace(order=value("order:{id}", role="durable"))
    [finding] = check([keys], {"default": ("memory://", Guarantees(durability="memory"))})
    assert (finding.code, finding.severity) == ("role-weak", "warning")
    assert "memory://" in finding.sentence
    assert check([keys], {"default": ("sqlite:///a.db", Guarantees())}) == []


def sessions(**tags: str) -> type[Keyspace]:
    """A record that is listed in an index and owns a lock, each with the tag that is given."""
    tag = tags.get
    index = Set("sessions:{uid}", str, lifetime=never("pruned"), doc="sessions", tag=tag("index"))
    lock = value("lock:{uid}:{sid}", tag=tag("lock"))
    session = value("session:{uid}:{sid}", listed_in=index, owns=lock, tag=tag("session"))
    return keyspace(index=index, lock=lock, session=session)


def test_cross_slot_names_both_families_and_the_consequence() -> None:
    listed, owned = check([sessions()], cluster=True)
    assert codes([listed, owned]) == ["cross-slot", "cross-slot"]
    assert listed.family == owned.family == "AppKeys.session"
    assert "AppKeys.index (sessions:{uid})" in listed.sentence
    assert "readers skip and prune" in listed.sentence
    assert "AppKeys.lock (lock:{uid}:{sid})" in owned.sentence
    assert "orphan" in owned.sentence


def test_relations_within_one_slot_are_not_a_finding() -> None:
    assert check([sessions(index="uid", lock="uid", session="uid")], cluster=True) == []


def test_tags_of_two_placeholders_are_two_slots() -> None:
    assert codes(check([sessions(index="uid", lock="sid", session="sid")], cluster=True)) == ["cross-slot"]
    assert codes(check([sessions(index="uid", lock="sid", session="uid")], cluster=True)) == ["cross-slot"]


def test_slots_matter_only_in_a_cluster() -> None:
    assert check([sessions()]) == []
    assert check([sessions()], {"default": ("redis://one", Guarantees())}) == []
    assert codes(check([sessions()], {"default": ("redis+cluster://many", SLOTS)})) == ["cross-slot", "cross-slot"]


def test_a_relation_that_no_tag_can_fix_is_not_a_finding() -> None:
    parts = value("part:{uid}:{number:int}")
    found_by_scan = keyspace(parts=parts, file=value("file:{uid}", owns=parts))
    assert check([found_by_scan], cluster=True) == []
    copy = value("copy:{uid}", role="cache")
    in_two_stores = keyspace(copy=copy, user=value("user:{uid}", owns=copy))
    one, other = ("redis+cluster://one", SLOTS), ("redis+cluster://other", SLOTS)
    assert check([in_two_stores], {"default": one, "cache": other}) == []
    assert codes(check([in_two_stores], {"default": one})) == ["cross-slot"]


SLIDING_DAY = sliding("1d", touch_every="1h")
FOR_EVER = never("removed by hand")

# The lifetime of an index, that of its records, and why the index can expire first.
TOO_SHORT: list[tuple[Lifetime, Lifetime, str]] = [
    (SLIDING_DAY, after("30d"), "after 1 day, the record after 30 days"),
    (SLIDING_DAY, sliding("30d", touch_every="1h"), "after 1 day, the record after 30 days"),
    (SLIDING_DAY, until("ends_at", at_most="2d"), "after 1 day, the record after 2 days"),
    (SLIDING_DAY, until("ends_at"), "the record has no maximum lifetime"),
    (SLIDING_DAY, end_of_day("UTC"), "after 1 day, the record after 1 day 1 hour"),
    (SLIDING_DAY, FOR_EVER, "the record never expires"),
    (until("ends_at"), FOR_EVER, "the record never expires"),
    (until("ends_at"), SLIDING_DAY, "a touch extends the record"),
    (until("ends_at", at_most="1h"), after("2h"), "after 1 hour, the record after 2 hours"),
    (after("1h"), after("1d"), "later entries do not extend its deadline"),
    (after("30d"), after("1d"), "later entries do not extend its deadline"),
    (end_of_day("UTC"), end_of_day("Asia/Tokyo"), "later entries do not extend its deadline"),
]
LONG_ENOUGH: list[tuple[Lifetime, Lifetime]] = [
    (FOR_EVER, FOR_EVER),
    (FOR_EVER, after("30d")),
    (SLIDING_DAY, after("1d")),
    (SLIDING_DAY, SLIDING_DAY),
    (SLIDING_DAY, until("ends_at", at_most="1d")),
    (until("ends_at"), until("ends_at")),
    (until("ends_at"), after("30d")),
    (until("ends_at", at_most="2d"), end_of_day("UTC")),
    (end_of_day("UTC"), end_of_day("UTC")),
]


def listed(index: Lifetime, record: Lifetime) -> type[Keyspace]:
    names = Set("names", str, lifetime=index, doc="all names")
    return keyspace(names=names, record=value("record:{id}", lifetime=record, listed_in=names))


@pytest.mark.parametrize(("index", "record", "why"), TOO_SHORT)
def test_index_too_short_names_the_records_that_it_can_lose(index: Lifetime, record: Lifetime, why: str) -> None:
    [finding] = check([listed(index, record)])
    assert finding.code == "index-too-short"
    assert finding.where == "AppKeys.names (names)"
    assert "AppKeys.record (record:{id})" in finding.sentence
    assert why in finding.sentence


@pytest.mark.parametrize(("index", "record"), LONG_ENOUGH)
def test_an_index_that_outlives_its_records_is_not_a_finding(index: Lifetime, record: Lifetime) -> None:
    assert check([listed(index, record)]) == []


def test_outlives_owner_names_the_family_that_stays_when_its_owner_expires() -> None:
    def owned(owner: Lifetime, part: Lifetime) -> list[Finding]:
        parts = Value("part:{id}", str, lifetime=part, doc="a part")
        return check([keyspace(parts=parts, owner=Value("own:{id}", str, lifetime=owner, owns=parts, doc="an owner"))])

    [finding] = owned(DAY, never("deleted with its owner"))
    assert (finding.code, finding.where) == ("outlives-owner", "AppKeys.parts (part:{id})")
    assert "AppKeys.owner (own:{id})" in finding.sentence
    assert owned(never("x"), never("x")) == owned(DAY, DAY) == owned(never("x"), DAY) == []


def test_until_field_is_a_moment_that_is_misspelt() -> None:
    class Link(BaseModel):
        to: str
        expires_at: int

    def lives_until(name: str, type_: type[Any] = Link) -> list[Finding]:
        return check([keyspace(share=Value("share:{id}", type_, lifetime=until(name), doc="a link"))])

    for misspelt in ("expire_at", "expires_att", "expiresAt", "expiry_at"):
        [finding] = lives_until(misspelt)
        assert (finding.code, finding.family) == ("until-field", "AppKeys.share")
        assert "'expires_at'" in finding.sentence
    # A moment passed with each write is not a field, and a value without fields cannot have it.
    assert lives_until("expires_at") == lives_until("lease_ends") == lives_until("expires_at", str) == []


def test_parts_are_keyspaces() -> None:
    with pytest.raises(BadDeclaration, match="part_keyspaces"):
        type("AppKeys", (Keyspace,), {"part_keyspaces": "outbox"})
    part = keyspace("PartKeys", part=value("part:{id}"))
    inner = type("InnerKeys", (Keyspace,), {"part_keyspaces": (part,)})
    outer = type("OuterKeys", (Keyspace,), {"part_keyspaces": (inner, part)})
    assert with_parts([outer, inner]) == [outer, inner, part]


def test_undocumented_is_a_warning() -> None:
    [finding] = check([keyspace(user=value("user:{uid}", doc=""), token=value("token:{id}"))])
    assert (finding.code, finding.severity, finding.family) == ("undocumented", "warning", "AppKeys.user")


def test_findings_come_in_the_same_order_each_time() -> None:
    keys = keyspace(b=value("k:{x}", doc=""), a=value("k:{y}", doc=""), index=Set("k:i", str, lifetime=DAY, doc=""))
    found = check([keys], cluster=True)
    assert found == check([keys], cluster=True)
    assert codes(found) == ["overlap"] * 3 + ["undocumented"] * 3
    assert [finding.family for finding in found[3:]] == ["AppKeys.b", "AppKeys.a", "AppKeys.index"]


def test_a_hundred_families_are_compared_with_each_other() -> None:
    families: dict[str, Any] = {f"f{n}": value(f"app:{{uid<=120}}:entity{n}:{{id:token}}") for n in range(100)}
    [finding] = check([keyspace(**families, last=value("app:{uid}:entity99:{id}"))])
    assert finding.family == "AppKeys.f99"


# Few characters, and among them those that are escaped and those that literals begin with: so that patterns meet.
CHARACTERS = "ab1:%-"
segments = st.one_of(
    st.sampled_from(["a", "b", "ab", "1", "a-b"]),
    st.sampled_from(["{x}", "{x:int}", "{x:slug}", "{x:token}", "{x<=64}", "a{x}", "{x}b", "{x}-{y}", "{x}a{y:int}"]),
)
patterns = st.lists(segments, min_size=1, max_size=3).map(
    lambda parts: ":".join(part.replace("x", f"x{n}").replace("y", f"y{n}") for n, part in enumerate(parts))
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(CHARACTERS, min_size=1, max_size=4),
    "token": st.text("ab1-", min_size=1, max_size=4),
    "slug": st.text("ab1", min_size=1, max_size=4),
    "int": st.integers(-11, 111),
}


@given(st.data(), patterns, patterns)
def test_no_two_families_that_pass_the_check_render_one_key(data: st.DataObject, first: str, second: str) -> None:
    one, other = value(first), value(second)
    found = check([keyspace(one=one, other=other)])
    if found:
        # The example is real: both patterns parse it.
        [finding] = found
        assert finding.key is not None
        assert one.pattern.parse(finding.key) is not None
        assert other.pattern.parse(finding.key) is not None
        return
    for family, stranger in ((one, other), (other, one)):
        values = {name: data.draw(VALUES[kind.name], label=name) for name, kind in family.pattern.types.items()}
        assert stranger.pattern.parse(family.pattern.render(values)) is None


class Shop(Keyspace):
    stock = Counter("stock:{sku}", lifetime=never("inventory"), doc="pieces left")
    orders = Set("customer:{who}:orders", str, lifetime=never("deleted by hand"), doc="orders of a customer")

    @procedure
    def both(self, who: str, sku: str) -> Steps[None]:
        return Steps(self.orders(who).add("x"), self.stock(sku).increment())

    @procedure(ordered="the nightly count")
    def in_order(self, who: str, sku: str) -> Steps[None]:
        return Steps(self.orders(who).add("x"), self.stock(sku).increment())

    @procedure
    def one(self, sku: str) -> Steps[None]:
        return Steps(self.stock(sku).at_least(1), self.stock(sku).increment())


def test_a_procedure_that_a_cluster_refuses_is_found() -> None:
    assert [(one.code, one.where) for one in check([Shop], cluster=True)] == [("procedure-cross-slot", "Shop.both")]
    assert check([Shop]) == []


def test_a_procedure_that_cannot_be_followed_is_found() -> None:
    class Odd(Keyspace):
        n = Counter("n:{id}", lifetime=never("test"), doc="a number")

        @procedure
        def odd(self, id: str) -> Steps[None]:
            """Something."""
            return Steps(*(self.n(str(one)).increment() for one in range(int(id))))

    assert [(one.code, one.where) for one in check([Odd])] == [("procedure-unknown", "Odd.odd")]
    assert "The steps of `odd` cannot be determined" in markdown(Odd)

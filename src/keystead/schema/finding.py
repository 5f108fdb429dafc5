"""Findings of `keystead check` and `keystead doctor`, and the catalogue of their codes.

A code never changes between releases; the messages may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Tool: TypeAlias = Literal["check", "doctor"]
Severity: TypeAlias = Literal["error", "warning"]

PAGE: Final = "docs/reference/findings.md"


@dataclass(frozen=True)
class Code:
    """One kind of finding, as on the catalogue page."""

    name: str
    tool: Tool
    severity: Severity
    title: str
    meaning: str
    remedy: str
    example: str

    @property
    def link(self) -> str:
        """The link to the catalogue page."""
        return f"{PAGE}#{self.name}"


@dataclass(frozen=True)
class Finding:
    """One problem, where it is, and what to do.

    `code` is a name of the catalogue (KeyError otherwise); `where` is for people: a family, a file and line, a key.
    `family` is `AppKeys.token`, if it is about one family; `key` is a key of the store, or an example of one.
    """

    code: str
    where: str
    sentence: str
    remedy: str
    family: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise KeyError(f"{self.code!r} is not a code of the catalogue")

    @property
    def severity(self) -> Severity:
        return CODES[self.code].severity

    @property
    def link(self) -> str:
        return CODES[self.code].link

    @property
    def guide(self) -> str:
        """The command that opens the catalogue page."""
        return f"keystead guide findings#{self.code}"

    def as_json(self) -> dict[str, str | None]:
        """For `--json`: every field, and the catalogue entry of the code."""
        return {
            "code": self.code,
            "severity": self.severity,
            "where": self.where,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "family": self.family,
            "key": self.key,
            "link": self.link,
        }


def _catalogue(*codes: Code) -> dict[str, Code]:
    return {code.name: code for code in codes}


_DECLARED_WRONGLY = _catalogue(
    Code(
        "bad-declaration",
        "check",
        "error",
        "An invalid declaration of a family or keyspace",
        "Something in the declaration contradicts itself: one family under two names, or a name that every keyspace "
        "already has.",
        "Follow the message; it names the family.",
        'stores = Value("user:{uid}", str, lifetime=after("1d"))  # every keyspace has `stores`',
    ),
    Code(
        "bad-pattern",
        "check",
        "error",
        "A malformed pattern",
        "The pattern is empty, has a brace that is not closed, names a placeholder twice, or names a type or a tag "
        "that does not exist.",
        "Write literal text with placeholders, such as `user:{uid}:sessions`; the message gives the position of the "
        "error.",
        'Value("user:{uid", str, ...)  # write "user:{uid}"',
    ),
    Code(
        "ambiguous-pattern",
        "check",
        "error",
        "A pattern with ambiguous keys",
        "Two placeholders are adjacent, with nothing that ends the first, so a key cannot be parsed back.",
        "Put a literal between them, preferably a colon.",
        'Value("user:{uid}{device}", str, ...)  # write "user:{uid}:{device}"',
    ),
    Code(
        "bad-placeholder",
        "check",
        "error",
        "An invalid placeholder type",
        "A custom type has a name that is taken or cannot be written in a pattern, or functions or characters "
        "that do not fit together.",
        "Follow the message at the call of `placeholder(...)`.",
        'placeholder("text", ...)  # Keystead has a type of this name; choose another',
    ),
    Code(
        "no-lifetime",
        "check",
        "error",
        "A family without a lifetime",
        "Every family must state its lifetime: otherwise keys could live forever by accident.",
        'Write `lifetime=after("30d")`, `sliding(...)`, `until(...)`, `end_of_day(...)`, or `never("why")` with the '
        "reason.",
        'Value("user:{uid}", str)  # add lifetime=after("30d")',
    ),
    Code(
        "bad-lifetime",
        "check",
        "error",
        "An invalid lifetime",
        "A number without a unit, a time of zero, a field that the value does not have, an unknown time zone, or a "
        "`never` without a reason.",
        "Write durations with units, and name a field that the model has.",
        'Value("user:{uid}", str, lifetime=after(30))  # 30 of what? Write after("30d")',
    ),
    Code(
        "bad-role",
        "check",
        "error",
        "An invalid role name",
        "A role is an identifier, because stores are given by role as keyword arguments: `AppKeys(store, "
        "cache=other)`.",
        "Write `default`, `durable`, `cache`, or a custom name.",
        'Value("user:{uid}", str, role="my cache", ...)  # write role="my_cache"',
    ),
    Code(
        "bad-value-type",
        "check",
        "error",
        "A value that cannot be stored",
        "Values are Pydantic models or plain types with a JSON form. This type has none, or its kind of "
        "family cannot hold it.",
        "Use a Pydantic model or a plain type, or give the family a custom codec.",
        'Hash("session:{sid}", str, ...)  # a Hash holds a model or a dict such as dict[str, str]',
    ),
    Code(
        "bad-version",
        "check",
        "error",
        "Schema versions with gaps",
        "A versioned value names its current version, and for every older one an upgrader to the next.",
        "Add the missing upgrader, or correct the version.",
        'Versions("ver", 3, {1: from_1})  # nothing leads from 2 to 3',
    ),
    Code(
        "bad-seal-key",
        "check",
        "error",
        "An invalid key for sealed fields",
        "A key ring has keys of 32 bytes with short ids; one of them is malformed.",
        "Create one as the message says, and keep old keys in the ring until nothing is sealed with them.",
        'KeyRing({"2026": b"short"})  # a key has 32 bytes',
    ),
    Code(
        "dangling-relation",
        "check",
        "error",
        "A relation without a valid target",
        "`listed_in`, `owns`, `leads_to` or `member_of` names a family that the keyspace does not have, or needs a "
        "placeholder that neither the key nor the value determines.",
        "Name a family of the same keyspace, and state the origin of its placeholders: "
        '`owns=token.by(short="short_token")`.',
        'Value("user:{uid}", str, owns="tokn", ...)  # there is no family tokn; write "token"',
    ),
    Code(
        "circular-relation",
        "check",
        "error",
        "Families that own each other",
        "A family owns itself through others, so a cascading delete would never end.",
        "Decide which of them is the owner, and remove `owns` from the other; a mapping back is `leads_to`.",
        'a = Value("a:{id}", str, owns="b", ...)\nb = Value("b:{id}", str, owns="a", ...)  # write leads_to="a"',
    ),
)

_DECLARED_UNSOUNDLY = _catalogue(
    Code(
        "overlap",
        "check",
        "error",
        "Two families that can produce the same key",
        "Both patterns can render the same key, so one family would read, overwrite or delete what the other wrote. "
        "Families of all given keyspaces are compared, if their roles can share a store. Channels are only compared "
        "with channels: they are not keys.",
        "Give one of them another literal, or a placeholder type that cannot produce the text of the other.",
        'profile = Value("user:{uid}", Profile, ...)\n'
        'count = Counter("user:count", ...)  # the key of a user whose uid is "count"',
    ),
    Code(
        "role-unfit",
        "check",
        "error",
        "A store that does not fit a family",
        "The family needs guarantees that the store of its role does not give: its kind, atomic steps, lifetimes as "
        "short, no eviction, or one store for a record and its index. The program would refuse to "
        "start.",
        "Give the role a store with these guarantees (`--store role=URL`), or change what the family needs.",
        'cart = Value("cart:{uid}", Cart, ...)  # in a store that may evict; only role="cache" allows that',
    ),
    Code(
        "role-weak",
        "check",
        "warning",
        "A store with weaker guarantees than the role states",
        "The program starts, but the store guarantees less than the role states, some keys may be too long for it, or "
        "their tokens may be found there for a while after they were used.",
        "Give the role another store, or bound the segments of the pattern.",
        'order = Value("order:{id}", Order, role="durable", ...)  # in memory://',
    ),
    Code(
        "cross-slot",
        "check",
        "warning",
        "A relation across the slots of a cluster",
        "The two keys of a relation may be in different slots, so they cannot be changed in one atomic step. "
        "Keystead then uses an order that survives an interruption: an entry is written before its record, a "
        "key is deleted before what it owns. Leftovers of an interruption are pruned by readers or found by `keystead "
        "doctor`. Such an operation cannot be part of `atomically`.",
        "If it must be atomic, give both families the same `tag`; otherwise accept two steps.",
        'sessions = Set("sessions:{uid}", str, tag="uid", ...)\n'
        'session = Value("session:{uid}:{sid}", Session, listed_in=sessions, ...)  # add tag="uid"',
    ),
    Code(
        "procedure-cross-slot",
        "check",
        "error",
        "A procedure across the slots of a cluster",
        "The keys of a procedure may be in different slots, which a cluster cannot change atomically. There it is "
        "refused, each time it is called.",
        "Give its families the same `tag`, or declare it `ordered`, with what repairs an interruption.",
        '@procedure(ordered="`keystead doctor` finds a record that is in no index")\n'
        "def reserve(self, sku: str, id: str) -> Steps[int]: ...",
    ),
    Code(
        "procedure-unknown",
        "check",
        "warning",
        "A procedure whose steps cannot be determined",
        "Its steps depend on its arguments in a way that cannot be traced without calling it. It works; but the "
        "key document cannot list its keys, and `keystead check` cannot tell whether a cluster accepts it.",
        "Let the procedure only create operations from its arguments, and do the rest before the call.",
        "return Steps(*(self.item(id).delete() for id in ids))",
    ),
    Code(
        "naming",
        "check",
        "error",
        "A key that does not follow the naming rule",
        'The keyspace has `naming = "domain:entity:scope"`: a key starts with a literal domain and a literal '
        "entity, and each segment of the scope after them is a literal or one placeholder.",
        "Write the pattern as `{domain}:{entity}:{scope}`. For a key whose name you cannot choose, give the reason "
        "in `naming_exempt=`.",
        'Value("{uid}:profile", Profile, ...)  # write "app:profile:{uid}"',
    ),
    Code(
        "naming-exemption",
        "check",
        "warning",
        "An unnecessary exemption from the naming rule",
        "The family is exempt from the naming rule, but its keys follow it, or its keyspace has no such "
        "rule. A later pattern of this family would be exempt by accident.",
        "Remove `naming_exempt`.",
        'Value("app:profile:{uid}", Profile, naming_exempt="an old program reads it", ...)  # it follows the rule',
    ),
    Code(
        "index-too-short",
        "check",
        "error",
        "An index that can expire before its records",
        "The index can expire while a record that it lists is alive. That record would be in no listing, and nothing "
        "that uses the index would find it.",
        "Make the index `sliding` and as long as its records, let it live `until` the latest of their deadlines, or "
        '`never("pruned by readers")`.',
        'sessions = Set("sessions:{uid}", str, lifetime=sliding("1d", touch_every="1h"))\n'
        'session = Value("session:{uid}:{sid}", Session, lifetime=after("30d"), listed_in=sessions)',
    ),
    Code(
        "until-field",
        "check",
        "warning",
        "A deadline whose name is close to a field of the value",
        "`until` names a moment that no field of the model holds, so each write has to pass it as an argument; but the "
        "model has a field of nearly the same name.",
        "Write the name of the field. If you mean an argument, choose a name that no field resembles.",
        'Value("share:{id}", Link, lifetime=until("expire_at"))  # the model has expires_at',
    ),
    Code(
        "outlives-owner",
        "check",
        "error",
        "Keys that outlive their owner",
        "A family is deleted with its owner, but if the owner expires, nothing deletes these keys: they "
        "never expire, and would accumulate as orphans.",
        "Give the family a lifetime as long as its owner's, or remove the owner with a job that deletes it.",
        'session = Value("session:{sid}", Session, lifetime=after("30d"), owns=link("seen"))\n'
        'seen = Counter("session:{sid}:seen", lifetime=never("deleted with its session"))',
    ),
    Code(
        "undocumented",
        "check",
        "warning",
        "A family without documentation",
        "The key document has a row for each family, and this one would be empty.",
        'Add `doc="..."`: one sentence about the purpose of the key.',
        'Value("user:{uid}", Profile, lifetime=after("30d"))  # add doc="who the user is"',
    ),
)

_IN_THE_STORE = _catalogue(
    Code(
        "orphan",
        "doctor",
        "error",
        "A key whose owner is gone",
        "Another family owns it, and the owner's key no longer exists: a delete was interrupted, or done by hand.",
        "`keystead doctor --fix` deletes it.",
        "counter:example-a1b2c3d4:total without its counter:example-a1b2c3d4",
    ),
    Code(
        "dead-entry",
        "doctor",
        "warning",
        "An index entry without a record",
        "The record that the entry names is gone. Readers skip such entries. If scores are deadlines, an entry "
        "whose deadline has passed is not reported: its record has expired, and the next reader removes it.",
        "`keystead doctor --fix` removes it, if the record is still gone.",
        "the member `s1` of sessions:42, when there is no session:s1",
    ),
    Code(
        "not-listed",
        "doctor",
        "error",
        "A record that its index does not list",
        "The record is alive, but no listing shows it, and everything that uses the index misses it.",
        "`keystead doctor --fix` writes the entry, if the record still exists. If the index admits its records, "
        "a record that it does not list has ended, and is deleted.",
        "session:s1 of the user 42, when sessions:42 has no member `s1`",
    ),
    Code(
        "wrong-score",
        "doctor",
        "error",
        "An index entry whose score differs from its record",
        "The index takes its score from a field of the record, and the two differ: listings show the record in the "
        "wrong place, and a clean-up by score removes it too early or never.",
        "`keystead doctor --fix` writes the score of the record, if neither has changed meanwhile.",
        "the member `c1` of counters:index has the score 0, but counter:c1 was created in 2026",
    ),
    Code(
        "no-deadline",
        "doctor",
        "error",
        "A key without the deadline that its family states",
        "The key would live forever: something wrote it without a lifetime.",
        "`keystead doctor --fix` gives it the deadline that it would have if it were created now.",
        "session:s1 with no TTL, in a family of after(30d)",
    ),
    Code(
        "late-deadline",
        "doctor",
        "error",
        "A deadline later than the family allows",
        "The key has longer to live than any write of its family gives.",
        "`keystead doctor --fix` brings the deadline forward to the latest that the family allows.",
        "session:s1 with 90 days to live, in a family of after(30d)",
    ),
    Code(
        "early-deadline",
        "doctor",
        "error",
        "A key that expires before the moment in its value",
        "The family lives `until` a moment in the value, and the deadline of the key is earlier: the value will vanish "
        "while it is still valid.",
        "`keystead doctor --fix` sets the deadline that the value states, if the value is unchanged.",
        "share:s1 with an hour to live, when its expires_at is in three days",
    ),
    Code(
        "unexpected-deadline",
        "doctor",
        "error",
        "A deadline in a family that never expires",
        "The family has `never`, but this key will expire.",
        "`keystead doctor --fix` removes the deadline.",
        "user:42 with 3 hours to live, in a family of never(...)",
    ),
    Code(
        "wrong-kind",
        "doctor",
        "error",
        "A key of another kind than its family",
        "The key holds, for example, a hash although the family is a Set, so every operation on it fails.",
        "`keystead doctor --fix` sets it aside; inspect it with `keystead show` first if it may be needed.",
        "sessions:42 is a list, in a family of sets",
    ),
    Code(
        "unreadable",
        "doctor",
        "error",
        "A value that does not fit its family",
        "The bytes are not a value of the declared type: other JSON, a damaged seal, a shape that no version has.",
        "Correct the writer; `keystead doctor --fix` sets the value aside.",
        'user:42 holds {"nme": "Ada"}, but the family holds Profile',
    ),
    Code(
        "too-long",
        "doctor",
        "warning",
        "A list or log with more entries than its family keeps",
        "The family has `keep`, and something appended without dropping the oldest. The next write of the program "
        "drops them.",
        "`keystead doctor --fix` drops the oldest entries of a log. A list is left to the next write of the program: "
        "only the program knows which end has the oldest items.",
        "events:42 with 1,200 entries, in a family with keep=1000",
    ),
    Code(
        "unknown-key",
        "doctor",
        "warning",
        "A key of no family",
        "No pattern of the given keyspaces, of a kit or of the server matches this key: it is a leftover, or another "
        "program shares the store.",
        "Declare a family for it, pass the other keyspace too, or delete it by hand. Keystead never deletes it.",
        "tmp:import:7, when no family has such a pattern",
    ),
    Code(
        "leads-nowhere",
        "doctor",
        "error",
        "A mapping to a missing key",
        "The value names a key of another family (`leads_to`), and that key does not exist.",
        "`keystead doctor --fix` deletes the mapping, if its target is still gone.",
        "email:ada@example.com holds 42, but there is no user:42",
    ),
    Code(
        "old-seal",
        "doctor",
        "warning",
        "A value sealed with a key that is no longer current",
        "It can be read, as long as the old key stays in the ring.",
        "`keystead doctor --fix` seals it again with the current key; then the old key can be removed from the ring.",
        "user:42 is sealed with the key `2025`, but the current one is `2026`",
    ),
    Code(
        "old-version",
        "doctor",
        "warning",
        "A value in an older schema version",
        "It is upgraded on every read, but stored in the old version.",
        "`keystead doctor --fix` writes it in the current version; then the old upgrader can be removed.",
        "user:42 has version 1, but the current one is 3",
    ),
)

CODES: Final[dict[str, Code]] = _DECLARED_WRONGLY | _DECLARED_UNSOUNDLY | _IN_THE_STORE

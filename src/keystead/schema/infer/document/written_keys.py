"""Keys as people write them: `sess:{sid}`, `user:<id>`, `cart/:id`, `job:$name`, `tmp:*`, as patterns."""
# ruff: noqa: RUF001 - punctuation of these languages

from __future__ import annotations

import re
from dataclasses import dataclass
from keyword import iskeyword
from typing import Final

from keystead.errors import BadDeclaration
from keystead.schema.infer.draft import identifier, shape_of
from keystead.schema.key_forms import VARIABLE, form_of
from keystead.schema.pattern import Pattern

# `{{id}}` `${id}` `#{id}` `{id}` · `<id>` · `[id]` · `:id` behind a separator · `$id` · `%s` · `*`
_PLACEHOLDER: Final = re.compile(
    r"\{\{\s*([^{}]+?)\s*\}\}|[$#]?\{\s*([^{}]+?)\s*\}|<\s*([^<>]+?)\s*>|\[\s*([^\[\]]+?)\s*\]"
    r"|(?:(?<=[:/.])|^):([A-Za-z]\w*)|\$([A-Za-z]\w*)|(%[sdi])|(\*+)"
)
_KEY: Final = re.compile(r"[\w@#./:%~+=|\0-]+", re.ASCII)
_ELLIPSIS: Final = re.compile(r"\.\.\.|…")
_URL: Final = re.compile(r"https?://[^/]*/?")
_DATE: Final = re.compile(r"y{2,4}[-_/]?m{2}[-_/]?d{2}", re.IGNORECASE)
_MONTH: Final = re.compile(r"y{4}-m{2}", re.IGNORECASE)
_AFTER_KEY: Final = re.compile(r"[、。，．,;]+$|等$|など$|등$")
_OPEN: Final = "\1"  # where a placeholder was


@dataclass(frozen=True, slots=True)
class WrittenKey:
    """A key as a pattern. `shape` is the same whatever its placeholders are called.

    rule      it describes how keys are made up, such as `{domain}:{entity}:{scope...}`; it is no family
    """

    text: str
    pattern: str
    names: tuple[str, ...]
    rule: bool = False

    @property
    def shape(self) -> str:
        return shape_of(self.pattern)

    @property
    def concrete(self) -> bool:
        """Whether it has no placeholder: one key, or an example."""
        return not self.names

    @property
    def literals(self) -> list[str]:
        return [word for word in re.split(r"[^A-Za-z0-9]+", re.sub(r"\{[^{}]*\}", ":", self.pattern)) if word]


def read_key(text: str) -> WrittenKey | None:
    """The key that a text is; None: it is none. Braces and the like are placeholders, the rest is literal."""
    text = _AFTER_KEY.sub("", text.strip().strip("`'\"").strip())
    if not 0 < len(text) <= 200:
        return None
    is_url = _URL.match(text) is not None
    bare = _path_of(text) if is_url else text
    written = [next(group for group in match.groups() if group) for match in _PLACEHOLDER.finditer(bare)]
    template = _PLACEHOLDER.sub(_OPEN, bare)
    literal = template.replace(_OPEN, "")
    if (literal and _KEY.fullmatch(literal) is None) or "//" in template or literal.startswith(("./", "../")):
        return None
    if any(_is_prose(one) for one in written) or not (written or re.search(r"[A-Za-z]", literal)):
        return None
    pattern, names = _named(template, written)
    rule = any(_ELLIPSIS.search(one) for one in written) or (len(names) > 1 and not re.search(r"[A-Za-z]", literal))
    try:
        checked = Pattern(pattern)
    except BadDeclaration:
        return None
    return WrittenKey(text, checked.text, tuple(names), rule)


def looks_like_key(text: str) -> bool:
    """Whether a text without spaces is meant as a key, rather than a word, a path, a URL or a call."""
    key = read_key(text)
    if key is None:
        return False
    if key.concrete:
        pieces = text.strip("`").split(":")
        return len(pieces) > 1 and all(pieces) and not pieces[0].isdigit() and "/" not in pieces[0] and "." not in text
    is_path = key.text.startswith("/") or re.search(r"/", re.sub(r"[{<\[][^}>\]]*[}>\]]", "", key.text)) is not None
    return ":" in key.pattern.replace(":int}", "}") or not is_path


def generalized(text: str) -> WrittenKey | None:
    """A key from an example, with placeholders for what looks like an id; None if nothing does."""
    named: list[str] = []
    before = ""
    for segment in text.split(":"):
        form = form_of(segment)
        if VARIABLE in form.text:
            named.append(form.text.replace(VARIABLE, f"{{{identifier(before or 'key', ())}_id}}"))
        else:
            named.append(segment)
            before = re.split(r"[-_.]", segment)[-1].rstrip("s")
    return read_key(":".join(named)) if "{" in "".join(named) else None


def _path_of(url: str) -> str:
    """The key in a URL: its last segment if that has several parts, otherwise the whole path."""
    path = _URL.sub("", re.sub(r"\.{3}|…", "", url))
    last = path.rpartition("/")[2]
    return last if ":" in last else path.replace("/", ":")


def _is_prose(name: str) -> bool:
    return len(name) > 40 or any(character in name for character in "\"'`=();|") or bool(re.search(r":\s|,", name))


def _named(template: str, written: list[str]) -> tuple[str, list[str]]:
    pieces = template.split(_OPEN)
    pattern = pieces[0]
    names: list[str] = []
    for one, piece in zip(written, pieces[1:], strict=True):
        name, type_ = _placeholder(_ELLIPSIS.sub("", one), pattern)
        number, free = 2, name
        while free in names:
            free, number = f"{name}{number}", number + 1
        names.append(free)
        pattern += (f"{{{free}:{type_}}}" if type_ else f"{{{free}}}") + piece
    return pattern, names


def _placeholder(written: str, before: str) -> tuple[str, str]:
    """The name of a placeholder, and its type where the name tells; empty: text."""
    if _DATE.fullmatch(written):
        return "date", "date" if "-" in written else "int" if written.isalpha() else ""
    if _MONTH.fullmatch(written):
        return "month", "month"
    word, _, stated = written.partition(":")
    name = re.sub(r"\W+", "_", word, flags=re.ASCII).strip("_")
    if not name or not name[0].isalpha() or word in ("%s", "%d", "%i") or set(word) == {"*"}:
        literals = re.findall(r"[A-Za-z]+", re.sub(r"\{[^{}]*\}", "", before))
        name = f"{identifier(literals[-1], ()).rstrip('s')}_id" if literals else "id"
    if iskeyword(name):
        name = f"{name}_id"
    return name, _type_named(name, stated.strip())


def _type_named(name: str, stated: str) -> str:
    words = set(re.split(r"_|(?<=[a-z])(?=[A-Z])", name))
    lower = {word.lower() for word in words}
    if stated in ("int", "uuid", "date", "hex", "alnum", "slug", "token", "uri"):
        return stated
    if "uuid" in lower:
        return "uuid"
    if lower & {"url", "uri"}:
        return "uri"
    return ""

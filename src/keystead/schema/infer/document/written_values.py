"""Values as people write them: JSON examples, `{ id: string, note?: string | null }`, TypeScript interfaces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from keystead.schema.infer.draft import DraftField
from keystead.schema.infer.value_profile import ModelNames, Profile, type_text

_INTERFACE: Final = re.compile(r"^\s*(?:export\s+)?(?:interface|type)\s+(\w+)[^{]*?=?\s*\{", re.MULTILINE)
_FIELD: Final = re.compile(r"^(?:readonly\s+)?['\"]?([A-Za-z_$][\w$-]*)['\"]?(\?)?\s*(?::\s*(.+))?$", re.DOTALL)
_COMMENT: Final = re.compile(r"(?<![:\w\"])//[^\n]*|/\*.*?\*/|(?<=[\s,])#[^\n]*", re.DOTALL)
_LITERAL: Final = re.compile(r"\s*['\"]([A-Za-z0-9 _.:/@+-]*)['\"]\s*")
_TYPES: Final = {
    "string": "str", "str": "str", "text": "str", "varchar": "str", "文字列": "str", "문자열": "str",
    "number": "int | float", "float": "float", "double": "float", "decimal": "float", "数値": "int | float",
    "int": "int", "integer": "int", "long": "int", "bigint": "int", "整数": "int", "정수": "int", "숫자": "int | float",
    "boolean": "bool", "bool": "bool", "真偽値": "bool", "불리언": "bool",
    "iso8601": "IsoTime", "datetime": "IsoTime",
    "uuid": "str", "object": "dict[str, Any]", "any": "Any", "unknown": "Any", "json": "Any",
}  # fmt: skip
_DEEPEST: Final = 6


def json_value(text: str) -> Any:
    """A JSON example, which may have comments and trailing commas; None: it is none."""
    for candidate in (text, re.sub(r",(\s*[}\]])", r"\1", _COMMENT.sub("", text))):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict | list) else None
    return None


def shape_in(text: str) -> str | None:
    """A shape in a text, `{ id: string }`; None: it has none. `{id}` alone is a placeholder."""
    found = braces_in(text)
    return None if found is None or re.fullmatch(r"\{\s*[\w.]*\s*\}", found) else found


def braces_in(text: str, start: int = 0) -> str | None:
    """From the first `{` on to the `}` that closes it; None: it is not closed."""
    begin = text.find("{", start)
    depth = 0
    for at in range(begin, len(text)) if begin >= 0 else ():
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[begin : at + 1]
    return None


@dataclass(slots=True)
class WrittenValues:
    """The types of a document: its interfaces by name, and the models that are drafted from them."""

    models: ModelNames
    interfaces: dict[str, str] = field(default_factory=dict)
    _drafted: dict[str, str] = field(default_factory=dict)

    def read_interfaces(self, code: str) -> None:
        for match in _INTERFACE.finditer(code):
            body = braces_in(code, match.start())
            if body is not None:
                self.interfaces.setdefault(match[1], body)

    def named_in(self, text: str) -> str | None:
        """The interface that a text names, such as `SessionData`."""
        return next((word for word in re.findall(r"[A-Za-z_]\w+", text) if word in self.interfaces), None)

    def model_of(self, name: str, depth: int = 0) -> str:
        """The model of an interface of this name."""
        if name not in self._drafted:
            self._drafted[name] = "Any"  # one that contains itself
            self._drafted[name] = self.type_of_shape(self.interfaces[name], name, depth)
        return self._drafted[name]

    def type_of_example(self, example: Any, hint: str) -> str:
        profile = Profile()
        profile.add(example)
        return type_text(profile, hint, self.models)

    def type_of_shape(self, text: str, hint: str, depth: int = 0) -> str:
        """The model of `{ id: string, url?: string | null }`; a dict if no field of it can be read."""
        example = json_value(text)
        if example is not None:
            return self.type_of_example(example, hint)
        fields: dict[str, DraftField] = {}
        for part in _parts(_COMMENT.sub("", text.strip()[1:-1])):
            for one in _alternatives(part):
                match = _FIELD.match(one)
                if match is not None and depth < _DEEPEST:
                    is_optional = match[2] is not None or one is not part
                    type_, nullable = self._type(match[3] or "string", f"{hint}_{match[1]}", depth)
                    fields[match[1]] = DraftField(match[1], type_, not is_optional, nullable)
        return self.models.add(hint, tuple(fields.values()), "") if fields else "dict[str, Any]"

    def _type(self, text: str, hint: str, depth: int) -> tuple[str, bool]:
        """The type of a field, and whether it may be null."""
        text = text.strip().rstrip(";,").strip()
        if text.startswith("{") and text.endswith("}"):
            return self.type_of_shape(text, hint, depth + 1), False
        options = [one.strip() for one in text.split("|")]
        wanted = [one for one in options if one not in ("null", "undefined", "None", "nil")]
        nullable = len(wanted) < len(options)
        literals = [match[1] for one in wanted if (match := _LITERAL.fullmatch(one))]
        if wanted and len(literals) == len(wanted):
            return "Literal[" + ", ".join(f'"{one}"' for one in sorted(set(literals))) + "]", nullable
        types = list(dict.fromkeys(self._plain_type(one, hint, depth) for one in wanted)) or ["Any"]
        return ("Any", False) if "Any" in types else (" | ".join(types), nullable)

    def _plain_type(self, text: str, hint: str, depth: int) -> str:
        array = re.fullmatch(r"(.+?)\[\]|(?:Array|List|list)[<\[](.+)[>\]]", text)
        if array is not None:
            return f"list[{self._plain_type((array[1] or array[2]).strip(), hint, depth)}]"
        if text in self.interfaces:
            return self.model_of(text, depth + 1)
        if _LITERAL.fullmatch(text):
            return "str"
        word = re.match(r"[^\W\d]\w*", text)
        return _TYPES.get(word[0].lower(), "str") if word is not None else "str"


def _parts(text: str) -> Iterator[str]:
    """The fields of a shape: at commas, semicolons and line ends outside of nested braces."""
    depth, current = 0, ""
    for character in text:
        depth += (character in "{[(<") - (character in "}])>")
        if depth <= 0 and character in ",;\n":
            if current.strip():
                yield current.strip()
            current = ""
        else:
            current += character
    if current.strip():
        yield current.strip()


def _alternatives(part: str) -> list[str]:
    """`blob_name|pathname`: one of two fields, so both are optional."""
    names = part.split("|")
    return names if len(names) > 1 and all(re.fullmatch(r"\s*\w+\s*", one) for one in names) else [part]


def type_of_fields(names: Sequence[str], hint: str, models: ModelNames) -> str:
    """A model of texts, for the fields of a hash."""
    return models.add(hint, tuple(DraftField(name) for name in names), "") if names else "dict[str, str]"

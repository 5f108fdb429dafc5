"""Key templates: a row such as `{service}s:index` stands for the keys of all services that the document names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from keystead.schema.infer.document.document_rows import Row
from keystead.schema.infer.document.written_keys import WrittenKey, read_key

_FEWEST: Final = 2  # words that make a placeholder a list of words
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")


def expand_templates(rows: Sequence[Row]) -> list[Row]:
    """The rows with each template replaced by one row for each of its words.

    The words of a placeholder are those that other rows, with placeholders of their own, have in its place:
    `url:counter:{url}` and `url:like:{url}` beside `url:{service}:{url}` make `counter` and `like` services.
    """
    words = _words(rows)
    found: list[Row] = []
    for row in rows:
        names = [name for name in _names(row.key.pattern) if name in words]
        if not names or row.source == "command":
            found.append(row)
            continue
        for word in words[names[0]]:
            key = read_key(re.sub(rf"\{{{names[0]}(?::\w+)?\}}", word, row.key.pattern))
            if key is not None:
                found.append(replace(row, key=key, note=f"{row.key.text} with {names[0]} = {word}"))
    return found


def _words(rows: Sequence[Row]) -> dict[str, list[str]]:
    keys = list({row.key.pattern: row.key for row in rows if row.source != "command" and not row.key.rule}.values())
    found: dict[str, dict[str, None]] = {}
    for template in keys:
        expression = _expression(template)
        for key in keys:
            if key is template or key.concrete or (match := expression.fullmatch(key.shape)) is None:
                continue
            for name, text in zip(_names(template.pattern), match.groups(), strict=True):
                if _WORD.fullmatch(text) and name != _last(template.pattern):
                    found.setdefault(name, {})[text] = None
    return {name: list(texts) for name, texts in found.items() if len(texts) >= _FEWEST}


def _names(pattern: str) -> list[str]:
    return _PLACEHOLDER.findall(pattern)


def _last(pattern: str) -> str:
    """The placeholder at the end of a pattern; empty: there is none."""
    return (_names(pattern) or [""])[-1] if pattern.endswith("}") else ""


def _expression(key: WrittenKey) -> re.Pattern[str]:
    return re.compile("([^:]+)".join(re.escape(piece) for piece in re.split(r"\{[^{}]*\}", key.pattern)))

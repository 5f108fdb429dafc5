"""The words of key documents, in English, Japanese and Korean: headings, kinds of value."""
# ruff: noqa: RUF001 - punctuation of these languages

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from keystead.schema.infer.document.document_blocks import plain
from keystead.schema.infer.draft import Kind

Column: TypeAlias = Literal["key", "name", "kind", "value", "lifetime", "channel", "score", "member", "note"]


def one_of(*words: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """An expression of alternatives, one argument for each language: English, Japanese, Korean."""
    return re.compile("|".join(words), flags)


# The first column whose words a heading has is meant: `value type` is a kind, `キー形式` a key.
_COLUMNS: Final[dict[Column, re.Pattern[str]]] = {
    "lifetime": one_of(
        r"ttl|expir\w*|life ?time|time to live|retention",
        r"有効期[限間]|生存期間|期限|寿命|(保持|保存|保管)期間",
        r"만료|유효 ?기간|유효 ?시간|수명|보존",
    ),
    "score": one_of(r"score", "スコア", "점수|스코어"),
    "member": one_of(r"members?|elements?", "メンバー?|要素", "멤버|원소"),
    "kind": one_of(
        r"(data|redis|value)? ?(types?|kinds?|structures?)",
        r"データ型|型|種別|種類|タイプ",
        r"(데이터 ?|자료 ?)?(타입|유형|자료형|종류|형식)",
    ),
    "channel": one_of(r"channels?|topic", r"チャン?ネル", "채널"),
    "key": one_of(
        r"(redis|kv|cache)? ?(keys?|key ?(patterns?|formats?|names?|schema|templates?)|patterns?)",
        r"(redis ?)?キー(形式|パターン|名|構造|の形)?|url形式",
        r"(레디스 ?)?키( ?(패턴|이름|형식|구조|명))?",
    ),
    "name": one_of(r"names?", r"名前|名称", r"이름|명칭"),
    "value": one_of(
        r"values?|contents?|payloads?|data|schema|fields?",
        r"値.*|内容|データ|データ構造|フィールド",
        r"값.*|내용|데이터|필드",
    ),
    "note": one_of(
        r"notes?|descriptions?|purpose|usage|remarks?|comments?|meaning|role",
        r"用途|役割|備考|説明|目的|内訳|注記",
        r"비고|설명|용도|목적|역할",
    ),
}
_ASIDE: Final = re.compile(r"[\(\[（【].*?[\)\]）】]")


def column_of(heading: str) -> Column | None:
    """What a column or a label of this name holds; None: something else."""
    name = " ".join(_ASIDE.sub(" ", plain(heading)).replace("_", " ").replace("-", " ").split())
    return next((column for column, words in _COLUMNS.items() if words.fullmatch(name)), None)


def _kind_words(*words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z_.])(?:{'|'.join(words)})", re.IGNORECASE | re.ASCII)


# Longer words first: a sorted set is no set.
_KINDS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    (
        "SortedSet",
        _kind_words(
            r"z-?sets?\b|sorted[ -_]?sets?\b|zadd\b",
            r"ソート(済み?|付き|された)?(セット|集合)|順序付き集合",
            r"정렬(된)? ?(집합|셋|세트)|소티드 ?셋",
        ),
    ),
    ("Channel", _kind_words(r"pub/?sub\b|publish\b|channels?\b", r"チャン?ネル", "채널")),
    ("Hash", _kind_words(r"hash(es|map)?\b|hset\b", "ハッシュ(?!化|値)", "해시(?!값)")),
    ("Log", _kind_words(r"streams?\b|xadd\b", "ストリーム", "스트림")),
    ("List", _kind_words(r"lists?\b|arrays?\b|[lr]push\b|queue\b", "リスト|配列", "리스트|목록|배열|큐(?![가-힣])")),
    ("Set", _kind_words(r"sets?\b|sadd\b", "セット(?!アップ)|集合", "집합|세트|셋(?![가-힣])")),
    (
        "Counter",
        _kind_words(
            r"counters?\b|incr(by)?\b|integers?\b|int\b|numbers?\b|bigint\b", "カウンタ|整数|数値", "카운터|정수|숫자"
        ),
    ),
    (
        "Value",
        _kind_words(
            r"strings?\b|str\b|text\b|json\b|objects?\b|bool(ean)?\b|timestamps?\b|values?\b",
            "文字列|テキスト|オブジェクト|真偽値",
            "문자열|텍스트|객체|불리언",
        ),
    ),
)
_IN_PROSE: Final = ("SortedSet", "Hash", "Log", "Channel")


def kind_in(text: str, *, prose: bool = False) -> Kind | None:
    """The kind that a text names first. In prose only words count that mean nothing else."""
    found: list[tuple[int, int, Kind]] = []
    for order, (kind, words) in enumerate(_KINDS):
        match = words.search(plain(text))
        if match is not None and (not prose or kind in _IN_PROSE):
            found.append((match.start(), order, kind))
    return min(found)[2] if found else None

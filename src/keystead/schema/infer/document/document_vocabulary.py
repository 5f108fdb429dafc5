"""The words of key documents, in English, Japanese and Korean: headings, kinds of value."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from keystead.schema.infer.document.document_blocks import plain
from keystead.schema.infer.draft import Kind

Column: TypeAlias = Literal["key", "kind", "value", "lifetime", "channel", "score", "member", "note"]

# The first column whose words a heading has is meant: `value type` is a kind, `キー形式` a key.
_COLUMNS: Final[tuple[tuple[Column, str], ...]] = (
    ("lifetime", r"ttl|expir\w*|lifetime|life time|time to live|retention|有効期[限間]|生存期間|期限|寿命|保持期間"
     r"|만료|유효 ?기간|유효 ?시간|수명|보존"),
    ("score", r"score|スコア|점수|스코어"),
    ("member", r"members?|elements?|メンバー?|要素|멤버|원소"),
    ("kind", r"(data|redis|value)? ?(types?|kinds?|structures?)|データ型|型|種別|種類|タイプ|(데이터 ?|자료 ?)?(타입|유형|자료형|종류|형식)"),
    ("channel", r"channels?|topic|チャン?ネル|채널"),
    ("key", r"(redis|kv|cache)? ?(keys?|key ?(patterns?|formats?|names?|schema|templates?)|patterns?)"
     r"|(redis ?)?キー(形式|パターン|名|構造|の形)?|url形式|(레디스 ?)?키( ?(패턴|이름|형식|구조|명))?"),
    ("value", r"values?|contents?|payloads?|data|schema|fields?|値.*|内容|データ|データ構造|フィールド|값.*|내용|데이터|필드"),
    ("note", r"notes?|descriptions?|purpose|usage|remarks?|comments?|meaning|role|用途|役割|備考|説明|目的|内訳|注記"
     r"|비고|설명|용도|목적|역할"),
)  # fmt: skip
_EXPRESSIONS: Final = [(column, re.compile(rf"(?:{words})", re.IGNORECASE)) for column, words in _COLUMNS]
_ASIDE: Final = re.compile(r"[\(\[（【].*?[\)\]）】]")


def column_of(heading: str) -> Column | None:
    """What a column or a label of this name holds; None: something else."""
    name = " ".join(_ASIDE.sub(" ", plain(heading)).replace("_", " ").replace("-", " ").split())
    return next((column for column, words in _EXPRESSIONS if words.fullmatch(name)), None)


# Longer words first: a sorted set is no set.
_KINDS: Final[tuple[tuple[Kind, str], ...]] = (
    ("SortedSet", r"z-?sets?\b|sorted[ -_]?sets?\b|zadd\b|ソート(済み?|付き|された)?(セット|集合)|順序付き集合"
     r"|정렬(된)? ?(집합|셋|세트)|소티드 ?셋"),
    ("Channel", r"pub/?sub\b|publish\b|channels?\b|チャン?ネル|채널"),
    ("Hash", r"hash(es|map)?\b|hset\b|ハッシュ(?!化|値)|해시(?!값)"),
    ("Log", r"streams?\b|xadd\b|ストリーム|스트림"),
    ("List", r"lists?\b|arrays?\b|lpush\b|rpush\b|queue\b|リスト|配列|リスト型|리스트|목록|배열|큐\b"),
    ("Set", r"sets?\b|sadd\b|セット(?!アップ)|集合|집합|세트|셋\b"),
    ("Counter", r"counters?\b|incr(by)?\b|integers?\b|int\b|numbers?\b|bigint\b|カウンタ(ー|\b)|整数|数値|카운터|정수|숫자"),
    ("Value", r"strings?\b|str\b|text\b|json\b|objects?\b|bool(ean)?\b|timestamps?\b|values?\b|文字列|テキスト"
     r"|オブジェクト|真偽値|문자열|텍스트|객체|불리언"),
)  # fmt: skip
_KIND_WORDS: Final = [
    (kind, re.compile(rf"(?<![a-z_.])(?:{words})", re.IGNORECASE | re.ASCII)) for kind, words in _KINDS
]
_IN_PROSE: Final = ("SortedSet", "Hash", "Log", "Channel")


def kind_in(text: str, *, prose: bool = False) -> Kind | None:
    """The kind that a text names first. In prose only words count that mean nothing else."""
    found: list[tuple[int, int, Kind]] = []
    for order, (kind, words) in enumerate(_KIND_WORDS):
        match = words.search(plain(text))
        if match is not None and (not prose or kind in _IN_PROSE):
            found.append((match.start(), order, kind))
    return min(found)[2] if found else None

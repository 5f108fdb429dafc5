"""Lifetimes as people write them: `30日`, `24h`, `1800s (활동 시 갱신)`, `期限まで（最大14日）`, `無期限`."""
# ruff: noqa: RUF001, RUF002 - punctuation of these languages

from __future__ import annotations

import math
import re
from typing import Final

from keystead.schema.infer.document.document_blocks import plain
from keystead.schema.infer.document.document_vocabulary import one_of
from keystead.schema.lifetime import After, EndOfDay, Lifetime, never, sliding, until

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_UNITS: Final = (
    (1, r"ms|milliseconds?|millis|ミリ秒|밀리초"),
    (_S, r"s|secs?|seconds?|秒間?|초"),
    (30 * _D, r"mo|months?|[かヶケカ]月間?|ヵ月|箇月|개월|달"),
    (_M, r"m|mins?|minutes?|分間?|분"),
    (_H, r"h|hrs?|hours?|時間|시간"),
    (7 * _D, r"w|wks?|weeks?|週間?|주"),
    (365 * _D, r"y|yrs?|years?|年間?|년"),
    (_D, r"d|days?|日間?|일"),
)
_UNIT: Final = "|".join(f"(?P<u{number}>{words})" for number, (_, words) in enumerate(_UNITS))
_DURATION: Final = re.compile(rf"(?<![A-Za-z0-9_.:#-])(?P<n>\d+(?:\.\d+)?)\s*-?(?:{_UNIT})(?![A-Za-z])", re.IGNORECASE)
_PRODUCT: Final = re.compile(r"\d+(?:\s*[*×x]\s*\d+)+")
_SECONDS: Final = re.compile(r"(?:EX\s+|PX\s+)?(\d{1,9})")
_MOST: Final = one_of(r"at most|up to|max(imum)?\b|no (longer|more) than", "最大|最長|上限|以内", "최대|이내")
_NEVER: Final = one_of(
    r"^(-|—|–|-1|∞|n/?a|none|no|never|permanent|persistent|forever|infinite)$",
    r"\bno (ttl|expir\w*|deadline|lifetime)\b|\bnever expires?\b|\bdoes not expire\b",
    r"\bwithout (a )?(ttl|expir\w*)\b|\bpermanent\b|\bpersistent\b",
    r"ttl ?(なし|無し|없음)|期限(なし|無し)|無期限|永続|永久|恒久|無制限|^(なし|無し|無)|失効しない",
    r"무기한|영구|만료 ?(없음|안 ?됨|되지 ?않)|^없음|무제한",
)
_SLIDING: Final = one_of(
    r"slid|renew|refresh|extend|on (each |every )?(access|use|read|activity)|after (the )?last|idle|inactiv|touch",
    r"更新|延長|スライディング|アクセス(毎|ごと|時|の)|最終(アクセス|利用)|無操作",
    r"갱신|연장|슬라이딩|활동|접속 ?시|마지막|미사용",
)
_NOT_SLIDING: Final = one_of(
    r"not (slid|renew|refresh|extend)", r"(更新|延長)(しない|なし|されない)", r"갱신 ?(안|하지)|연장 ?(안|하지)"
)
_UNTIL: Final = one_of(
    r"\buntil\b|\btill\b|remaining|rest of|same as|as long as|\bexp claim\b",
    r"まで|残り|と同じ|に合わせ",
    r"까지|남은|잔여",
)
_END_OF_DAY: Final = one_of(
    r"end of (the )?day|midnight|23:59|24:00",
    r"当日|その日|翌日0時|0時まで|日付(が変わる|境界)|日末",
    r"자정|당일|하루 ?(끝|동안)",
)
_FIELD: Final = re.compile(r"[A-Za-z_]*exp[A-Za-z_]*(?:_?at|At|_on|On)?|[A-Za-z]+_(?:at|until)|[a-z]+At")
_EXPIRY_WORDS: Final = one_of(
    r"expir|ttl|\bEX\b|deleted after|lives? for|valid for|kept for",
    r"有効期|期限|自動削除|保持|失効",
    r"만료|자동 ?삭제|유효|유지",
)
_REASON: Final = 4  # characters beside a word such as `none`
_TODO: Final = "TODO: state what removes these keys; the document does not say"


def unstated() -> Lifetime:
    return never(_TODO)


def mentions_expiry(text: str) -> bool:
    """Whether a sentence is about a lifetime, so that a duration in it is one."""
    return _EXPIRY_WORDS.search(text) is not None


def read_lifetime(text: str, fields: tuple[str, ...] = ()) -> Lifetime | None:
    """The lifetime that a text states; None: not understood. `fields` are those of the value, which may hold a
    deadline."""
    words = plain(text)
    if not words:
        return None
    ms = first_duration_ms(words)
    if _END_OF_DAY.search(words):
        return EndOfDay("UTC")
    if ms is None or _UNTIL.search(words):
        if _NEVER.search(words):
            says_why = len(re.sub(r"[\W_]+|ttl", "", _NEVER.sub("", words), flags=re.IGNORECASE)) >= _REASON
            return never(
                words[:120] if says_why else f"TODO: state what removes these keys; the document says: {words}"
            )
        if _UNTIL.search(words):
            at_most = f"{ms}ms" if ms is not None and _MOST.search(words) else None
            return until(_deadline_field(words, fields), at_most=at_most)
        return None
    if _SLIDING.search(words) and not _NOT_SLIDING.search(words):
        return sliding(f"{ms}ms", touch_every=f"{max(ms // 60, 1)}ms")
    return After(ms)


def first_duration_ms(text: str) -> int | None:
    """The first duration in a text, with what follows it directly: `1h 30m`. A number alone is seconds."""
    if product := _PRODUCT.match(text):
        return math.prod(map(int, re.findall(r"\d+", product[0]))) * _S
    first = _DURATION.search(text)
    if first is None:
        alone = _SECONDS.fullmatch(text.strip())
        return int(alone[1]) * _S or None if alone is not None else None
    total, end = 0.0, first.start()
    for match in _DURATION.finditer(text, first.start()):
        if text[end : match.start()].strip(" ,"):
            break
        total += float(match["n"]) * next(size for number, (size, _) in enumerate(_UNITS) if match[f"u{number}"])
        end = match.end()
    return int(total) or None


def _deadline_field(text: str, fields: tuple[str, ...]) -> str:
    named = [word for word in _FIELD.findall(text) if word in fields]
    known = [field for field in fields if re.search(r"exp|until|deadline|ends", field, re.IGNORECASE)]
    return next(iter([*named, *known]), "expires_at")

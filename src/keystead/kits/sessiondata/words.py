"""Error messages of the Sessions API, in the client's preferred language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keystead.kits.language import Language, language_of

MESSAGES: Final[Mapping[str, Mapping[Language, str]]] = {
    "not-json": {
        "en": "The body of the request is not JSON.",
        "ja": "リクエスト本文が JSON ではありません。",
        "ko": "요청 본문이 JSON이 아닙니다.",
    },
    "content-type": {
        "en": "The content type must be application/json.",
        "ja": "Content-Type は application/json にしてください。",
        "ko": "Content-Type은 application/json이어야 합니다.",
    },
    "bad-request": {
        "en": "The request is invalid.",
        "ja": "リクエストの内容が正しくありません。",
        "ko": "요청 내용이 올바르지 않습니다.",
    },
    "unauthorized": {
        "en": "The API key is missing, unknown or revoked.",
        "ja": "API キーがないか、無効です。",
        "ko": "API 키가 없거나 유효하지 않습니다.",
    },
    "not-found": {
        "en": "There is no value under this key.",
        "ja": "このキーのデータはありません。",
        "ko": "이 키에 해당하는 데이터가 없습니다.",
    },
    "foreign": {
        "en": "This request does not come from a page of this site; reload the page.",
        "ja": "このサイトのページからのリクエストではありません。ページを再読み込みしてください。",
        "ko": "이 사이트의 페이지에서 보낸 요청이 아닙니다. 페이지를 다시 불러오세요.",
    },
    "too-many": {
        "en": "The limit of stored values is reached; remove some first.",
        "ja": "保存できる数の上限に達しました。先にいくつか削除してください。",
        "ko": "저장할 수 있는 개수를 초과했습니다. 먼저 일부를 삭제하세요.",
    },
    "too-often": {
        "en": "Too many requests; wait a minute.",
        "ja": "リクエストが多すぎます。1 分ほどお待ちください。",
        "ko": "요청이 너무 많습니다. 1분 정도 기다려 주세요.",
    },
    "too-long": {
        "en": "The key or the value is too long.",
        "ja": "キーまたは値が長すぎます。",
        "ko": "키 또는 값이 너무 깁니다.",
    },
    "unreadable": {
        "en": "The stored data cannot be read; the operator of this server finds the details in the log.",
        "ja": "保存されているデータを読み取れません。サーバーの管理者がログで確認できます。",
        "ko": "저장된 데이터를 읽을 수 없습니다. 서버 관리자가 로그에서 확인할 수 있습니다.",
    },
    "store": {
        "en": "The data store does not respond; try again in a moment.",
        "ja": "データストアが応答しません。しばらくしてからもう一度お試しください。",
        "ko": "저장소가 응답하지 않습니다. 잠시 후 다시 시도하세요.",
    },
}


def message_for(code: str, accept_language: str) -> str:
    """The message for an error code, in English if no preferred language is available."""
    return MESSAGES[code][language_of(accept_language)]

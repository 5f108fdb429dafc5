"""Issues links: checks the options, and writes all keys of a link in one procedure."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from keystead.errors import BadValue
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import EdgeMeta, Link, PastLink
from keystead.kits.sharing.service.names import file_name, has_hidden_characters, purpose_word
from keystead.kits.sharing.service.outcomes import Issued, SharingRefused, Wanted
from keystead.kits.sharing.service.own_links import REMEMBERED_MS
from keystead.kits.sharing.service.quota import ALL_FULL, OWNER_FULL, Quota
from keystead.kits.sharing.service.sealed_links import Payload, SealedLinks
from keystead.kits.sharing.service.settings import SharingSettings
from keystead.kits.sharing.service.uploads import LEASE_MS
from keystead.parts.audit import Audit
from keystead.parts.digest import digest
from keystead.parts.passwords import hash_password, is_password
from keystead.schema import Operation, Steps, procedure
from keystead.schema.times import deadline_ms, moment

SHORT_LENGTH: Final = 10
_ISSUE_TRIES: Final = 5
_MAX_DOWNLOADS: Final = 1_000_000
_PATH_TAKEN: Final = "this file has a link"
MESSAGE_MAX: Final = 500
RECEIVER_MAX: Final = 100
_THEME = re.compile(r"[a-z0-9-]{1,32}")


class LinkIssuer:
    def __init__(
        self,
        keys: SharingKeys,
        settings: SharingSettings,
        links: SealedLinks,
        quota: Quota,
        audit: Audit,
        now_ms: Callable[[], int],
    ) -> None:
        self._keys = keys
        self._settings = settings
        self._links = links
        self._quota = quota
        self._audit = audit
        self._now_ms = now_ms

    async def issue(
        self,
        leads_to: Mapping[str, str],
        shown: str,
        wanted: Wanted,
        *,
        who: str,
        where: str,
        path: str | None = None,
        reserved: int | None = None,
    ) -> Issued:
        """Issue a link. With `path`, its file is deleted on expiry; `reserved` is the size of an upload to come."""
        now_ms, ready = self._now_ms(), reserved is None
        expires_ms = self.expiry_ms(wanted.valid_until, now_ms)
        if path is not None and ready and await self._keys.gone(path).exists():
            raise SharingRefused(
                "PATH_TAKEN", "the file at this path was deleted less than an hour ago; use another path"
            )
        link = await self._new_link(wanted, shown, expires_ms, ready=ready)
        name, purpose = file_name(shown), purpose_word(wanted.purpose)
        payer = self._quota.owner(who, where)
        for _ in range(_ISSUE_TRIES):  # the id or short token may be taken
            id, short, owner_key = _new_id(), _new_short(), secrets.token_urlsafe(32)
            named = digest(short)
            payload = Payload(v=1, n=name, p=purpose, exp=expires_ms, iat=now_ms, id=id, s=named, **leads_to)
            sealed = self._links.seal(payload)
            own = {"short_token": named, "owner": digest(owner_key), "short": None if link.user_id is None else short}
            meta = None
            if path is not None:
                meta = EdgeMeta(id=id, pathname=path, expires_at=moment(expires_ms), short_token=named)
            if meta is not None and reserved is not None:
                lease_end = moment(now_ms + LEASE_MS)
                under_way = {"upload": "under way", "expires_at": lease_end, "size": reserved, "charged_to": payer}
                meta = meta.model_copy(update=under_way)
            note = partial(self._audit.note, "link-issued", who=who, what=id, where=where, why=purpose)
            try:
                done = await self._create(id, link.model_copy(update=own), sealed, meta, note)
            except BadValue:  # it has expired in the meantime
                raise _already_expired() from None
            if done:
                return Issued(id, sealed, short, owner_key, expires_ms, name, path)
            if done.stopped in (OWNER_FULL, ALL_FULL):
                raise await self._quota.refusal(done.stopped, payer, reserved or 0)
            if done.stopped == _PATH_TAKEN:
                raise SharingRefused("PATH_TAKEN", "this file already has a link; end that link first")
        raise SharingRefused("TRY_AGAIN", "could not find a free short token; try again")

    @procedure(ordered="the clean-up finds an upload by its record, which is written first; the other keys expire")
    def _create(
        self, id: str, link: Link, sealed: str, meta: EdgeMeta | None, note: Callable[[], Operation[str]]
    ) -> Steps[None]:
        """Write every key of a new link."""
        keys, named, expires_ms = self._keys, link.short_token, deadline_ms(link.expires_at)
        made: list[tuple[Operation[Any], ...]] = [  # each step with the operations that undo it
            (keys.link(id).add(link).required(), keys.link(id).delete()),
            (keys.token(named).add(sealed, expires_at=expires_ms).required(),),
            (keys.past(named).set(PastLink(expires_at=link.expires_at), forget_at=expires_ms + REMEMBERED_MS),),
        ]
        if link.user_id is not None:
            made.append((keys.links_of_user(link.user_id).add(id, expires_ms),))
        if meta is not None:
            # The record before the claim of the path: if the path is taken, the record is undone.
            made = [
                *([] if meta.size is None else self._quota.reserve(meta.charged_to, meta.size)),
                (keys.meta(id).add(meta).required(), keys.meta(id).alone.delete(), keys.index().remove(id)),
                (keys.file(meta.path).add(id).otherwise(_PATH_TAKEN), keys.file(meta.path).delete()),
                *made,
            ]
        steps = Steps(*(step for step, *_ in made), note())
        for step, *undoing in reversed(made):
            steps.undone_by(*undoing, of=step)
        return steps

    async def _new_link(self, wanted: Wanted, shown: str, expires_ms: int, *, ready: bool) -> Link:
        most = wanted.max_downloads
        if most is not None and not 1 <= most <= _MAX_DOWNLOADS:
            raise SharingRefused("BAD_LIMIT", f"maxDownloads must be from 1 to {_MAX_DOWNLOADS}")
        if wanted.password is not None and not is_password(wanted.password):
            raise SharingRefused("BAD_PASSWORD", "a password must have 1 to 256 characters")
        if wanted.message is not None and not _is_message(wanted.message):
            raise SharingRefused("BAD_MESSAGE", f"a message must be text of at most {MESSAGE_MAX} characters")
        if wanted.theme is not None and not _THEME.fullmatch(wanted.theme):
            raise SharingRefused("BAD_THEME", "a theme must consist of a-z, 0-9 and -")
        if wanted.receiver is not None and not _is_receiver_name(wanted.receiver):
            sentence = f"receiverName must have 1 to {RECEIVER_MAX} characters, without control characters"
            raise SharingRefused("BAD_RECEIVER", sentence)
        return Link(
            expires_at=moment(expires_ms),
            short_token="",
            owner="",
            ready=ready,
            owner_only=wanted.owner_only or None,
            max_downloads=most,
            password=None if wanted.password is None else await hash_password(wanted.password),
            display_name=shown,
            message=wanted.message or None,
            theme=wanted.theme,
            receiver=wanted.receiver,
            user_id=wanted.user_id,
        )

    def expiry_ms(self, given: int | str | None, now_ms: int) -> int:
        """The expiry of a link: as requested, but at most `max_ttl` from now. Raises SharingRefused."""
        if given is None:
            return now_ms + self._settings.ttl_ms
        at_ms = _parse_moment_ms(given)
        if at_ms is None:
            raise SharingRefused(
                "BAD_EXPIRY", "validUntil must be in ms since 1970, or a time such as 2026-12-31T15:00:00Z"
            )
        if at_ms <= now_ms:
            raise _already_expired()
        return min(at_ms, now_ms + self._settings.max_ttl_ms)


def _new_id() -> str:
    """Ten characters that start with a letter: some clients would parse digits as a number."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return secrets.choice(letters) + secrets.token_urlsafe(8)[: SHORT_LENGTH - 1]


def _new_short() -> str:
    """Sixty bits in ten characters, never only digits."""
    while True:
        short = secrets.token_urlsafe(8)[:SHORT_LENGTH]
        if not short.isdigit():
            return short


def _is_receiver_name(text: str) -> bool:
    return 1 <= len(text) <= RECEIVER_MAX and bool(text.strip()) and not has_hidden_characters(text)


def _is_message(text: str) -> bool:
    """Lone surrogates are not text, and `(sealed)` is the placeholder for a hidden value."""
    return len(text) <= MESSAGE_MAX and text != "(sealed)" and not any("\ud800" <= char <= "\udfff" for char in text)


def _already_expired() -> SharingRefused:
    return SharingRefused("BORN_EXPIRED", "validUntil is in the past")


def _parse_moment_ms(given: int | str) -> int | None:
    if isinstance(given, str) and re.fullmatch("-?[0-9]{1,19}", given):
        given = int(given)
    try:
        if isinstance(given, int):
            return deadline_ms(moment(given))
        read = datetime.fromisoformat(given)
        return None if read.utcoffset() is None else deadline_ms(read.astimezone(UTC))
    except (ValueError, OverflowError):
        return None

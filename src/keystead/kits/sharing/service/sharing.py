"""What can be done with links, from the first upload to the last clean-up. It knows no HTTP."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from keystead.errors import BadValue, Contended, Unreadable
from keystead.kits.kit import Site
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import EdgeMeta, Link, PastLink
from keystead.kits.sharing.service.clean_up import CleanUp, Counts
from keystead.kits.sharing.service.names import checked_url, display_name, file_name, misleads, purpose_word
from keystead.kits.sharing.service.outcomes import (
    Download,
    Issued,
    OwnLink,
    Resolved,
    SharingRefused,
    Shown,
    Status,
    Wanted,
    ended,
    expired,
    used_up,
)
from keystead.kits.sharing.service.own_links import REMEMBERED_MS, OwnLinks, User
from keystead.kits.sharing.service.place import MARKER, UPLOADS, Place, place_of
from keystead.kits.sharing.service.quota import ALL_FULL, OWNER_FULL, Quota
from keystead.kits.sharing.service.sealed_links import Payload, SealedLinks
from keystead.kits.sharing.service.settings import LIMITS, SharingSettings
from keystead.kits.sharing.service.tickets import USED_UP, Range, Tickets
from keystead.kits.sharing.service.uploads import LEASE_MS, Uploads, ended_meanwhile
from keystead.parts.audit import Audit
from keystead.parts.blobs import Blobs, BlobTooLarge, BlobUnavailable
from keystead.parts.blobs.blob_paths import checked
from keystead.parts.digest import digest, same
from keystead.parts.limit import NamedLimits, client_of
from keystead.parts.passwords import PasswordsBusy, hashed, is_password, matches
from keystead.parts.schedule import Job, Run
from keystead.parts.sizes import size_bytes
from keystead.schema import Operation, Steps, attempts, procedure
from keystead.schema.kinds import Seen
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.sharing")

SHORT_LENGTH: Final = 10
_SHORT = re.compile(r"[A-Za-z0-9_-]{10}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")  # the key of an owner
_ISSUE_TRIES: Final = 5
_PASSWORD_TRIES: Final = 10  # of one client within an hour
_PASSWORD_TRIES_OF_ALL: Final = 100
_MAX_DOWNLOADS: Final = 1_000_000
_PATH_TAKEN: Final = "this file has a link"
UPLOAD_S: Final = 3600  # how long an upload may take
MESSAGE_MAX: Final = 500
RECEIVER_MAX: Final = 100
_THEME = re.compile(r"[a-z0-9-]{1,32}")


@dataclass
class _Asked:
    """Who asks for something, and for which link, once that is known."""

    who: str
    link: str = ""


class Sharing:
    """Links, the files that they lead to, and the clean-up of both."""

    def __init__(
        self,
        keys: SharingKeys,
        settings: SharingSettings,
        site: Site,
        blobs: Blobs,
        links: SealedLinks,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.keys = keys
        self.settings = settings
        self.site = site
        self.blobs = blobs
        self.audit, self.uses, self.refusals = Audit(keys.audit()), Audit(keys.uses()), Audit(keys.refusals())
        self.limit = NamedLimits(keys.requests, LIMITS | settings.limits, site.now_ms)
        self.place = Place(keys, blobs, moved=settings.files_moved)
        self.quota = Quota(keys, settings)
        self.tickets = Tickets(keys, blobs, self.uses, site.now_ms)
        self.clean_up = CleanUp(
            keys,
            blobs,
            self.place,
            self.quota,
            self.audit,
            self.refusals,
            site.now_ms,
            settings.cleanup_batch,
            pause,
        )
        self._links = links
        self.uploads = Uploads(keys, self.quota, site.now_ms)
        self._own_links = OwnLinks(keys, self.quota, self.audit, site.now_ms)

    @property
    def jobs(self) -> list[Job]:
        doc = "Deletes files whose links have expired."
        return [Job("sharing.clean-up", self.settings.cleanup_cron, self._clean_up, doc=doc)]

    async def _clean_up(self, run: Run) -> Mapping[str, int | str]:
        counts = await self.clean_up.run()
        if counts.retry_ms is not None:
            run.again_after(f"{max(counts.retry_ms - self.site.now_ms(), 1000)}ms")
        return told(counts)

    @asynccontextmanager
    async def _noted(self, event: str, who: str, where: str) -> AsyncIterator[_Asked]:
        """Counts what comes of a request, and notes where it is refused. What is done notes itself, as it is done."""
        asked = _Asked(who)
        try:
            with _busy_refused():
                yield asked
        except SharingRefused as refused:
            self.site.count("sharing", event, refused.reason.lower().replace("_", "-"))
            if refused.reason != "PASSWORD_REQUIRED":  # that is a question, and the first thing a page asks
                note = self.refusals.note
                await note(f"{event}-refused", who=who, what=asked.link, where=where, why=refused.reason)
            raise
        self.site.count("sharing", event, "ok")

    async def note_stranger(self, event: str, where: str) -> None:
        """Somebody asked for what takes a secret, and did not have it."""
        self.site.count("sharing", event, "unauthorized")
        await self.refusals.note(f"{event}-refused", who="stranger", where=where, why="UNAUTHORIZED")

    # --- issuing -------------------------------------------------------------------------------------------

    async def issue(self, url: str, name: str | None, wanted: Wanted, *, who: str, where: str) -> Issued:
        """A link to a file elsewhere. Nothing is deleted there when it expires."""
        async with self._noted("issue", who, where):
            leads_to = checked_url(url, self.settings.allowed_hosts)
            shown = display_name(name)
            return await self._issue({"u": leads_to}, shown, wanted, who=who, where=where)

    async def register(self, path: str, url: str, name: str | None, wanted: Wanted, *, who: str, where: str) -> Issued:
        """A link to a file that somebody uploaded to the place of our files: it is deleted when the link expires."""
        async with self._noted("issue", who, where):
            leads_to = checked_url(url, self.settings.allowed_hosts)
            checked(path)
            if path.partition("/")[0].casefold() in (UPLOADS, MARKER):
                raise SharingRefused("PATH_TAKEN", f"what is under {UPLOADS}/ was uploaded here, and has its link")
            shown = display_name(name or path.rpartition("/")[2])
            return await self._issue({"u": leads_to}, shown, wanted, path=path, who=who, where=where)

    async def upload(
        self,
        body: AsyncIterable[bytes],
        name: str | None,
        wanted: Wanted,
        *,
        who: str,
        where: str,
        size: int | None = None,
    ) -> Issued:
        """Keep a file here, and a link to it. The record is written first, so whatever is left of an upload that breaks
        off is found by the clean-up; until the whole file is there, the link opens nothing.

        `size` is how many bytes it will have at most, where that is known.
        """
        async with self._noted("issue", who, where):
            return await self._upload(body, display_name(name, ending=""), wanted, size, who=who, where=where)

    async def _upload(
        self, body: AsyncIterable[bytes], shown: str, wanted: Wanted, size: int | None, *, who: str, where: str
    ) -> Issued:
        with self.uploads.room(where):
            await self.place.claim()
            path = f"{UPLOADS}/{secrets.token_urlsafe(18)}/{file_name(shown)}"
            largest = size_bytes(self.settings.max_upload)
            reserved = min(largest, largest if size is None else size)
            issued = await self._issue({"b": path}, shown, wanted, path=path, reserved=reserved, who=who, where=where)
            try:
                size = await self.blobs.put(path, self.uploads.flowing(body, issued.id), max_bytes=reserved)
                if size == 0:
                    raise SharingRefused("EMPTY", "there is nothing in this file")
            except BlobTooLarge:
                await self._drop(issued.id)
                most = self.settings.max_upload
                raise SharingRefused(
                    "TOO_LARGE", f"this file is too large; {most} is the most that is taken here"
                ) from None
            except BaseException:
                # Also when the uploader has gone away. Where even this does not come about, the clean-up does it later.
                await asyncio.shield(self._drop(issued.id))
                raise
            if not await self.uploads.made_ready(issued, size):
                await self._drop(issued.id)
                await self.blobs.delete(path)  # whoever ended it may have come before the file was there
                raise ended_meanwhile()
            return replace(issued, size=size)

    async def _issue(
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
        """A new link. With `path` its file is deleted when it expires; `reserved` bytes of it are still to come."""
        now_ms, ready = self.site.now_ms(), reserved is None
        expires_ms = self._expiry_ms(wanted.valid_until, now_ms)
        if path is not None and ready and await self.keys.gone(path).exists():
            raise SharingRefused("PATH_TAKEN", "the file of this path was deleted less than an hour ago; use another")
        link = await self._link(wanted, shown, expires_ms, ready=ready)
        name, purpose = file_name(shown), purpose_word(wanted.purpose)
        payer = self.quota.owner(who, where)
        for _ in range(_ISSUE_TRIES):  # its id or its short token may be taken
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
            note = partial(self.audit.note, "link-issued", who=who, what=id, where=where, why=purpose)
            try:
                done = await self._make(id, link.model_copy(update=own), sealed, meta, note)
            except BadValue:  # it was for so short a moment that this is over by now
                raise _born_expired() from None
            if done:
                return Issued(id, sealed, short, owner_key, expires_ms, name, path)
            if done.stopped in (OWNER_FULL, ALL_FULL):
                raise await self.quota.refusal(done.stopped, payer, reserved or 0)
            if done.stopped == _PATH_TAKEN:
                raise SharingRefused("PATH_TAKEN", "this file has a link already; end that one first")
        raise SharingRefused("TRY_AGAIN", "no short token was free; try again")

    @procedure(ordered="the clean-up finds an upload by its record, which is the first of its keys; the others expire")
    def _make(
        self, id: str, link: Link, sealed: str, meta: EdgeMeta | None, note: Callable[[], Operation[str]]
    ) -> Steps[None]:
        """Make all that there is of a new link."""
        keys, named, expires_ms = self.keys, link.short_token, deadline_ms(link.expires_at)
        made: list[tuple[Operation[Any], ...]] = [  # each step with what undoes it
            (keys.link(id).add(link).required(), keys.link(id).delete()),
            (keys.token(named).add(sealed, expires_at=expires_ms).required(),),
            (keys.past(named).set(PastLink(expires_at=link.expires_at), forget_at=expires_ms + REMEMBERED_MS),),
        ]
        if link.user_id is not None:
            made.append((keys.links_of_user(link.user_id).add(id, expires_ms),))
        if meta is not None:
            # The record of a file before its claim: where the claim is refused, the record is taken back.
            made = [
                *([] if meta.size is None else self.quota.reserve(meta.charged_to, meta.size)),
                (keys.meta(id).add(meta).required(), keys.meta(id).alone.delete(), keys.index().remove(id)),
                (keys.file(meta.path).add(id).otherwise(_PATH_TAKEN), keys.file(meta.path).delete()),
                *made,
            ]
        steps = Steps(*(step for step, *_ in made), note())
        for step, *undoing in reversed(made):
            steps.undone_by(*undoing, of=step)
        return steps

    async def _link(self, wanted: Wanted, shown: str, expires_ms: int, *, ready: bool) -> Link:
        most = wanted.max_downloads
        if most is not None and not 1 <= most <= _MAX_DOWNLOADS:
            raise SharingRefused("BAD_LIMIT", f"maxDownloads is a number from 1 to {_MAX_DOWNLOADS}")
        if wanted.password is not None and not is_password(wanted.password):
            raise SharingRefused("BAD_PASSWORD", "a password has 1 to 256 characters")
        if wanted.message is not None and not _is_message(wanted.message):
            raise SharingRefused("BAD_MESSAGE", f"a message is a text of at most {MESSAGE_MAX} characters")
        if wanted.theme is not None and not _THEME.fullmatch(wanted.theme):
            raise SharingRefused("BAD_THEME", "a theme is a word of a-z, 0-9 and -")
        if wanted.receiver is not None and not _is_person(wanted.receiver):
            sentence = f"receiverName is a name of 1 to {RECEIVER_MAX} characters, without control characters"
            raise SharingRefused("BAD_RECEIVER", sentence)
        return Link(
            expires_at=moment(expires_ms),
            short_token="",
            owner="",
            ready=ready,
            owner_only=wanted.owner_only or None,
            max_downloads=most,
            password=None if wanted.password is None else await hashed(wanted.password),
            display_name=shown,
            message=wanted.message or None,
            theme=wanted.theme,
            receiver=wanted.receiver,
            user_id=wanted.user_id,
        )

    def _expiry_ms(self, given: int | str | None, now_ms: int) -> int:
        if given is None:
            return now_ms + self.settings.ttl_ms
        at_ms = _moment_ms(given)
        if at_ms is None:
            raise SharingRefused("BAD_EXPIRY", "validUntil is in ms since 1970, or a time as 2026-12-31T15:00:00Z")
        if at_ms <= now_ms:
            raise _born_expired()
        return min(at_ms, now_ms + self.settings.max_ttl_ms)

    # --- looking and using ---------------------------------------------------------------------------------

    async def look(self, token: str | None) -> Shown:
        """What a link is. Nothing is used up, and nothing is written."""
        payload = await self._opened(token)
        link = await self._live(payload)
        if link is None:
            return Shown(payload.n, payload.exp, payload.p)
        size = None
        if payload.b is not None and link.ready:
            size = await self.blobs.size(payload.b)
        left = None
        if link.max_downloads is not None:
            left = max(0, link.max_downloads - await self.keys.downloads(payload.id).get())
        return Shown(
            link.display_name or payload.n,
            deadline_ms(link.expires_at),
            payload.p,
            size=size,
            needs_password=link.password is not None,
            downloads_left=left,
            message=link.message,
            theme=link.theme,
            receiver=link.receiver,
        )

    async def resolve(self, token: str | None, *, password: str | None = None, where: str = "") -> Resolved:
        """Where a link leads: to a file elsewhere, which counts as a download; or, by a ticket, to one that is kept
        here, which counts when its first bytes go out.
        """
        async with self._noted("resolve", "receiver", where) as asked:
            payload = await self._opened(token)
            asked.link = payload.id or ""
            return await self._resolve(payload, password, where)

    async def _resolve(self, payload: Payload, password: str | None, where: str) -> Resolved:
        link = await self._live(payload)
        if link is None or payload.id is None:  # sealed elsewhere with the same key
            return Resolved(payload.n, payload.n, payload.exp, payload.p, url=payload.u)
        if not link.ready:
            raise SharingRefused("NOT_READY", "this file is still being uploaded; try again in a moment", retryAfter=5)
        if link.password is not None:
            await self._check_password(payload.id, link.password, password, where)
        shown, ticket = link.display_name or payload.n, None
        if payload.b is None:
            await self._count_use(payload.id, where)
        else:
            if await self.blobs.size(payload.b) is None:
                await self.place.check()  # in another place none of the files would be there
                _log.error("the file of a link is not in %s any more", self.blobs.url)
                raise SharingRefused("FILE_GONE", "the file of this link is gone; ask whoever sent it for a new one")
            if link.max_downloads is not None and await self.keys.downloads(payload.id).get() >= link.max_downloads:
                raise used_up()
            ticket = await self.tickets.issue(payload.id, payload.b, shown)
        return Resolved(
            payload.n,
            shown,
            deadline_ms(link.expires_at),
            payload.p,
            url=payload.u,
            ticket=ticket,
            path=payload.b,
            message=link.message,
            theme=link.theme,
        )

    async def _count_use(self, id: str, where: str) -> None:
        """Count that a link to elsewhere was resolved. Raises SharingRefused: USED_UP, REVOKED or EXPIRED."""
        async for _ in attempts("this link"):
            seen = await self.keys.link(id).see()
            if seen is None:
                raise ended()
            done = await self._use(id, seen, where)
            if done.stopped == USED_UP:
                raise used_up()
            if done:
                return

    @procedure(ordered="a use that is counted is missing in the log of uses")
    def _use(self, id: str, seen: Seen[Link], where: str) -> Steps[None]:
        """Count a use while the link is as it was read: one that was extended meanwhile counts for longer."""
        counted = self.tickets.count(id, seen.value)
        note = self.uses.note("link-resolved", who="receiver", what=id, where=where)
        return Steps(self.keys.link(id).holds(seen), *counted, note)

    async def download(
        self, ticket: str, asked: Range | None = None, *, where: str = "", looking: bool = False
    ) -> Download:
        """The file of a ticket, or a part of it; see `Tickets.download`. It is counted when its first bytes go out."""
        async with self._noted("download", "receiver", where) as noted:
            noted.link = self.tickets.link_of(ticket) or ""
            return await self.tickets.download(ticket, asked or Range(), where=where, looking=looking)

    async def _opened(self, token: str | None) -> Payload:
        """What a token holds, short or sealed; what it leads to is checked again. Raises SharingRefused."""
        if not token:
            raise SharingRefused("TOKEN_REQUIRED", "a link has a token; ask whoever sent it for the whole of it")
        if _SHORT.fullmatch(token):
            named = digest(token)
            sealed = await self.keys.token(named).get().if_readable()
            if sealed is None:
                past = await self.keys.past(named).get().if_readable()
                if past is not None and deadline_ms(past.expires_at) <= self.site.now_ms():
                    raise expired(deadline_ms(past.expires_at))
                raise SharingRefused("TOKEN_NOT_FOUND", "there is no such link, or it was ended")
            payload = self._links.open(sealed)
            if payload.s is None or not same(payload.s, named):
                raise SharingRefused("INVALID_PAYLOAD", "this link was altered; ask for a new one")
        else:
            payload = self._links.open(token)
        if payload.exp <= self.site.now_ms() and not await self._is_extended(payload):
            raise expired(payload.exp)
        if payload.u is not None:
            checked_url(payload.u, self.settings.allowed_hosts)
        return payload

    async def _is_extended(self, payload: Payload) -> bool:
        """Whether its owner extended a link, so that its record lives longer than its sealed form says."""
        if payload.id is None:
            return False
        link = await self.keys.link(payload.id).get().if_readable()
        return link is not None and deadline_ms(link.expires_at) > self.site.now_ms()

    async def _live(self, payload: Payload) -> Link | None:
        """The record of a link; None: it has none, because it was sealed elsewhere. Raises SharingRefused."""
        if payload.id is None:
            return None
        link = await self.keys.link(payload.id).get().if_readable()
        if link is None:
            raise ended()
        if payload.s is None or not same(payload.s, link.short_token):
            raise SharingRefused("INVALID_PAYLOAD", "this link was altered; ask for a new one")
        return link

    async def _check_password(self, id: str, kept: str, given: str | None, where: str) -> None:
        if not given:
            raise SharingRefused("PASSWORD_REQUIRED", "this link asks for a password")
        # Counted before it is compared, so that many guesses at once are no more than that many.
        # And only while the link is there, so that nothing of it is left behind.
        keys, client = self.keys, client_of(where)
        own, all_of_them = keys.guesses(id, client), keys.wrong_passwords(id)
        done = await keys.atomically(keys.link(id).exists().required(), own.increment(), all_of_them.increment())
        if not done:
            raise ended()
        if done.values[1] > _PASSWORD_TRIES or done.values[2] > _PASSWORD_TRIES_OF_ALL:
            raise SharingRefused("TOO_MANY_GUESSES", "too many wrong passwords; wait an hour", retryAfter=3600)
        if not is_password(given) or not await matches(given, kept):
            raise SharingRefused("PASSWORD_WRONG", "this is not the password")
        await keys.atomically(keys.link(id).exists().required(), own.delete(), all_of_them.decrement())

    # --- ending --------------------------------------------------------------------------------------------

    async def end(
        self,
        token: str | None,
        *,
        id: str | None = None,
        owner_key: str | None = None,
        user: User | None = None,
        where: str,
    ) -> None:
        """End a link in both its forms, and delete its file. It is dead at once, whatever becomes of the file.

        Whoever has the link can, unless its owner reserved that; its owner can by its id and the owner's key, or as
        the user who is signed in and whose link it is.
        """
        by = user.subject if user is not None else "receiver" if owner_key is None else "owner"
        async with self._noted("end", by, where) as asked:
            await self._end(token, id, owner_key, user, where, asked)

    async def _end(
        self, token: str | None, id: str | None, owner_key: str | None, user: User | None, where: str, asked: _Asked
    ) -> None:
        if id is None:
            payload = await self._opened(token)
            id, link = payload.id, await self._live(payload)
            if id is None or link is None:
                raise SharingRefused("NOT_ENDABLE", "this link was made elsewhere, and ends when it expires")
            asked.link = id
            # Who does not know the password of a link may not end it either.
            if link.owner_only or link.password is not None or owner_key is not None:
                self._check_owner(link, owner_key, user)
        else:
            link = await self._owned(id, owner_key, user)
            asked.link = id
        if not await self._close(id, link, asked.who, where):
            raise ended()
        await self._drop(id)

    @procedure(ordered="without its link a token opens nothing, and expires; the list of a user forgets what is gone")
    def _close(self, id: str, link: Link, who: str, where: str) -> Steps[None]:
        """End a link in both its forms."""
        keys = self.keys
        return Steps(
            keys.link(id).consume().required(),
            keys.token(link.short_token).delete(),
            keys.past(link.short_token).delete(),
            *([] if link.user_id is None else [keys.links_of_user(link.user_id).remove(id)]),
            self.audit.note("link-ended", who=who, what=id, where=where),
        )

    async def status(self, id: str, owner_key: str | None, user: User | None = None) -> Status:
        """What the owner of a link may know of it."""
        link = await self._owned(id, owner_key, user)
        downloads = await self.keys.downloads(id).get()
        return Status(deadline_ms(link.expires_at), downloads, link.max_downloads, link.ready)

    # --- the links of a user -------------------------------------------------------------------------------

    async def links_of(self, user: User) -> list[OwnLink]:
        """The links of a user that are alive, those that expire last first."""
        return await self._own_links.of(user)

    async def extend(
        self, id: str, valid_until: int | str, *, owner_key: str | None = None, user: User | None = None, where: str
    ) -> int:
        """Let a link live longer, up to the longest time from now on; returns when it expires.

        Raises SharingRefused: NOT_OWNER; BAD_EXPIRY where that is not later than before; REVOKED where it has ended.
        """
        async with self._noted("extend", "owner" if user is None else user.subject, where) as asked:
            await self._owned(id, owner_key, user)
            asked.link = id
            expires_ms = self._expiry_ms(valid_until, self.site.now_ms())
            await self._own_links.extend(id, expires_ms, who=asked.who, where=where)
            return expires_ms

    async def _owned(self, id: str, owner_key: str | None, user: User | None = None) -> Link:
        """The record of a link whose owner asks. Whether there is such a link is not told to others."""
        link = None
        if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", id):
            link = await self.keys.link(id).get().if_readable()
        if link is None:
            raise _not_owner()
        self._check_owner(link, owner_key, user)
        return link

    def _check_owner(self, link: Link, owner_key: str | None, user: User | None = None) -> None:
        if user is not None and link.user_id is not None and same(user.id, link.user_id):
            return
        if owner_key is None or not _SECRET.fullmatch(owner_key) or not same(digest(owner_key), link.owner):
            raise _not_owner()

    async def _drop(self, id: str) -> None:
        """Delete a link and its file, if it has one here; what cannot go now, the clean-up takes."""
        meta: EdgeMeta | None
        try:
            meta = await self.keys.meta(id).change(lambda one: one.model_copy(update={"expires_at": self._now}))
        except Unreadable:
            meta = None
        await self.keys.link(id).delete()
        if meta is not None:
            if meta.short_token:
                await self.keys.past(meta.short_token).delete()
            await self.clean_up.remove_now(id, meta)

    @property
    def _now(self) -> datetime:
        return moment(self.site.now_ms())


@asynccontextmanager
async def open_sharing(keys: SharingKeys, settings: SharingSettings, site: Site) -> AsyncIterator[Sharing]:
    """The service, with the place of its files. Raises FilesElsewhere where the store's files are in another one."""
    sealing = settings.own_token_keys or (keys.ring.derived("sharing links") if keys.ring is not None else [])
    blobs = await place_of(keys, settings)
    sharing = Sharing(keys, settings, site, blobs, SealedLinks(sealing))
    try:
        await sharing.place.open()
    except BlobUnavailable as error:  # it is looked at again before anything depends on it
        _log.warning("the place of the files cannot be reached: %s", error)
    yield sharing


def told(counts: Counts) -> dict[str, int | str]:
    """The counts under the names that the document has for them."""
    return {
        "scanned": counts.scanned,
        "deleted": counts.deleted,
        "notFound": counts.not_found,
        "missingMeta": counts.missing_meta,
        "skipped": counts.skipped,
        "errors": counts.errors,
    }


@contextmanager
def _busy_refused() -> Iterator[None]:
    try:
        yield
    except PasswordsBusy as busy:
        raise SharingRefused("TRY_AGAIN", str(busy)) from None
    except Contended:
        raise SharingRefused("TRY_AGAIN", "too many changed this link at once; try again") from None


def _new_id() -> str:
    """Ten characters, the first of which is a letter: some clients take a text of digits for a number."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return secrets.choice(letters) + secrets.token_urlsafe(8)[: SHORT_LENGTH - 1]


def _new_short() -> str:
    """Sixty bits in ten characters, and never a text of digits alone."""
    while True:
        short = secrets.token_urlsafe(8)[:SHORT_LENGTH]
        if not short.isdigit():
            return short


def _is_person(text: str) -> bool:
    return 1 <= len(text) <= RECEIVER_MAX and bool(text.strip()) and not misleads(text)


def _is_message(text: str) -> bool:
    """Half a surrogate pair is no text, and `(sealed)` is what stands for a text that is not shown."""
    return len(text) <= MESSAGE_MAX and text != "(sealed)" and not any("\ud800" <= char <= "\udfff" for char in text)


def _born_expired() -> SharingRefused:
    return SharingRefused("BORN_EXPIRED", "validUntil is past; a link must live for a moment")


def _not_owner() -> SharingRefused:
    return SharingRefused("NOT_OWNER", "this is not the owner's key of such a link")


def _moment_ms(given: int | str) -> int | None:
    if isinstance(given, str) and re.fullmatch("-?[0-9]{1,19}", given):
        given = int(given)
    try:
        if isinstance(given, int):
            return deadline_ms(moment(given))
        read = datetime.fromisoformat(given)
        return None if read.utcoffset() is None else deadline_ms(read.astimezone(UTC))
    except (ValueError, OverflowError):
        return None

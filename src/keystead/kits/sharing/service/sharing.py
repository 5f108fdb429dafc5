"""The sharing service: upload, issue, resolve, download, extend and end links. It knows no HTTP."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from keystead.errors import Contended, Unreadable
from keystead.kits.kit import Site
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import EdgeMeta, Link
from keystead.kits.sharing.service.clean_up import CleanUp, Counts
from keystead.kits.sharing.service.issuing import LinkIssuer
from keystead.kits.sharing.service.link_access import LinkAccess
from keystead.kits.sharing.service.names import checked_url, display_name, file_name
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
    used_up,
)
from keystead.kits.sharing.service.own_links import OwnLinks, User
from keystead.kits.sharing.service.place import MARKER, UPLOADS, Place, place_of
from keystead.kits.sharing.service.quota import Quota
from keystead.kits.sharing.service.sealed_links import Payload, SealedLinks
from keystead.kits.sharing.service.settings import LIMITS, SharingSettings
from keystead.kits.sharing.service.tickets import USED_UP, Range, Tickets
from keystead.kits.sharing.service.uploads import Uploads, ended_meanwhile
from keystead.parts.audit import Audit
from keystead.parts.blobs import Blobs, BlobTooLarge, BlobUnavailable
from keystead.parts.blobs.blob_paths import check_path
from keystead.parts.limit import NamedLimits
from keystead.parts.passwords import PasswordsBusy
from keystead.parts.schedule import Job, Run
from keystead.parts.sizes import size_bytes
from keystead.schema import Steps, attempts, procedure
from keystead.schema.kinds import Seen
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.sharing")

UPLOAD_S: Final = 3600  # how long an upload may take


@dataclass
class _Request:
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
        self._access = LinkAccess(keys, links, settings, site.now_ms)
        self._issuer = LinkIssuer(keys, settings, links, self.quota, self.audit, site.now_ms)
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
    async def _record_outcome(self, event: str, who: str, where: str) -> AsyncIterator[_Request]:
        """Counts the outcome of a request, and audits refusals. Successful changes write their own audit entries."""
        asked = _Request(who)
        try:
            with _refuse_if_busy():
                yield asked
        except SharingRefused as refused:
            self.site.count("sharing", event, refused.reason.lower().replace("_", "-"))
            if refused.reason != "PASSWORD_REQUIRED":  # that is a question, and the first thing a page asks
                note = self.refusals.note
                await note(f"{event}-refused", who=who, what=asked.link, where=where, why=refused.reason)
            raise
        self.site.count("sharing", event, "ok")

    async def note_stranger(self, event: str, where: str) -> None:
        """Count and audit a request that lacked the required secret."""
        self.site.count("sharing", event, "unauthorized")
        await self.refusals.note(f"{event}-refused", who="stranger", where=where, why="UNAUTHORIZED")

    # --- issuing -------------------------------------------------------------------------------------------

    async def issue(self, url: str, name: str | None, wanted: Wanted, *, who: str, where: str) -> Issued:
        """A link to a file elsewhere. Nothing is deleted there when it expires."""
        async with self._record_outcome("issue", who, where):
            leads_to = checked_url(url, self.settings.allowed_hosts)
            shown = display_name(name)
            return await self._issuer.issue({"u": leads_to}, shown, wanted, who=who, where=where)

    async def register(self, path: str, url: str, name: str | None, wanted: Wanted, *, who: str, where: str) -> Issued:
        """A link to a file that somebody uploaded to the place of our files: it is deleted when the link expires."""
        async with self._record_outcome("issue", who, where):
            leads_to = checked_url(url, self.settings.allowed_hosts)
            check_path(path)
            if path.partition("/")[0].casefold() in (UPLOADS, MARKER):
                raise SharingRefused("PATH_TAKEN", f"what is under {UPLOADS}/ was uploaded here, and has its link")
            shown = display_name(name or path.rpartition("/")[2])
            return await self._issuer.issue({"u": leads_to}, shown, wanted, path=path, who=who, where=where)

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
        async with self._record_outcome("issue", who, where):
            return await self._upload(body, display_name(name, ending=""), wanted, size, who=who, where=where)

    async def _upload(
        self, body: AsyncIterable[bytes], shown: str, wanted: Wanted, size: int | None, *, who: str, where: str
    ) -> Issued:
        with self.uploads.room(where):
            await self.place.claim()
            path = f"{UPLOADS}/{secrets.token_urlsafe(18)}/{file_name(shown)}"
            largest = size_bytes(self.settings.max_upload)
            reserved = min(largest, largest if size is None else size)
            issued = await self._issuer.issue(
                {"b": path}, shown, wanted, path=path, reserved=reserved, who=who, where=where
            )
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
                # Also when the client disconnects. If this fails too, the clean-up job deletes the upload later.
                await asyncio.shield(self._drop(issued.id))
                raise
            if not await self.uploads.made_ready(issued, size):
                await self._drop(issued.id)
                await self.blobs.delete(path)  # whoever ended it may have come before the file was there
                raise ended_meanwhile()
            return replace(issued, size=size)

    # --- looking and using ---------------------------------------------------------------------------------

    async def look(self, token: str | None) -> Shown:
        """What a link is. Nothing is used up, and nothing is written."""
        payload = await self._access.open(token)
        link = await self._access.find(payload)
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
        async with self._record_outcome("resolve", "receiver", where) as asked:
            payload = await self._access.open(token)
            asked.link = payload.id or ""
            return await self._resolve(payload, password, where)

    async def _resolve(self, payload: Payload, password: str | None, where: str) -> Resolved:
        link = await self._access.find(payload)
        if link is None or payload.id is None:  # sealed elsewhere with the same key
            return Resolved(payload.n, payload.n, payload.exp, payload.p, url=payload.u)
        if not link.ready:
            raise SharingRefused("NOT_READY", "this file is still being uploaded; try again in a moment", retryAfter=5)
        if link.password is not None:
            await self._access.check_password(payload.id, link.password, password, where)
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
        async with self._record_outcome("download", "receiver", where) as noted:
            noted.link = self.tickets.link_of(ticket) or ""
            return await self.tickets.download(ticket, asked or Range(), where=where, looking=looking)

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
        async with self._record_outcome("end", by, where) as asked:
            await self._end(token, id, owner_key, user, where, asked)

    async def _end(
        self, token: str | None, id: str | None, owner_key: str | None, user: User | None, where: str, asked: _Request
    ) -> None:
        if id is None:
            payload = await self._access.open(token)
            id, link = payload.id, await self._access.find(payload)
            if id is None or link is None:
                raise SharingRefused("NOT_ENDABLE", "this link was made elsewhere, and ends when it expires")
            asked.link = id
            # Ending a link that has a password takes the owner: whoever only holds the link may not know the password.
            if link.owner_only or link.password is not None or owner_key is not None:
                self._access.check_owner(link, owner_key, user)
        else:
            link = await self._access.find_owned(id, owner_key, user)
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
        link = await self._access.find_owned(id, owner_key, user)
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
        async with self._record_outcome("extend", "owner" if user is None else user.subject, where) as asked:
            await self._access.find_owned(id, owner_key, user)
            asked.link = id
            expires_ms = self._issuer.expiry_ms(valid_until, self.site.now_ms())
            await self._own_links.extend(id, expires_ms, who=asked.who, where=where)
            return expires_ms

    async def _drop(self, id: str) -> None:
        """Delete a link and its file, if it is stored here. The clean-up job retries what fails."""
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
def _refuse_if_busy() -> Iterator[None]:
    try:
        yield
    except PasswordsBusy as busy:
        raise SharingRefused("TRY_AGAIN", str(busy)) from None
    except Contended:
        raise SharingRefused("TRY_AGAIN", "too many changed this link at once; try again") from None

"""The sharing service: upload, issue, resolve, download, extend and end links."""

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
from keystead.kits.sharing.service.clean_up import CleanUp
from keystead.kits.sharing.service.issuing import LinkIssuer
from keystead.kits.sharing.service.link_access import LinkAccess
from keystead.kits.sharing.service.names import check_url, display_name, file_name
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
from keystead.kits.sharing.service.uploads import Uploads, ended_during_upload
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
    """The actor of a request and, once known, the link."""

    who: str
    link: str = ""


class Sharing:
    """Links, their files, and the clean-up of both."""

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
        return counts.as_dict()

    @asynccontextmanager
    async def _record_outcome(self, event: str, who: str, where: str) -> AsyncIterator[_Request]:
        """Counts the outcome of a request, and audits refusals. Successful changes write their own audit entries."""
        request = _Request(who)
        try:
            with _refuse_if_busy():
                yield request
        except SharingRefused as refused:
            self.site.count("sharing", event, refused.reason.lower().replace("_", "-"))
            if refused.reason != "PASSWORD_REQUIRED":  # a normal first step, not a failure
                note = self.refusals.note
                await note(f"{event}-refused", who=who, what=request.link, where=where, why=refused.reason)
            raise
        self.site.count("sharing", event, "ok")

    async def note_stranger(self, event: str, where: str) -> None:
        """Count and audit a request that lacked the required secret."""
        self.site.count("sharing", event, "unauthorized")
        await self.refusals.note(f"{event}-refused", who="stranger", where=where, why="UNAUTHORIZED")

    # --- issuing -------------------------------------------------------------------------------------------

    async def issue(self, url: str, name: str | None, wanted: Wanted, *, who: str, where: str) -> Issued:
        """Issue a link to an external file, which is not deleted when the link expires."""
        async with self._record_outcome("issue", who, where):
            target = check_url(url, self.settings.allowed_hosts)
            return await self._issuer.issue({"u": target}, display_name(name), wanted, who=who, where=where)

    async def register(self, path: str, url: str, name: str | None, wanted: Wanted, *, who: str, where: str) -> Issued:
        """Issue a link to a file that another system uploaded to our location. It is deleted when the link expires."""
        async with self._record_outcome("issue", who, where):
            target = check_url(url, self.settings.allowed_hosts)
            check_path(path)
            if path.partition("/")[0].casefold() in (UPLOADS, MARKER):
                raise SharingRefused("PATH_TAKEN", f"files under {UPLOADS}/ were uploaded here and have their links")
            shown = display_name(name or path.rpartition("/")[2])
            return await self._issuer.issue({"u": target}, shown, wanted, path=path, who=who, where=where)

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
        """Store a file and issue a link to it. The link does not open before the upload is complete.

        The record is written first, so that the clean-up finds the remains of an interrupted upload. `size` is the
        maximum number of bytes, if known.
        """
        async with self._record_outcome("issue", who, where):
            return await self._upload(body, display_name(name, ending=""), wanted, size, who=who, where=where)

    async def _upload(
        self, body: AsyncIterable[bytes], shown: str, wanted: Wanted, size: int | None, *, who: str, where: str
    ) -> Issued:
        with self.uploads.reserve_slot(where):
            await self.place.claim()
            path = f"{UPLOADS}/{secrets.token_urlsafe(18)}/{file_name(shown)}"
            largest = size_bytes(self.settings.max_upload)
            reserved = min(largest, largest if size is None else size)
            issued = await self._issuer.issue(
                {"b": path}, shown, wanted, path=path, reserved=reserved, who=who, where=where
            )
            try:
                size = await self.blobs.put(path, self.uploads.watch(body, issued.id), max_bytes=reserved)
                if size == 0:
                    raise SharingRefused("EMPTY", "this file is empty")
            except BlobTooLarge:
                await self._drop(issued.id)
                limit = self.settings.max_upload
                raise SharingRefused("TOO_LARGE", f"this file is too large; the limit is {limit}") from None
            except BaseException:
                # Also when the client disconnects. If this fails too, the clean-up job deletes the upload later.
                await asyncio.shield(self._drop(issued.id))
                raise
            if not await self.uploads.finish(issued, size):
                await self._drop(issued.id)
                await self.blobs.delete(path)  # the link may have been ended before the file was stored
                raise ended_during_upload()
            return replace(issued, size=size)

    # --- viewing and using ---------------------------------------------------------------------------------

    async def look(self, token: str | None) -> Shown:
        """The details of a link. Uses up nothing and writes nothing."""
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
        """The target of a link: the URL of an external file, which counts as a download, or a ticket for an uploaded
        file, which counts when its first bytes are sent.
        """
        async with self._record_outcome("resolve", "receiver", where) as request:
            payload = await self._access.open(token)
            request.link = payload.id or ""
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
                await self.place.check()  # at a wrong location every file would seem to be gone
                _log.error("the file of a link is no longer in %s", self.blobs.url)
                raise SharingRefused("FILE_GONE", "the file of this link is gone; ask the sender for a new link")
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
        """Count a use of a link to an external file. Raises SharingRefused: USED_UP, REVOKED or EXPIRED."""
        async for _ in attempts("this link"):
            seen = await self.keys.link(id).see()
            if seen is None:
                raise ended()
            done = await self._use(id, seen, where)
            if done.stopped == USED_UP:
                raise used_up()
            if done:
                return

    @procedure(ordered="a counted use is missing in the log of uses")
    def _use(self, id: str, seen: Seen[Link], where: str) -> Steps[None]:
        """Count a use if the link is unchanged since it was read: an extension also extends the counter."""
        counted = self.tickets.count(id, seen.value)
        note = self.uses.note("link-resolved", who="receiver", what=id, where=where)
        return Steps(self.keys.link(id).holds(seen), *counted, note)

    async def download(
        self, ticket: str, requested: Range | None = None, *, where: str = "", head_only: bool = False
    ) -> Download:
        """The file of a ticket, or a part of it; see `Tickets.download`. Counted when its first bytes are sent."""
        async with self._record_outcome("download", "receiver", where) as request:
            request.link = self.tickets.link_of(ticket) or ""
            return await self.tickets.download(ticket, requested or Range(), where=where, head_only=head_only)

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
        """Revoke a link in both its forms and delete its file. It stops working immediately, even if that fails.

        Anyone with the link may, unless the link is `owner_only`. Its owner may by its id and owner key, or as the
        signed-in user who created it.
        """
        by = user.subject if user is not None else "receiver" if owner_key is None else "owner"
        async with self._record_outcome("end", by, where) as request:
            await self._end(token, id, owner_key, user, where, request)

    async def _end(
        self, token: str | None, id: str | None, owner_key: str | None, user: User | None, where: str, request: _Request
    ) -> None:
        if id is None:
            payload = await self._access.open(token)
            id, link = payload.id, await self._access.find(payload)
            if id is None or link is None:
                raise SharingRefused("NOT_ENDABLE", "this link was issued by another system; it ends when it expires")
            request.link = id
            # Only the owner may end a link with a password: other holders of the link may not know the password.
            if link.owner_only or link.password is not None or owner_key is not None:
                self._access.check_owner(link, owner_key, user)
        else:
            link = await self._access.find_owned(id, owner_key, user)
            request.link = id
        if not await self._close(id, link, request.who, where):
            raise ended()
        await self._drop(id)

    @procedure(ordered="a token without its link opens nothing and expires; the user's list drops missing links")
    def _close(self, id: str, link: Link, who: str, where: str) -> Steps[None]:
        """Delete both forms of a link."""
        keys = self.keys
        return Steps(
            keys.link(id).consume().required(),
            keys.token(link.short_token).delete(),
            keys.past(link.short_token).delete(),
            *([] if link.user_id is None else [keys.links_of_user(link.user_id).remove(id)]),
            self.audit.note("link-ended", who=who, what=id, where=where),
        )

    async def status(self, id: str, owner_key: str | None, user: User | None = None) -> Status:
        """The status of a link, for its owner."""
        link = await self._access.find_owned(id, owner_key, user)
        downloads = await self.keys.downloads(id).get()
        return Status(deadline_ms(link.expires_at), downloads, link.max_downloads, link.ready)

    # --- the links of a user -------------------------------------------------------------------------------

    async def links_of(self, user: User) -> list[OwnLink]:
        """The active links of a user, latest expiry first."""
        return await self._own_links.of(user)

    async def extend(
        self, id: str, valid_until: int | str, *, owner_key: str | None = None, user: User | None = None, where: str
    ) -> int:
        """Extend a link, to at most `max_ttl` from now. Returns its new expiry.

        Raises SharingRefused: NOT_OWNER; BAD_EXPIRY if the expiry is not later than before; REVOKED if it has ended.
        """
        async with self._record_outcome("extend", "owner" if user is None else user.subject, where) as request:
            await self._access.find_owned(id, owner_key, user)
            request.link = id
            expires_ms = self._issuer.expiry_ms(valid_until, self.site.now_ms())
            await self._own_links.extend(id, expires_ms, who=request.who, where=where)
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
    """The sharing service. Raises FilesElsewhere if the store's files are at another location."""
    sealing = settings.own_token_keys or (keys.ring.derived("sharing links") if keys.ring is not None else [])
    blobs = await place_of(keys, settings)
    sharing = Sharing(keys, settings, site, blobs, SealedLinks(sealing))
    try:
        await sharing.place.open()
    except BlobUnavailable as error:  # checked again before it matters
        _log.warning("the location of the files cannot be reached: %s", error)
    yield sharing


@contextmanager
def _refuse_if_busy() -> Iterator[None]:
    try:
        yield
    except PasswordsBusy as busy:
        raise SharingRefused("TRY_AGAIN", str(busy)) from None
    except Contended:
        raise SharingRefused("TRY_AGAIN", "too many concurrent changes of this link; try again") from None

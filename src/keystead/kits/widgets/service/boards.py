"""Boards: messages, the newest first, and no more of them than the board holds."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from keystead.kits.widgets.models import BbsMessage, BbsRecord, BbsSelect, BbsSettings
from keystead.kits.widgets.service.checks import lines, refuse_spam, text, whole
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.outcomes import (
    BoardData,
    BoardSettings,
    Created,
    MessageData,
    Owner,
    Pagination,
    Posted,
    Visitor,
)
from keystead.kits.widgets.service.records import Guards, Use, tries
from keystead.kits.widgets.service.refused import WidgetRefused, too_soon, wrong
from keystead.kits.widgets.service.services import UNSET, Service
from keystead.parts.digest import digest, same
from keystead.schema import Bound, Operation, Steps, procedure
from keystead.schema.key import Key
from keystead.schema.kinds import Seen, SortedSetKey, ValueKey
from keystead.schema.times import deadline_ms, moment

AUTHOR_MAX: Final = 20
MESSAGE_MAX: Final = 200
TITLE_MAX: Final = 100
MAX_MESSAGES: Final = 10_000
DEFAULT_MESSAGES: Final = 100
PAGE_MAX: Final = 100
DEFAULT_PAGE: Final = 10
LIMIT_MAX: Final = 1000  # messages that are shown at once
DEFAULT_TITLE: Final = "BBS"
COOLDOWN_S: Final = 10

ICONS: Final = ["😀", "😎", "😍", "🤔", "😴", "🎉"]
SELECTS: Final = [
    BbsSelect(label="region", options=["Africa", "Americas", "Asia", "Europe", "Oceania"]),
    BbsSelect(label="weather", options=["☀️", "☁️", "🌧️", "❄️"]),
    BbsSelect(label="mood", options=["😊", "😐", "😢", "😡"]),
]

_MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PAGE: Final = 500  # messages that are read at once where one is looked for
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Boards(Service[BbsRecord]):
    name = "bbs"
    word = "board"

    async def create(
        self,
        url: Any,
        token: Any,
        *,
        visitor: Visitor,
        title: Any = DEFAULT_TITLE,
        messages_per_page: Any = DEFAULT_PAGE,
        max_messages: Any = DEFAULT_MESSAGES,
        enable_icons: bool = True,
        enable_selects: bool = False,
        webhook_url: Any = None,
        id: Any = None,
    ) -> Created:
        """A board for a page; the one that is there, for whoever has its token."""
        settings = BbsSettings(
            title=text("title", title, 1, TITLE_MAX),
            messages_per_page=whole("messagesPerPage", messages_per_page, 1, PAGE_MAX),
            max_messages=whole("max", max_messages, 1, MAX_MESSAGES),
            icons=list(ICONS) if enable_icons else None,
            selects=list(SELECTS) if enable_selects else None,
        )
        return await self._create(
            url,
            token,
            visitor,
            lambda values: BbsRecord(**values, settings=settings),
            id=id,
            webhook_url=webhook_url,
        )

    async def post(
        self,
        id: Any,
        visitor: Visitor,
        message: Any,
        author: Any = None,
        icon: Any = None,
        selects: Sequence[Any] = (),
    ) -> Posted:
        """Put a message on the board; then the visitor waits 10 seconds for the next. Two round trips, the second one
        atomic.

        Who may come between: others who post, here or in other processes, whose clocks differ. The version holds them
        off, and a message is never older than the one below it: so the board is in the order of its times.

        The edit token is what changes the message and takes it away. It is told once, and only its digest is kept.
        """
        edit_token = secrets.token_urlsafe(24)
        limit: str | None = "post"
        async with self._turn(id):
            await self._refuse_post(id, visitor, message, author, icon, selects)
            async for _ in tries(self.word):
                seen = await self._load_known(id)
                board = seen.value
                version, below = await self.keys.run(
                    self.keys.bbs_version(board.id).get(), self.keys.bbs_messages(board.id).items(0, 0).if_readable()
                )
                now_ms = max([self.site.now_ms(), *(deadline_ms(one.timestamp) for one in below)])
                new = BbsMessage(
                    id=_message_id(board.id, now_ms),
                    timestamp=moment(now_ms),
                    user_hash=self._visitor_hash(board.id, visitor),
                    edit_digest=digest(edit_token),
                    **self._parse_post(board, message, author, icon, selects),
                )
                done = await self._run_guarded(
                    seen, limit, visitor, partial(self._post, board=board, new=new, at=version)
                )
                limit = None  # it is counted
                if done.stopped == "bbs_post":
                    self.site.count("widgets", "post", "too-soon")
                    raise await self._too_soon(board.id, visitor)
                if done:
                    break
        self.site.count("widgets", "post", "ok")
        return Posted(await self.get(id), new.id, edit_token)

    @procedure
    def _post(self, guards: Guards, board: BbsRecord, new: BbsMessage, at: int) -> Steps[None]:
        """A message on top of those that were read at this version."""
        keys, version = self.keys, self.keys.bbs_version(board.id)
        data = {"messageId": new.id, "author": new.author, "message": new.message}
        told = self._hooks.make_event(self.name, board, "bbs.post", data)
        return Steps(
            *guards,
            self._is(version, at),
            keys.bbs_post(board.id, new.user_hash).add(moment(self.site.now_ms())),
            keys.bbs_messages(board.id).prepend(new, keep=board.settings.max_messages or DEFAULT_MESSAGES),
            version.increment(),
            *told,
        )

    async def get(self, id: Any, page: Any = 1, visitor: Visitor | None = None, *, limit: Any = None) -> BoardData:
        """A page of messages, the newest first. One round trip where this process knows the board, and two otherwise.

        `limit` is how many a page has, if not as many as the board says. A page beyond the last is empty.
        """
        number = whole("page", page, 1)
        wanted = None if limit is None else whole("limit", limit, 1, LIMIT_MAX)
        size = wanted or (await self._load_known(id)).value.settings.messages_per_page or DEFAULT_PAGE
        async for _ in tries(self.word):
            at = (number - 1) * size

            def operations(at: int = at, size: int = size) -> list[Operation[Any]]:
                messages = self.keys.bbs_messages(id)
                page, newest = messages.items(at, at + size - 1), messages.items(0, 0)
                return [page.if_readable(), messages.count(), newest.if_readable()]

            record, (messages, total, newest) = await self._read(id, visitor, operations)
            if wanted or (record.settings.messages_per_page or DEFAULT_PAGE) == size:
                break
            size, visitor = record.settings.messages_per_page or DEFAULT_PAGE, None  # it was counted
        pages = max(1, -(-total // size))
        settings = record.settings
        return BoardData(
            id=record.id,
            url=record.url,
            title=settings.title or DEFAULT_TITLE,
            messages=[_data(one) for one in messages],
            total_messages=total,
            current_page=number,
            total_pages=pages,
            pagination=Pagination(page=number, total_pages=pages, has_prev=number > 1, has_next=number < pages),
            settings=BoardSettings(
                title=settings.title or DEFAULT_TITLE,
                messages_per_page=settings.messages_per_page or DEFAULT_PAGE,
                max_messages=settings.max_messages or DEFAULT_MESSAGES,
                icons=settings.icons,
                selects=settings.selects,
            ),
            last_message=iso(newest[0].timestamp) if newest else None,
            current_user_hash=None if visitor is None else self._visitor_hash(record.id, visitor),
        )

    async def edit(self, id: Any, message_id: Any, edit_token: Any, *, visitor: Visitor, **changed: Any) -> BoardData:
        """Change a message of one's own: `message`, `author`, `icon` and `selects`, those that are given.

        It stays where it stands. Raises WidgetRefused where the edit token is not that of the message.
        """
        await self._change_message(id, message_id, visitor, _secret(edit_token), changed)
        return await self.get(id, visitor=None)

    async def remove(self, id: Any, message_id: Any, edit_token: Any, *, visitor: Visitor) -> BoardData:
        """Take a message of one's own away."""
        await self._change_message(id, message_id, visitor, _secret(edit_token), None)
        return await self.get(id, visitor=None)

    async def owner_edit(self, owner: Owner, message_id: Any, *, visitor: Visitor, **changed: Any) -> BoardData:
        """Change any message of the board."""
        id = (await self._find_owned(owner, visitor)).value.id
        await self._change_message(id, message_id, None, None, changed)
        return await self.get(id)

    async def owner_remove(self, owner: Owner, message_id: Any, *, visitor: Visitor) -> BoardData:
        """Take any message of the board away."""
        id = (await self._find_owned(owner, visitor)).value.id
        await self._change_message(id, message_id, None, None, None)
        return await self.get(id)

    async def clear(self, owner: Owner, *, visitor: Visitor) -> BoardData:
        """Take all messages away."""

        async def step(seen: Seen[BbsRecord]) -> Sequence[Operation[Any]]:
            return [self.keys.bbs_messages(seen.value.id).delete(), self.keys.bbs_version(seen.value.id).increment()]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def update_settings(
        self,
        owner: Owner,
        *,
        visitor: Visitor,
        title: Any = UNSET,
        messages_per_page: Any = UNSET,
        max_messages: Any = UNSET,
        enable_icons: Any = UNSET,
        enable_selects: Any = UNSET,
        webhook_url: Any = UNSET,
    ) -> BoardData:
        """Change what is given, in one step. Fewer messages: the oldest go."""
        kept: dict[str, Any] = {}
        if title is not UNSET:
            kept["title"] = text("title", title, 1, TITLE_MAX)
        if messages_per_page is not UNSET:
            kept["messages_per_page"] = whole("messagesPerPage", messages_per_page, 1, PAGE_MAX)
        if max_messages is not UNSET:
            kept["max_messages"] = whole("max", max_messages, 1, MAX_MESSAGES)
        if enable_icons is not UNSET:
            kept["icons"] = list(ICONS) if enable_icons else None
        if enable_selects is not UNSET:
            kept["selects"] = list(SELECTS) if enable_selects else None
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[BbsRecord]) -> Sequence[Operation[Any]]:
            settings = seen.value.settings.model_copy(update=kept)
            record = change.of(seen.value).model_copy(update={"settings": settings})
            most = settings.max_messages or DEFAULT_MESSAGES
            messages = self.keys.bbs_messages(record.id)
            return [self._write_record(record), messages.trim(most), self.keys.bbs_version(record.id).increment()]

        data = await self.get((await self._change(owner, visitor, step)).id)
        return data.model_copy(update={"webhook_secret": change.secret})

    # --- one message -------------------------------------------------------------------------------------------

    async def _refuse_post(self, id: Any, visitor: Visitor, *given: Any) -> None:
        """Refuse what the board does not take. One that this process remembers may have other settings by now."""
        record = (await self._load_for_visitor(id, "post", visitor)).value
        try:
            self._parse_post(record, *given)
        except WidgetRefused:
            await self._limit.count("write", visitor.address)  # what is refused costs something, too
            self._forget(record.id)
            self._parse_post((await self._load_known(id)).value, *given)

    def _parse_post(
        self, record: BbsRecord, message: Any, author: Any, icon: Any, selects: Sequence[Any]
    ) -> dict[str, Any]:
        """What a message holds. Raises WidgetRefused."""
        said = lines("message", message, 1, MESSAGE_MAX)
        name = "" if author is None else text("author", author, 0, AUTHOR_MAX)
        refuse_spam(self.settings, "message", name, said)
        return {
            "message": said,
            "author": name or self.settings.default_author,
            "icon": _icon(record, icon),
            "selects": _choose_options(record, selects),
        }

    def _apply_changes(self, record: BbsRecord, message: BbsMessage, changed: dict[str, Any]) -> dict[str, Any]:
        """What a message holds that is changed. What stays is not looked at: the board may have other settings now."""
        written: dict[str, Any] = {}
        if "message" in changed:
            written["message"] = lines("message", changed["message"], 1, MESSAGE_MAX)
        if "author" in changed:
            name = changed["author"]
            written["author"] = text("author", name or "", 0, AUTHOR_MAX) or self.settings.default_author
        refuse_spam(self.settings, "message", *written.values())
        if "icon" in changed and changed["icon"] != message.icon:
            written["icon"] = _icon(record, changed["icon"])
        if "selects" in changed:
            written["selects"] = _choose_options(record, changed["selects"])
        return written

    async def _change_message(
        self, id: Any, message_id: Any, visitor: Visitor | None, edit_token: str | None, changed: dict[str, Any] | None
    ) -> None:
        """Change a message, or take it away (None), at the place where it is read. No edit token: its owner does it.

        Who may come between: new messages, which move its place, and other changes of it. The version holds both off.
        No visitor: the request was counted before.
        """
        if not isinstance(message_id, str) or not _MESSAGE_ID.fullmatch(message_id):
            raise wrong("messageId", "messageId says which message it is, as the board tells it")
        if visitor is not None:
            await self._limit.count("write", visitor.address)
        async for _ in tries(self.word):
            seen = await self._load_known(id)
            record = seen.value
            version = await self.keys.bbs_version(record.id).get()
            found = await self._find_message(record.id, message_id)
            if found is None:
                # A message that was moved by another between two pages is looked for once more.
                if await self.keys.bbs_version(record.id).get() != version:
                    continue
                raise WidgetRefused("NOT_FOUND", "there is no such message; it may have been taken away")
            place, stored, message = found
            if edit_token is not None and not same(digest(edit_token), message.edit_digest or ""):
                raise WidgetRefused("UNAUTHORIZED", "this is not the edit token of this message")
            await self._hooks.announce(self.name, record)
            counter = self.keys.bbs_version(record.id)
            steps = self._message_steps(record, place, stored, message, changed)
            if await self._write(seen, [self._is(counter, version), *steps, counter.increment()]):
                return
            self._forget(record.id)

    def _message_steps(
        self,
        record: BbsRecord,
        place: int,
        stored: Seen[BbsMessage | None],
        message: BbsMessage,
        changed: dict[str, Any] | None,
    ) -> list[Operation[Any]]:
        messages = self.keys.bbs_messages(record.id)
        if changed is None:
            told = self._hooks.make_event(self.name, record, "bbs.delete", {"messageId": message.id})
            return [messages.remove(stored, 1), *told]
        written = self._apply_changes(record, message, changed)
        new = message.model_copy(update=written | {"edited": moment(self.site.now_ms())})
        data = {"messageId": new.id, "author": new.author, "message": new.message}
        return [messages.replace(place, new), *self._hooks.make_event(self.name, record, "bbs.edit", data)]

    async def _find_message(self, id: str, message_id: str) -> tuple[int, Seen[BbsMessage | None], BbsMessage] | None:
        """A message with its place and as it is stored, looked for from the newest on."""
        messages, at = self.keys.bbs_messages(id), 0
        while True:
            page = await messages.see(at, at + _PAGE - 1)
            for place, stored in enumerate(page, at):
                if stored.value is not None and stored.value.id == message_id:
                    return place, stored, stored.value
            if len(page) < _PAGE:
                return None
            at += _PAGE

    async def _too_soon(self, id: str, visitor: Visitor) -> Exception:
        sent = await self.keys.bbs_post(id, self._visitor_hash(id, visitor)).get()
        left_ms = 1000 if sent is None else deadline_ms(sent) + COOLDOWN_S * 1000 - self.site.now_ms()
        return too_soon(max(1, -(-left_ms // 1000)), "you have just posted")

    async def _last_use(self, record: BbsRecord) -> Use:
        """The newest message says when; every change moves the version on. One that cannot be read may be new."""
        messages, counter = self.keys.bbs_messages(record.id), self.keys.bbs_version(record.id)
        version, count, newest = await self.keys.run(
            counter.get(), messages.count(), messages.items(0, 0).if_readable()
        )
        if count and not newest:
            return Use(moment(self.site.now_ms()))
        at = max(filter(None, (newest[0].timestamp, newest[0].edited))) if newest else None
        return Use(at, lambda: [self._is(counter, version)])

    def _belongings(self, record: BbsRecord) -> list[Key]:
        keys, id = self.keys, record.id
        return [keys.bbs_messages(id), keys.bbs_version(id), keys.bbs_posters(id)]

    def _marks(self, id: str) -> tuple[SortedSetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.bbs_posters(id), self.keys.bbs_post


def _data(message: BbsMessage) -> MessageData:
    """What everybody may see of a message."""
    chosen = message.selects
    return MessageData(
        id=message.id,
        timestamp=iso(message.timestamp) or "",
        edited=iso(message.edited),
        author=message.author,
        message=message.message,
        icon=message.icon,
        selects=None if chosen is None else {label: str(one) for label, one in chosen.items()},
        user_hash=message.user_hash,
    )


def _message_id(board: str, now_ms: int) -> str:
    """`{board}_{ms}_{six digits}`, both in base 36."""
    digits, rest = "", now_ms
    while rest:
        rest, digit = divmod(rest, 36)
        digits = _DIGITS[digit] + digits
    return f"{board}_{digits}_{''.join(secrets.choice(_DIGITS) for _ in range(6))}"


def _secret(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise wrong("editToken", "editToken is what the answer to the post told; only its author has it")
    return given


def _icon(record: BbsRecord, given: Any) -> str | None:
    if given is None or given == "":
        return None
    icons = record.settings.icons or []
    if given not in icons:
        raise wrong("icon", f"icon is one of {' '.join(icons)}" if icons else "this board has no icons")
    icon: str = given
    return icon


def _choose_options(record: BbsRecord, given: Sequence[Any]) -> dict[str, Any] | None:
    """What was chosen, by label: select1 is of the first list, and so on."""
    chosen: dict[str, Any] = {}
    offered = record.settings.selects or []
    for place, one in enumerate(given):
        if one is None or one == "":
            continue
        name = f"select{place + 1}"
        if place >= len(offered):
            raise wrong(name, f"this board has no {name}")
        if one not in offered[place].options:
            raise wrong(name, f"{name} is one of {', '.join(offered[place].options)}")
        chosen[offered[place].label] = one
    return chosen or None

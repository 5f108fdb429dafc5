"""Boards: messages, newest first, up to a maximum number."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from keystead.kits.widgets.models import BbsMessage, BbsRecord, BbsSelect, BbsSettings
from keystead.kits.widgets.service.checks import check_number, check_text, refuse_spam
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
from keystead.kits.widgets.service.records import Guards, LastUse, Operations, tries
from keystead.kits.widgets.service.refused import WidgetRefused, invalid
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
LIMIT_MAX: Final = 1000  # messages in one response
DEFAULT_TITLE: Final = "BBS"
COOLDOWN_S: Final = 10

ICONS: Final = ["😀", "😎", "😍", "🤔", "😴", "🎉"]
SELECTS: Final = [
    BbsSelect(label="region", options=["Africa", "Americas", "Asia", "Europe", "Oceania"]),
    BbsSelect(label="weather", options=["☀️", "☁️", "🌧️", "❄️"]),
    BbsSelect(label="mood", options=["😊", "😐", "😢", "😡"]),
]

_MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PAGE: Final = 500  # messages read at once in a search
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Boards(Service[BbsRecord]):
    name = "bbs"
    word = "board"
    record_type = BbsRecord

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
        """Create the board of a page, or return the existing one if the token is its owner's."""
        given = _check_settings(title, messages_per_page, max_messages, enable_icons, enable_selects)
        return await self._create(url, token, visitor, id=id, webhook_url=webhook_url, settings=BbsSettings(**given))

    async def post(
        self,
        id: Any,
        visitor: Visitor,
        message: Any,
        author: Any = None,
        icon: Any = None,
        selects: Sequence[Any] = (),
    ) -> Posted:
        """Post a message, which starts a cooldown of 10 seconds. Two round trips, the second one atomic.

        Who may interleave: other visitors, also in processes whose clocks differ. The version guards the write, and a
        message is never older than the one below it, so the messages are in the order of their timestamps.

        The edit token changes and deletes the message. It is shown only once; only its digest is stored.
        """
        edit_token = secrets.token_urlsafe(24)
        limit: str | None = "post"
        async with self._lock(id):
            await self._refuse_post(id, visitor, message, author, icon, selects)
            async for _ in tries(self.word):
                seen = await self._load_cached(id)
                board = seen.value
                version, newest = await self.keys.run(
                    self.keys.bbs_version(board.id).get(), self.keys.bbs_messages(board.id).items(0, 0).if_readable()
                )
                now_ms = max([self.site.now_ms(), *(deadline_ms(one.timestamp) for one in newest)])
                new = BbsMessage(
                    id=_make_message_id(board.id, now_ms),
                    timestamp=moment(now_ms),
                    user_hash=self._visitor_hash(board.id, visitor),
                    edit_digest=digest(edit_token),
                    **self._parse_post(board, message, author, icon, selects),
                )
                done = await self._run_guarded(
                    seen, limit, visitor, partial(self._post, board=board, new=new, version=version)
                )
                limit = None  # counted
                if done.stopped == "bbs_post":
                    self.site.count("widgets", "post", "too-soon")
                    marker = self.keys.bbs_post(board.id, new.user_hash)
                    raise await self._cooldown(marker, COOLDOWN_S, "you have just posted")
                if done:
                    break
        self.site.count("widgets", "post", "ok")
        return Posted(await self.get(id), new.id, edit_token)

    @procedure
    def _post(self, guards: Guards, board: BbsRecord, new: BbsMessage, version: int) -> Steps[None]:
        """Add a message if the board still has this version."""
        keys, counter = self.keys, self.keys.bbs_version(board.id)
        return Steps(
            *guards,
            self._equals(counter, version),
            keys.bbs_post(board.id, new.user_hash).add(moment(self.site.now_ms())),
            keys.bbs_messages(board.id).prepend(new, keep=board.settings.max_messages or DEFAULT_MESSAGES),
            counter.increment(),
            *self._make_message_event(board, "bbs.post", new),
        )

    def _make_message_event(self, board: BbsRecord, event: str, message: BbsMessage) -> list[Operation[Any]]:
        data = {"messageId": message.id, "author": message.author, "message": message.message}
        return self._hooks.make_event(self.name, board, event, data)

    async def get(self, id: Any, page: Any = 1, visitor: Visitor | None = None, *, limit: Any = None) -> BoardData:
        """A page of messages, newest first. One round trip if the record is cached, otherwise two.

        `limit` overrides the page size of the board. A page beyond the last is empty.
        """
        number = check_number("page", page, 1)
        wanted = None if limit is None else check_number("limit", limit, 1, LIMIT_MAX)
        size = wanted or (await self._load_cached(id)).value.settings.messages_per_page or DEFAULT_PAGE
        async for _ in tries(self.word):
            at = (number - 1) * size

            def operations(at: int = at, size: int = size) -> list[Operation[Any]]:
                messages = self.keys.bbs_messages(id)
                page, newest = messages.items(at, at + size - 1), messages.items(0, 0)
                return [page.if_readable(), messages.count(), newest.if_readable()]

            record, (messages, total, newest) = await self._read(id, visitor, operations)
            if wanted or (record.settings.messages_per_page or DEFAULT_PAGE) == size:
                break
            size, visitor = record.settings.messages_per_page or DEFAULT_PAGE, None  # counted
        pages = max(1, -(-total // size))
        settings = record.settings
        return BoardData(
            id=record.id,
            url=record.url,
            title=settings.title or DEFAULT_TITLE,
            messages=[_message_data(message) for message in messages],
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
        """Edit a message as its author: the given ones of `message`, `author`, `icon` and `selects`.

        The message keeps its position. Raises WidgetRefused for a wrong edit token.
        """
        await self._change_message(id, message_id, visitor, _check_edit_token(edit_token), changed)
        return await self.get(id, visitor=None)

    async def remove(self, id: Any, message_id: Any, edit_token: Any, *, visitor: Visitor) -> BoardData:
        """Delete a message as its author. Raises WidgetRefused for a wrong edit token."""
        await self._change_message(id, message_id, visitor, _check_edit_token(edit_token), None)
        return await self.get(id, visitor=None)

    async def owner_edit(self, owner: Owner, message_id: Any, *, visitor: Visitor, **changed: Any) -> BoardData:
        """Edit any message, as the owner of the board."""
        id = (await self._find_owned(owner, visitor)).value.id
        await self._change_message(id, message_id, None, None, changed)
        return await self.get(id)

    async def owner_remove(self, owner: Owner, message_id: Any, *, visitor: Visitor) -> BoardData:
        """Delete any message, as the owner of the board."""
        id = (await self._find_owned(owner, visitor)).value.id
        await self._change_message(id, message_id, None, None, None)
        return await self.get(id)

    async def clear(self, owner: Owner, *, visitor: Visitor) -> BoardData:
        """Delete all messages."""

        async def step(seen: Seen[BbsRecord]) -> Operations:
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
        """Change the given settings in one step. A lower maximum deletes the oldest messages."""
        update = _check_settings(title, messages_per_page, max_messages, enable_icons, enable_selects)
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[BbsRecord]) -> Operations:
            settings = seen.value.settings.model_copy(update=update)
            record = change.apply_to(seen.value).model_copy(update={"settings": settings})
            most = settings.max_messages or DEFAULT_MESSAGES
            messages = self.keys.bbs_messages(record.id)
            return [self._write_record(record), messages.trim(most), self.keys.bbs_version(record.id).increment()]

        data = await self.get((await self._change(owner, visitor, step)).id)
        return data.model_copy(update={"webhook_secret": change.secret})

    # --- one message -------------------------------------------------------------------------------------------

    async def _refuse_post(self, id: Any, visitor: Visitor, *given: Any) -> None:
        """Refuse invalid input before the write. The cached record may be stale, so check again with a fresh one."""
        record = (await self._load_for_visitor(id, "post", visitor)).value
        try:
            self._parse_post(record, *given)
        except WidgetRefused:
            await self._limit.count("write", visitor.address)  # refused posts count, too
            self._forget(record.id)
            self._parse_post((await self._load_cached(id)).value, *given)

    def _parse_post(
        self, record: BbsRecord, message: Any, author: Any, icon: Any, selects: Sequence[Any]
    ) -> dict[str, Any]:
        """The fields of a message. Raises WidgetRefused."""
        checked = check_text("message", message, 1, MESSAGE_MAX, multiline=True)
        name = "" if author is None else check_text("author", author, 0, AUTHOR_MAX)
        refuse_spam(self.settings, "message", name, checked)
        return {
            "message": checked,
            "author": name or self.settings.default_author,
            "icon": _check_icon(record, icon),
            "selects": _choose_options(record, selects),
        }

    def _parse_edit(self, record: BbsRecord, message: BbsMessage, changed: dict[str, Any]) -> dict[str, Any]:
        """The changed fields. Unchanged ones are not checked: the settings may have changed since."""
        update: dict[str, Any] = {}
        if "message" in changed:
            update["message"] = check_text("message", changed["message"], 1, MESSAGE_MAX, multiline=True)
        if "author" in changed:
            name = check_text("author", changed["author"] or "", 0, AUTHOR_MAX)
            update["author"] = name or self.settings.default_author
        refuse_spam(self.settings, "message", *update.values())
        if "icon" in changed and changed["icon"] != message.icon:
            update["icon"] = _check_icon(record, changed["icon"])
        if "selects" in changed:
            update["selects"] = _choose_options(record, changed["selects"])
        return update

    async def _change_message(
        self, id: Any, message_id: Any, visitor: Visitor | None, edit_token: str | None, changed: dict[str, Any] | None
    ) -> None:
        """Edit a message, or delete it (`changed` is None). No edit token: as the owner of the board.

        Who may interleave: new messages, which move its position, and other edits. The version guards against both.
        No visitor: the request is already counted.
        """
        if not isinstance(message_id, str) or not _MESSAGE_ID.fullmatch(message_id):
            raise invalid("messageId", "messageId must be the id of a message of this board")
        if visitor is not None:
            await self._limit.count("write", visitor.address)
        async for _ in tries(self.word):
            seen = await self._load_cached(id)
            record = seen.value
            version = await self.keys.bbs_version(record.id).get()
            found = await self._find_message(record.id, message_id)
            if found is None:
                # It may have moved between two pages of the search: if the board has changed, search again.
                if await self.keys.bbs_version(record.id).get() != version:
                    continue
                raise WidgetRefused("NOT_FOUND", "there is no such message; it may have been deleted")
            position, stored, message = found
            if edit_token is not None and not same(digest(edit_token), message.edit_digest or ""):
                raise WidgetRefused("UNAUTHORIZED", "this is not the edit token of this message")
            await self._hooks.announce(self.name, record)
            counter = self.keys.bbs_version(record.id)
            steps = self._message_steps(record, position, stored, message, changed)
            if await self._write(seen, [self._equals(counter, version), *steps, counter.increment()]):
                return
            self._forget(record.id)

    def _message_steps(
        self,
        record: BbsRecord,
        position: int,
        stored: Seen[BbsMessage | None],
        message: BbsMessage,
        changed: dict[str, Any] | None,
    ) -> list[Operation[Any]]:
        messages = self.keys.bbs_messages(record.id)
        if changed is None:
            event = self._hooks.make_event(self.name, record, "bbs.delete", {"messageId": message.id})
            return [messages.remove(stored, 1), *event]
        update = self._parse_edit(record, message, changed)
        new = message.model_copy(update=update | {"edited": moment(self.site.now_ms())})
        return [messages.replace(position, new), *self._make_message_event(record, "bbs.edit", new)]

    async def _find_message(self, id: str, message_id: str) -> tuple[int, Seen[BbsMessage | None], BbsMessage] | None:
        """A message with its position and stored form, or None. The search starts at the newest."""
        messages, at = self.keys.bbs_messages(id), 0
        while True:
            page = await messages.see(at, at + _PAGE - 1)
            for position, stored in enumerate(page, at):
                if stored.value is not None and stored.value.id == message_id:
                    return position, stored, stored.value
            if len(page) < _PAGE:
                return None
            at += _PAGE

    async def _last_use(self, record: BbsRecord) -> LastUse:
        """The time of the newest message, guarded by the version. An unreadable message may be new."""
        messages, counter = self.keys.bbs_messages(record.id), self.keys.bbs_version(record.id)
        version, count, newest = await self.keys.run(
            counter.get(), messages.count(), messages.items(0, 0).if_readable()
        )
        if count and not newest:
            return LastUse(moment(self.site.now_ms()))
        at = max(filter(None, (newest[0].timestamp, newest[0].edited))) if newest else None
        return LastUse(at, lambda: [self._equals(counter, version)])

    def _owned_keys(self, record: BbsRecord) -> list[Key]:
        keys, id = self.keys, record.id
        return [keys.bbs_messages(id), keys.bbs_version(id), keys.bbs_posters(id)]

    def _markers(self, id: str) -> tuple[SortedSetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.bbs_posters(id), self.keys.bbs_post


def _check_settings(
    title: Any, messages_per_page: Any, max_messages: Any, enable_icons: Any, enable_selects: Any
) -> dict[str, Any]:
    """The settings that are not UNSET. Raises WidgetRefused."""
    settings: dict[str, Any] = {}
    if title is not UNSET:
        settings["title"] = check_text("title", title, 1, TITLE_MAX)
    if messages_per_page is not UNSET:
        settings["messages_per_page"] = check_number("messagesPerPage", messages_per_page, 1, PAGE_MAX)
    if max_messages is not UNSET:
        settings["max_messages"] = check_number("max", max_messages, 1, MAX_MESSAGES)
    if enable_icons is not UNSET:
        settings["icons"] = list(ICONS) if enable_icons else None
    if enable_selects is not UNSET:
        settings["selects"] = list(SELECTS) if enable_selects else None
    return settings


def _message_data(message: BbsMessage) -> MessageData:
    """The public view of a message."""
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


def _make_message_id(board: str, now_ms: int) -> str:
    """`{board}_{ms}_{six digits}`, both in base 36."""
    digits, rest = "", now_ms
    while rest:
        rest, digit = divmod(rest, 36)
        digits = _DIGITS[digit] + digits
    return f"{board}_{digits}_{''.join(secrets.choice(_DIGITS) for _ in range(6))}"


def _check_edit_token(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise invalid("editToken", "editToken must be the token from the response to the post")
    return given


def _check_icon(record: BbsRecord, given: Any) -> str | None:
    if given is None or given == "":
        return None
    icons = record.settings.icons or []
    if given not in icons:
        raise invalid("icon", f"icon must be one of {' '.join(icons)}" if icons else "this board has no icons")
    icon: str = given
    return icon


def _choose_options(record: BbsRecord, given: Sequence[Any]) -> dict[str, Any] | None:
    """The chosen options by label: `select1` is from the first list, and so on. Raises WidgetRefused."""
    chosen: dict[str, Any] = {}
    lists = record.settings.selects or []
    for number, option in enumerate(given, 1):
        if option is None or option == "":
            continue
        name = f"select{number}"
        if number > len(lists):
            raise invalid(name, f"this board has no {name}")
        offered = lists[number - 1]
        if option not in offered.options:
            raise invalid(name, f"{name} must be one of {', '.join(offered.options)}")
        chosen[offered.label] = option
    return chosen or None

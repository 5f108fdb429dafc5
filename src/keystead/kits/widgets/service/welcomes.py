"""Welcome cards ("yokoso"): a message of the owner to visitors, as a badge or as a card."""

from __future__ import annotations

import re
from typing import Any, Final, get_args

from keystead.kits.widgets.models import WelcomeMode, WelcomeRecord
from keystead.kits.widgets.service.checks import URL_MAX, check_text
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.outcomes import Created, Owner, Visitor, WelcomeData
from keystead.kits.widgets.service.records import Operations
from keystead.kits.widgets.service.refused import invalid
from keystead.kits.widgets.service.services import UNSET, Service
from keystead.schema.key import Key
from keystead.schema.kinds import Seen
from keystead.schema.times import moment

MODES: Final[tuple[WelcomeMode, ...]] = get_args(WelcomeMode)
BADGE_MAX: Final = 20
CARD_MAX: Final = 140
CARD_LINES: Final = 10
NAME_MAX: Final = 30
AVATAR_MAX: Final = 32_768  # characters of a data URL

_AVATAR_URL = re.compile(r"https?://[^\s\"'<>\\\\]+")
_AVATAR_DATA = re.compile(r"data:image/(webp|png|jpeg|gif|svg\+xml);base64,[A-Za-z0-9+/]+={0,2}")


class Welcomes(Service[WelcomeRecord]):
    name = "yokoso"
    word = "welcome card"
    record_type = WelcomeRecord
    records_use = False  # visitors only look at it

    async def create(
        self,
        url: Any,
        token: Any,
        *,
        visitor: Visitor,
        message: Any,
        mode: Any = "badge",
        name: Any = None,
        avatar: Any = None,
        webhook_url: Any = None,
        id: Any = None,
    ) -> Created:
        """Create the welcome card of a page, or return the existing one if the token is its owner's."""
        return await self._create(
            url,
            token,
            visitor,
            id=id,
            webhook_url=webhook_url,
            message=_check_message(mode, message),
            mode=mode,
            name=_check_name(name),
            avatar=_check_avatar(avatar),
            updated=moment(self.site.now_ms()),
        )

    async def get(self, id: Any, visitor: Visitor | None = None) -> WelcomeData:
        """The card. One round trip."""
        record, _ = await self._read(id, visitor, list)
        return _data(record)

    async def update(
        self,
        owner: Owner,
        *,
        visitor: Visitor,
        message: Any = UNSET,
        mode: Any = UNSET,
        name: Any = UNSET,
        avatar: Any = UNSET,
        webhook_url: Any = UNSET,
    ) -> WelcomeData:
        """Change the given fields in one step. The message must fit the mode, even if only one of them changes."""
        update: dict[str, Any] = {}
        if name is not UNSET:
            update["name"] = _check_name(name)
        if avatar is not UNSET:
            update["avatar"] = _check_avatar(avatar)
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[WelcomeRecord]) -> Operations:
            old = seen.value
            update["mode"] = old.mode if mode is UNSET else mode
            update["message"] = _check_message(update["mode"], old.message if message is UNSET else message)
            update["updated"] = moment(self.site.now_ms())
            record = change.apply_to(old).model_copy(update=update)
            await self._hooks.announce(self.name, record)
            if message is UNSET:
                return [self._write_record(record)]
            event = self._hooks.make_event(self.name, record, "yokoso.update", {"message": record.message})
            return [self._write_record(record), *event]

        data = _data(await self._change(owner, visitor, step))
        return data.model_copy(update={"webhook_secret": change.secret})

    def _owned_keys(self, record: WelcomeRecord) -> list[Key]:
        return []

    def _markers(self, id: str) -> None:
        return None


def _data(record: WelcomeRecord) -> WelcomeData:
    return WelcomeData(
        id=record.id,
        url=record.url,
        message=record.message,
        mode=record.mode,
        name=record.name,
        avatar=record.avatar,
        updated_at=iso(record.updated) or "",
    )


def _check_message(mode: Any, message: Any) -> str:
    if mode not in MODES:
        raise invalid("mode", f"mode must be one of {', '.join(MODES)}")
    if mode == "badge":
        return check_text("message", message, 1, BADGE_MAX)
    checked = check_text("message", message, 1, CARD_MAX, multiline=True)
    if checked.count("\n") >= CARD_LINES:
        raise invalid("message", f"message must have at most {CARD_LINES} lines")
    return checked


def _check_name(given: Any) -> str | None:
    return None if given is None or given == "" else check_text("name", given, 1, NAME_MAX)


def _check_avatar(given: Any) -> str | None:
    """A URL or a data URL. Neither can break out of an HTML attribute, nor be a script."""
    if given is None or given == "":
        return None
    if isinstance(given, str) and len(given) <= URL_MAX and _AVATAR_URL.fullmatch(given) and given.isprintable():
        return given
    if isinstance(given, str) and len(given) <= AVATAR_MAX and _AVATAR_DATA.fullmatch(given):
        return given
    raise invalid(
        "avatar",
        "avatar must be the URL of a picture, https://…, or a data URL, data:image/png;base64,…, of a webp, png, jpeg, "
        f"gif or svg+xml picture, with at most {AVATAR_MAX:,} characters",
    )

"""Welcome cards ("yokoso"): a sentence of the owner's for whoever comes to the page, as a badge or as a card."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, get_args

from keystead.kits.widgets.models import WelcomeMode, WelcomeRecord
from keystead.kits.widgets.service.checks import URL_MAX, lines, text
from keystead.kits.widgets.service.days import iso
from keystead.kits.widgets.service.outcomes import Created, Owner, Visitor, WelcomeData
from keystead.kits.widgets.service.refused import wrong
from keystead.kits.widgets.service.services import UNSET, Service
from keystead.schema import Operation
from keystead.schema.key import Key
from keystead.schema.kinds import Seen
from keystead.schema.times import moment

MODES: Final[tuple[WelcomeMode, ...]] = get_args(WelcomeMode)
BADGE_MAX: Final = 20
CARD_MAX: Final = 140
CARD_LINES: Final = 10
NAME_MAX: Final = 30
AVATAR_MAX: Final = 32_768  # characters of a picture that is given as such

_AVATAR_URL = re.compile(r"https?://[^\s\"'<>\\\\]+")
_AVATAR_DATA = re.compile(r"data:image/(webp|png|jpeg|gif|svg\+xml);base64,[A-Za-z0-9+/]+={0,2}")


class Welcomes(Service[WelcomeRecord]):
    name = "yokoso"
    word = "welcome card"
    notes_use = False  # it is only looked at

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
        """A welcome card for a page; the one that is there, for whoever has its token."""
        said = _check_message(mode, message)
        shown = {"name": _name(name), "avatar": _avatar(avatar), "updated": moment(self.site.now_ms())}
        return await self._create(
            url,
            token,
            visitor,
            lambda values: WelcomeRecord(**values, **shown, mode=mode, message=said),
            id=id,
            webhook_url=webhook_url,
        )

    async def get(self, id: Any, visitor: Visitor | None = None) -> WelcomeData:
        """What it says. One round trip."""
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
        """Change what is given, in one step. The message must fit the mode, also where only one of them changes."""
        shown: dict[str, Any] = {}
        if name is not UNSET:
            shown["name"] = _name(name)
        if avatar is not UNSET:
            shown["avatar"] = _avatar(avatar)
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[WelcomeRecord]) -> Sequence[Operation[Any]]:
            was = seen.value
            new_mode = was.mode if mode is UNSET else mode
            said = _check_message(new_mode, was.message if message is UNSET else message)
            update = {**shown, "mode": new_mode, "message": said, "updated": moment(self.site.now_ms())}
            record = change.of(was).model_copy(update=update)
            await self._hooks.announce(self.name, record)
            told = (
                []
                if message is UNSET
                else self._hooks.make_event(self.name, record, "yokoso.update", {"message": said})
            )
            return [self._write_record(record), *told]

        data = _data(await self._change(owner, visitor, step))
        return data.model_copy(update={"webhook_secret": change.secret})

    def _belongings(self, record: WelcomeRecord) -> list[Key]:
        return []

    def _marks(self, id: str) -> None:
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
        raise wrong("mode", f"mode is one of {', '.join(MODES)}")
    if mode == "badge":
        return text("message", message, 1, BADGE_MAX)
    said = lines("message", message, 1, CARD_MAX)
    if said.count("\n") >= CARD_LINES:
        raise wrong("message", f"message has at most {CARD_LINES} lines")
    return said


def _name(given: Any) -> str | None:
    return None if given is None or given == "" else text("name", given, 1, NAME_MAX)


def _avatar(given: Any) -> str | None:
    """An address, or a picture as such. Neither can end the attribute that it stands in, nor be a script."""
    if given is None or given == "":
        return None
    if isinstance(given, str) and len(given) <= URL_MAX and _AVATAR_URL.fullmatch(given) and given.isprintable():
        return given
    if isinstance(given, str) and len(given) <= AVATAR_MAX and _AVATAR_DATA.fullmatch(given):
        return given
    raise wrong(
        "avatar",
        "avatar is the address of a picture, https://…, or the picture itself, data:image/png;base64,…, as webp, png, "
        f"jpeg, gif or svg+xml in at most {AVATAR_MAX:,} characters",
    )

"""The operations of the guestbook, without HTTP."""

from datetime import UTC, datetime
from secrets import token_hex

from sqlalchemy import Connection, select, update

from guestbook.keys import Entry, GuestbookKeys
from guestbook.tables import DAYS
from keystead.kits.kit import Site
from keystead.parts.schedule import Run
from keystead.parts.tables import locked_row


class Guestbook:
    def __init__(self, keys: GuestbookKeys, page_size: int, site: Site) -> None:
        self._keys = keys
        self._page_size = page_size
        self._site = site
        self._tables = site.tables_for("guestbook")

    async def sign(self, name: str, text: str) -> None:
        """Write an entry, and count it in the table."""
        await self._keys.entry(token_hex(8)).add(Entry(name=name, text=text))
        await self._tables.write(lambda connection: _count(connection, self._today()))

    async def entries(self) -> list[Entry]:
        """The latest entries, newest first, without expired ones."""
        ids = (await self._keys.index().live())[-self._page_size :]
        found = [await self._keys.entry(id).get() for id in reversed(ids)]
        return [entry for entry in found if entry is not None]

    async def days(self) -> dict[str, int]:
        """The number of entries of each day."""
        return await self._tables.read(
            lambda connection: {row.day: row.entries for row in connection.execute(select(DAYS))}
        )

    async def prune(self, run: Run) -> dict[str, int | str]:
        """The job: remove expired entries from the index."""
        return {"listed": len(await self._keys.index().live())}

    def _today(self) -> str:
        return datetime.fromtimestamp(self._site.now_ms() / 1000, UTC).date().isoformat()


def _count(connection: Connection, day: str) -> None:
    # Two visitors may be the first of a day at once: one creates the row, and the other waits for it.
    row = locked_row(connection, select(DAYS).where(DAYS.c.day == day), DAYS, {"day": day, "entries": 0})
    connection.execute(update(DAYS).where(DAYS.c.day == day).values(entries=row.entries + 1))

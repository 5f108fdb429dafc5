"""What the demo provider does, without HTTP: codes and tokens as a strict provider gives them.

A code or token is `{grant}.{secret}`, and the store knows only digests. Whoever brings one that is spent shows that
somebody else has it, too: its grant is deleted, and with it all that came of that sign-in (RFC 9700, 2.2.2 and 4.14.2).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final
from unicodedata import normalize

from keystead.parts.digest import digest
from keystead.parts.oauth import challenge_of
from keystead.server.demo_provider.keys import DemoCode, DemoGrant, DemoKeys, DemoPledge

CLIENT_ID: Final = "demo"
PATREON_CLIENT_ID: Final = "demo-patreon"  # of whoever asks what people pay
ACCESS_TOKEN_S: Final = 3600
_CODE_MS = 60_000
_GRANT_MS = 30 * 86_400_000
LONGEST_NAME: Final = 64


@dataclass(frozen=True)
class Person:
    """Somebody who can sign in."""

    id: str
    name: str

    @property
    def initials(self) -> str:
        return "".join(word[0] for word in self.name.split()[:2]).upper()


PEOPLE: Final = (
    Person("demo-ada", "Ada Lovelace"),
    Person("demo-grace", "Grace Hopper"),
    Person("demo-alan", "Alan Turing"),
)

AMOUNTS: Final = (0, 300, 500, 900)  # cents a month that somebody can pay
# One of each, so that a newcomer sees different plans. Anybody else pays nothing at first.
_FIRST_AMOUNTS: Final = {"demo-ada": 900, "demo-grace": 500, "demo-alan": 300}


@dataclass(frozen=True)
class Issued:
    """What a token endpoint answers with."""

    access_token: str
    refresh_token: str
    scope: str


def person_called(name: str) -> Person | None:
    """Anybody can sign in by a name, and is the same person the next time. None: that is no name."""
    tidy = " ".join("".join(c if c.isprintable() else " " for c in normalize("NFC", name)).split())
    if not 0 < len(tidy) <= LONGEST_NAME:
        return None
    return Person(f"demo-{sha256(tidy.casefold().encode()).hexdigest()[:16]}", tidy)


class DemoProvider:
    """The operations of the demo provider. None where a strict provider says `invalid_grant`."""

    def __init__(self, keys: DemoKeys) -> None:
        self._keys = keys

    async def sign_in(
        self, person: Person, redirect_uri: str, challenge: str, scope: str, client: str = CLIENT_ID
    ) -> str:
        """A new code, good for a minute and for one exchange, by this client."""
        grant = token_urlsafe(32)
        code = f"{grant}.{token_urlsafe(32)}"
        expires_at = self._keys.now_ms() + _CODE_MS
        granted = DemoGrant.model_validate(
            {"id": person.id, "name": person.name, "scope": scope, "expires_at": expires_at, "client": client}
        )
        asked = DemoCode(redirect_uri=redirect_uri, challenge=challenge, client=client)
        await self._keys.run(
            self._keys.grant(grant=digest(grant)).add(granted),
            self._keys.code(code=digest(code)).add(asked),
        )
        return code

    async def exchange(self, code: str, verifier: str, redirect_uri: str, client: str = CLIENT_ID) -> Issued | None:
        """The first tokens. Of several callers with one code at most one gets them, and none keeps them."""
        grant = self._keys.grant(grant=_grant_of(code))
        asked = await self._keys.code(code=digest(code)).consume()
        is_its_own = asked is not None and (asked.redirect_uri, asked.client) == (redirect_uri, client)
        if asked is None or not is_its_own or not _proves(verifier, asked.challenge):
            await grant.delete()
            return None
        expires_at = self._keys.now_ms() + _GRANT_MS
        # Update-only: a second use of the code may have deleted it since, and then it stays dead.
        granted = await grant.change(
            lambda old: DemoGrant.model_validate({**old.model_dump(), "expires_at": expires_at})
        )
        return None if granted is None else await self._issue(code, granted.scope)

    async def refresh(self, refresh_token: str, client: str = CLIENT_ID) -> Issued | None:
        """The next tokens. A refresh token that was used before ends the whole sign-in."""
        grant = self._keys.grant(grant=_grant_of(refresh_token))
        scope = await self._keys.refresh(token=digest(refresh_token)).consume()
        if scope is None:
            await grant.delete()
            return None
        granted = await grant.get()
        return await self._issue(refresh_token, scope) if granted is not None and granted.client == client else None

    async def who(self, access_token: str) -> Person | None:
        """Whose access token this is; None: it is none, or no longer. One round trip."""
        scope, granted = await self._keys.run(
            self._keys.access(token=digest(access_token)).get(),
            self._keys.grant(grant=_grant_of(access_token)).get(),
        )
        return None if scope is None or granted is None else Person(granted.id, granted.name)

    async def revoke(self, token: str) -> None:
        """End the sign-in that this token came of. One that is unknown is no error (RFC 7009, 2.2)."""
        await self._keys.grant(grant=_grant_of(token)).delete()

    async def _issue(self, earlier: str, scope: str) -> Issued:
        """New tokens of the grant that an earlier code or token names. They are dead if it is."""
        grant = earlier.partition(".")[0]
        issued = Issued(f"{grant}.{token_urlsafe(32)}", f"{grant}.{token_urlsafe(32)}", scope)
        await self._keys.run(
            self._keys.access(token=digest(issued.access_token)).add(scope),
            self._keys.refresh(token=digest(issued.refresh_token)).add(scope),
        )
        return issued


class Pledges:
    """What people pay, where the demo provider stands in for one that knows."""

    def __init__(self, keys: DemoKeys) -> None:
        self._keys = keys

    async def meet(self, person: Person) -> None:
        """Remember how somebody is called who may come by any name."""
        await self._keys.pledge(person.id).add(_first_pledge(person))

    async def of(self, person: Person) -> int:
        """What somebody pays now, in cents a month."""
        held = await self._keys.pledge(person.id).get()
        return (held or _first_pledge(person)).cents

    async def all(self, further: str | None = None) -> dict[Person, int]:
        """What those pay whom the page names, and one further, by id, who has signed in before. One round trip."""
        rows = [self._keys.pledge(person.id) for person in PEOPLE]
        if further is not None and all(further != person.id for person in PEOPLE):
            rows.append(self._keys.pledge(further))
        held = await self._keys.run(*(row.get() for row in rows))
        paying = {
            person: (one or _first_pledge(person)).cents
            for person, one in zip(PEOPLE, held[: len(PEOPLE)], strict=True)
        }
        for one in held[len(PEOPLE) :]:
            if one is not None and further is not None:
                paying[Person(further, one.name)] = one.cents
        return paying

    async def change(self, person: Person, cents: int) -> int:
        """From now on somebody pays so much. What they paid until now."""
        row = self._keys.pledge(person.id)
        before, _ = (await self._keys.atomically(row.get(), row.set(DemoPledge(name=person.name, cents=cents)))).values
        return (before or _first_pledge(person)).cents


def in_words(cents: int) -> str:
    """What an amount is called on a page."""
    return f"pays ${cents / 100:g} a month" if cents else "pays nothing"


def _first_pledge(person: Person) -> DemoPledge:
    return DemoPledge(name=person.name, cents=_FIRST_AMOUNTS.get(person.id, 0))


def _grant_of(token: str) -> str:
    return digest(token.partition(".")[0])


def _proves(verifier: str, challenge: str) -> bool:
    return hmac.compare_digest(challenge_of(verifier), challenge)

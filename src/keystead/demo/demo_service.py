"""The demo provider without HTTP: it issues codes and tokens as a strict provider does.

A code or token is `{grant}.{secret}`; the store holds only digests. A replayed code or refresh token means that it
leaked, so its grant is deleted, and all tokens of that sign-in become invalid (RFC 9700, 2.2.2 and 4.14.2).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final
from unicodedata import normalize

from keystead.demo.demo_keys import DemoCode, DemoGrant, DemoKeys, DemoPledge
from keystead.kits.language import Speaker
from keystead.parts.digest import digest
from keystead.parts.oauth import challenge_of

CLIENT_ID: Final = "demo"
PATREON_CLIENT_ID: Final = "demo-patreon"  # of clients of the stand-in for Patreon
ACCESS_TOKEN_S: Final = 3600
_CODE_MS = 60_000
_GRANT_MS = 30 * 86_400_000
LONGEST_NAME: Final = 64


@dataclass(frozen=True)
class Person:
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

AMOUNTS: Final = (0, 300, 500, 900)  # the possible pledges, in cents per month
# Different amounts show different plans. Other people start with nothing.
_INITIAL_AMOUNTS: Final = {"demo-ada": 900, "demo-grace": 500, "demo-alan": 300}


@dataclass(frozen=True)
class Issued:
    """The response of the token endpoint."""

    access_token: str
    refresh_token: str
    scope: str


def make_person(name: str) -> Person | None:
    """The person of this name, always with the same id; None if it is empty or too long."""
    tidy = " ".join("".join(c if c.isprintable() else " " for c in normalize("NFC", name)).split())
    if not 0 < len(tidy) <= LONGEST_NAME:
        return None
    return Person(f"demo-{sha256(tidy.casefold().encode()).hexdigest()[:16]}", tidy)


class DemoProvider:
    """The operations of the demo provider. None means `invalid_grant`."""

    def __init__(self, keys: DemoKeys) -> None:
        self._keys = keys

    async def sign_in(
        self, person: Person, redirect_uri: str, challenge: str, scope: str, client: str = CLIENT_ID
    ) -> str:
        """Issue a code for this client. It is valid for one minute and one exchange."""
        grant = token_urlsafe(32)
        code = f"{grant}.{token_urlsafe(32)}"
        expires_at = self._keys.now_ms() + _CODE_MS
        granted = DemoGrant.model_validate(
            {"id": person.id, "name": person.name, "scope": scope, "expires_at": expires_at, "client": client}
        )
        request = DemoCode(redirect_uri=redirect_uri, challenge=challenge, client=client)
        await self._keys.run(
            self._keys.grant(grant=digest(grant)).add(granted),
            self._keys.code(code=digest(code)).add(request),
        )
        return code

    async def exchange(self, code: str, verifier: str, redirect_uri: str, client: str = CLIENT_ID) -> Issued | None:
        """Exchange a code for tokens. If a code is used twice, at most one call gets tokens, and those are revoked."""
        grant = self._keys.grant(grant=_grant_of(code))
        request = await self._keys.code(code=digest(code)).consume()
        is_same_client = request is not None and (request.redirect_uri, request.client) == (redirect_uri, client)
        if request is None or not is_same_client or not _verify(verifier, request.challenge):
            await grant.delete()
            return None
        expires_at = self._keys.now_ms() + _GRANT_MS
        # Update only: a replay of the code may have deleted the grant meanwhile, and it must stay deleted.
        granted = await grant.change(
            lambda old: DemoGrant.model_validate({**old.model_dump(), "expires_at": expires_at})
        )
        return None if granted is None else await self._issue(code, granted.scope)

    async def refresh(self, refresh_token: str, client: str = CLIENT_ID) -> Issued | None:
        """Exchange a refresh token for new tokens. Reusing a refresh token revokes the whole sign-in."""
        grant = self._keys.grant(grant=_grant_of(refresh_token))
        scope = await self._keys.refresh(token=digest(refresh_token)).consume()
        if scope is None:
            await grant.delete()
            return None
        granted = await grant.get()
        return await self._issue(refresh_token, scope) if granted is not None and granted.client == client else None

    async def who(self, access_token: str) -> Person | None:
        """The owner of an access token; None if it is unknown or expired. One round trip."""
        scope, granted = await self._keys.run(
            self._keys.access(token=digest(access_token)).get(),
            self._keys.grant(grant=_grant_of(access_token)).get(),
        )
        return None if scope is None or granted is None else Person(granted.id, granted.name)

    async def revoke(self, token: str) -> None:
        """End the sign-in of this token. An unknown token is not an error (RFC 7009, 2.2)."""
        await self._keys.grant(grant=_grant_of(token)).delete()

    async def _issue(self, earlier: str, scope: str) -> Issued:
        """Issue tokens for the grant of an earlier code or token. They are invalid if the grant is gone."""
        grant = earlier.partition(".")[0]
        issued = Issued(f"{grant}.{token_urlsafe(32)}", f"{grant}.{token_urlsafe(32)}", scope)
        await self._keys.run(
            self._keys.access(token=digest(issued.access_token)).add(scope),
            self._keys.refresh(token=digest(issued.refresh_token)).add(scope),
        )
        return issued


class Pledges:
    """Monthly pledges, for the stand-in for Patreon."""

    def __init__(self, keys: DemoKeys) -> None:
        self._keys = keys

    async def add(self, person: Person) -> None:
        """Store the initial pledge of a person who signed in; an existing one stays."""
        await self._keys.pledge(person.id).add(_initial_pledge(person))

    async def of(self, person: Person) -> int:
        """The pledge of a person, in cents per month."""
        held = await self._keys.pledge(person.id).get()
        return (held or _initial_pledge(person)).cents

    async def all(self, further: str | None = None) -> dict[Person, int]:
        """The pledges of `PEOPLE`, and of one further person, by id, if they have signed in before. One round trip."""
        rows = [self._keys.pledge(person.id) for person in PEOPLE]
        if further is not None and all(further != person.id for person in PEOPLE):
            rows.append(self._keys.pledge(further))
        held = await self._keys.run(*(row.get() for row in rows))
        paying = {
            person: (one or _initial_pledge(person)).cents
            for person, one in zip(PEOPLE, held[: len(PEOPLE)], strict=True)
        }
        for one in held[len(PEOPLE) :]:
            if one is not None and further is not None:
                paying[Person(further, one.name)] = one.cents
        return paying

    async def change(self, person: Person, cents: int) -> int:
        """Change a pledge. Returns the previous one."""
        row = self._keys.pledge(person.id)
        before, _ = (await self._keys.atomically(row.get(), row.set(DemoPledge(name=person.name, cents=cents)))).values
        return (before or _initial_pledge(person)).cents


def describe_pledge(cents: int, say: Speaker) -> str:
    return say("pays {amount} a month", amount=f"${cents / 100:g}") if cents else say("pays nothing")


def _initial_pledge(person: Person) -> DemoPledge:
    return DemoPledge(name=person.name, cents=_INITIAL_AMOUNTS.get(person.id, 0))


def _grant_of(token: str) -> str:
    return digest(token.partition(".")[0])


def _verify(verifier: str, challenge: str) -> bool:
    return hmac.compare_digest(challenge_of(verifier), challenge)

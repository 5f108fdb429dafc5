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
from keystead.server.demo_provider.keys import DemoCode, DemoGrant, DemoKeys

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

    async def sign_in(self, person: Person, redirect_uri: str, challenge: str, scope: str) -> str:
        """A new code, good for a minute and for one exchange."""
        grant = token_urlsafe(32)
        code = f"{grant}.{token_urlsafe(32)}"
        expires_at = self._keys.now_ms() + _CODE_MS
        granted = DemoGrant.model_validate(
            {"id": person.id, "name": person.name, "scope": scope, "expires_at": expires_at}
        )
        await self._keys.run(
            self._keys.grant(grant=digest(grant)).add(granted),
            self._keys.code(code=digest(code)).add(DemoCode(redirect_uri=redirect_uri, challenge=challenge)),
        )
        return code

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> Issued | None:
        """The first tokens. Of several callers with one code at most one gets them, and none keeps them."""
        grant = self._keys.grant(grant=_grant_of(code))
        asked = await self._keys.code(code=digest(code)).consume()
        if asked is None or asked.redirect_uri != redirect_uri or not _proves(verifier, asked.challenge):
            await grant.delete()
            return None
        expires_at = self._keys.now_ms() + _GRANT_MS
        # Update-only: a second use of the code may have deleted it since, and then it stays dead.
        granted = await grant.change(
            lambda old: DemoGrant.model_validate({**old.model_dump(), "expires_at": expires_at})
        )
        return None if granted is None else await self._issue(code, granted.scope)

    async def refresh(self, refresh_token: str) -> Issued | None:
        """The next tokens. A refresh token that was used before ends the whole sign-in."""
        grant = self._keys.grant(grant=_grant_of(refresh_token))
        scope = await self._keys.refresh(token=digest(refresh_token)).consume()
        if scope is None:
            await grant.delete()
            return None
        return await self._issue(refresh_token, scope) if await grant.exists() else None

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


def _grant_of(token: str) -> str:
    return digest(token.partition(".")[0])


def _proves(verifier: str, challenge: str) -> bool:
    return hmac.compare_digest(challenge_of(verifier), challenge)

"""The key document of the login kit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keystead.kits.login.models import AuthState, PendingLogin, PwaSession, RefreshToken, Session, TokenRevocation
from keystead.parts.audit import AuditEntry
from keystead.parts.outbox.outbox_keys import OutboxKeys
from keystead.parts.sessions import Ended, Successor
from keystead.schema import Counter, Keyspace, Log, Operation, Set, Value, after, link, sliding

_START, _CALLBACK = "/api/auth/discord/start", "/api/auth/discord/callback"
_CLAIM, _LOGOUT, _ME = "/api/auth/discord/claim-session", "/api/auth/logout", "/api/discord/me"


class LoginKeys(Keyspace):
    """Who is logged in: sessions with the provider's tokens, each user's list of them, and logins under way."""

    source = "Login: sessions and OAuth state"
    part_keyspaces = (OutboxKeys,)
    changes = (
        "A sid or a state is not in the store: keys and members hold its SHA-256 digest, in base64url or hex.",
        "The provider's tokens, the PKCE verifier and a sid that waits to be claimed are sealed.",
    )

    session = Value(
        "sess:{sid:token}",
        Session,
        lifetime=sliding("30d", touch_every="1m"),
        listed_in=link("user_sessions", admits=True),
        owns="session_lock",
        member_of="login:{uid}",
        tag="sid",
        doc="A session: who is logged in, and the provider's tokens.",
        used_by=(_CALLBACK, _ME, _LOGOUT),
        changed="The sid in the key is the digest of the one in the cookie; `access_token` and `refresh_token` are "
        "sealed. `avatar` is null for a user who has none. The 30 days begin anew with use, as they did in practice, "
        "and `last_seen_at` is kept; to spare writes, at most once a minute. It counts only while its user's set names "
        "it: so a logout is final, whatever is under way. New, and left out unless set: `provider` (not for Discord), "
        "`provider_refused`, `browser` and `device`. A setting for less than 30 days makes keys live shorter.",
    )
    user_sessions = Set(
        "user:{uid}:sessions",
        str,
        lifetime=sliding("30d", touch_every="1m"),
        member_of="login:{uid}",
        doc="The sessions of a user that are alive: each member is the `sid` of a `sess` key.",
        used_by=(_CALLBACK, _LOGOUT),
        changed="The document says 30 days, and nothing ever set them: here each login starts them anew, and the set "
        "is touched with its sessions. A logout takes its session out, and sessions that have ended are pruned, so the "
        "set does not grow for ever; a user has at most five, by setting. Deleting it ends all of them in one step. "
        "Members are digests, as in the keys that they name.",
    )
    auth_state = Value(
        "discord:auth:{state:token}",
        AuthState,
        lifetime=after("10m"),
        doc="A login under way: the PKCE verifier that belongs to a state. Consumed once, by the callback.",
        used_by=(_START, _CALLBACK),
        changed="The state in the key is the digest of the one in the URL; `verifier` is sealed. What is new is left "
        "out unless it is set: `returnTo`, where the user goes after the login; `browserDigest`, of a secret that only "
        "the browser has in which it began; `nonce` and `issuer`, for OpenID Connect; `code`, which an app shows.",
    )
    oauth_state = Value(
        "oauth:auth:{provider:slug}:{state:token}",
        AuthState,
        lifetime=after("10m"),
        doc="The same for a login at another provider.",
        used_by=("/api/auth/{provider}/start", "/api/auth/{provider}/callback"),
        changed="New: the document knows one provider.",
    )
    pwa_session = Value(
        "discord:pwa-session:{state:token}",
        PwaSession,
        lifetime=after("10m"),
        member_of="login:{user_id}",
        doc="A session that an installed app may claim once, after the login took place in a browser.",
        used_by=(_CALLBACK, _CLAIM),
        changed="Not in the document, although its `loginContext` and `claimTokenDigest` are for this: the running "
        "system has it. The state in the key is a digest; `sid` is sealed, because claiming it sets the cookie.",
    )
    oauth_session = Value(
        "oauth:pwa-session:{provider:slug}:{state:token}",
        PwaSession,
        lifetime=after("10m"),
        member_of="login:{user_id}",
        doc="The same after a login at another provider.",
        used_by=("/api/auth/{provider}/callback", "/api/auth/{provider}/claim-session"),
        changed="New: the document knows one provider.",
    )
    login_confirm = Value(
        "login:confirm:{token:token}",
        PendingLogin,
        lifetime=after("10m"),
        member_of="login:{uid}",
        doc="A login that came back to a browser without its cookie: it waits until the user says that it is theirs.",
        used_by=(_CALLBACK, "/api/auth/discord/confirm"),
        changed="New. The document lets a login survive a lost cookie, and then a link from somebody else would log a "
        "user in unasked: here a page names the account first, and asks.",
    )
    refresh = Value(
        "login:refresh:{token:token}",
        RefreshToken,
        lifetime=after("30d"),
        leads_to=session,
        member_of="login:{uid}",
        doc="Refresh tokens of a program, each good for one use, and the session that they came of.",
        used_by=("/api/auth/token", "/api/auth/refresh"),
        changed="New, because programs have no cookie. One row for a token and all that are made of it. The key is the "
        "digest of the part that they share; they count as long as their session does.",
    )
    session_successor = Value(
        "next:sess:{sid:token}",
        Successor,
        lifetime=after("10s"),
        tag="sid",
        doc="Where a session went when its token was rotated, for requests that were under way.",
        used_by=(_ME,),
        changed="New, because the document never rotates.",
    )
    session_end = Value(
        "end:sess:{sid:token}",
        Ended,
        lifetime=after("1d"),
        tag="sid",
        doc="Why a session was ended from elsewhere, for the device that still has its token.",
        used_by=(_ME,),
        changed="New, because a user who is logged out by another login should be told.",
    )
    guesses = Counter(
        "rl:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("70s"),
        doc="Requests of a client in a minute: `window` is the number of the minute, `client` begins the digest of its "
        "address.",
        used_by=(_START, _CALLBACK, _CLAIM, _LOGOUT, _ME),
        changed="Not in the document: the running system has it. The first request sets the lifetime, in one step.",
    )
    session_lock = Value(
        "lock:sess:{sid:token}",
        str,
        lifetime=after("5s"),
        tag="sid",
        doc="Held by the one request that refreshes the provider's tokens of a session.",
        used_by=(_ME,),
        changed="The value names the holder instead of being `1` for everybody, so that a request whose 5 seconds are "
        "over cannot release the lock of the next one. It is deleted with its session.",
    )
    revocation = Value(
        "login:revoke:{sid:token}",
        TokenRevocation,
        lifetime=after("2d"),
        member_of="login:{uid}",
        tag="sid",
        doc="The provider's tokens of a session that has ended, until the provider has revoked them.",
        used_by=(_LOGOUT, _CALLBACK, "keystead sessions end"),
        changed="New: in the document the tokens of a session stay good at the provider after its end. The outbox says "
        "when the provider is told, and for how long that is tried.",
    )
    audit = Log(
        "audit:login",
        AuditEntry,
        keep=50_000,
        lifetime=sliding("90d", touch_every="1h"),
        doc="Who signed in and out, which sessions were revoked or evicted, and what operators did.",
        used_by=(_CALLBACK, _CLAIM, _LOGOUT, "keystead sessions end"),
        changed="New: the document notes nothing of it.",
    )

    async def farewell(self, id: str, session: Session) -> Sequence[Operation[Any]]:
        """For `Sessions` of this keyspace, also of programs that only end them: see `Revocations.farewell`."""
        from keystead.kits.login.revocation import Revocations  # which needs this module

        return await Revocations(self).farewell(id, session)

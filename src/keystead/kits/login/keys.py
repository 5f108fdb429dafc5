"""The key document of the login kit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keystead.kits.login.models import (
    AuthState,
    PendingLogin,
    Preferences,
    PwaSession,
    RefreshToken,
    Session,
    TokenRevocation,
)
from keystead.parts.audit import AuditEntry
from keystead.parts.outbox.outbox_keys import OutboxKeys
from keystead.parts.sessions import Ended, Successor
from keystead.schema import Counter, Keyspace, Log, Operation, Set, Value, after, link, sliding

_START, _CALLBACK = "/api/auth/discord/start", "/api/auth/discord/callback"
_CLAIM, _LOGOUT, _ME = "/api/auth/discord/claim-session", "/api/auth/logout", "/api/discord/me"


class LoginKeys(Keyspace):
    """Sessions with the provider's tokens, each user's list of sessions, and sign-ins in progress."""

    source = "Login: sessions and OAuth state"
    part_keyspaces = (OutboxKeys,)
    changes = (
        "The store holds no sid and no state: keys and members contain their SHA-256 digests, in base64url or hex.",
        "The provider's tokens, the PKCE verifier and a sid waiting to be claimed are sealed.",
    )

    session = Value(
        "sess:{sid:token}",
        Session,
        lifetime=sliding("30d", touch_every="1m"),
        listed_in=link("user_sessions", admits=True),
        owns="session_lock",
        member_of="login:{uid}",
        tag="sid",
        doc="A session: the signed-in user and the provider's tokens.",
        used_by=(_CALLBACK, _ME, _LOGOUT),
        changed="The sid in the key is the digest of the one in the cookie; `access_token` and `refresh_token` are "
        "sealed. `avatar` is null for a user without one. Use restarts the 30 days, as it did in practice, and updates "
        "`last_seen_at`, at most once a minute to save writes. A session is valid only while its user's set lists it, "
        "so no concurrent request can undo a logout. New optional fields: `provider` (absent for Discord), "
        "`provider_refused`, `browser`, `device`, `language` and `theme`. An idle timeout "
        "below 30 days shortens the lifetime of the keys.",
    )
    user_sessions = Set(
        "user:{uid}:sessions",
        str,
        lifetime=sliding("30d", touch_every="1m"),
        member_of="login:{uid}",
        doc="The live sessions of a user: each member is the `sid` of a `sess` key.",
        used_by=(_CALLBACK, _LOGOUT),
        changed="The document says 30 days, but nothing ever set them. Here each login restarts them, and use of a "
        "session touches the set. A logout removes its session, and ended sessions are pruned, so the set cannot grow "
        "without limit; the default cap is five sessions. Deleting the set ends all of them in one step. Members are "
        "digests, as in the keys of the sessions.",
    )
    auth_state = Value(
        "discord:auth:{state:token}",
        AuthState,
        lifetime=after("10m"),
        doc="A sign-in in progress: the PKCE verifier of a state. Consumed once, by the callback.",
        used_by=(_START, _CALLBACK),
        changed="The state in the key is the digest of the one in the URL; `verifier` is sealed. New optional fields: "
        "`returnTo`, the path to redirect to after the login; `browserDigest`, of a secret in a cookie of the browser "
        "that started it; `nonce` and `issuer`, for OpenID Connect; `code`, which an installed app shows.",
    )
    oauth_state = Value(
        "oauth:auth:{provider:slug}:{state:token}",
        AuthState,
        lifetime=after("10m"),
        doc="Like `auth_state`, for providers other than Discord.",
        used_by=("/api/auth/{provider}/start", "/api/auth/{provider}/callback"),
        changed="New: the document has one provider.",
    )
    pwa_session = Value(
        "discord:pwa-session:{state:token}",
        PwaSession,
        lifetime=after("10m"),
        member_of="login:{user_id}",
        doc="A session that an installed app may claim once, after its sign-in finished in a browser.",
        used_by=(_CALLBACK, _CLAIM),
        changed="Not in the document, but in the running system; the `loginContext` and `claimTokenDigest` of the "
        "document serve it. The state in the key is a digest; `sid` is sealed, because claiming it sets the cookie.",
    )
    oauth_session = Value(
        "oauth:pwa-session:{provider:slug}:{state:token}",
        PwaSession,
        lifetime=after("10m"),
        member_of="login:{user_id}",
        doc="Like `pwa_session`, for providers other than Discord.",
        used_by=("/api/auth/{provider}/callback", "/api/auth/{provider}/claim-session"),
        changed="New: the document has one provider.",
    )
    login_confirm = Value(
        "login:confirm:{token:token}",
        PendingLogin,
        lifetime=after("10m"),
        member_of="login:{uid}",
        doc="A sign-in that returned to a browser without its cookie and waits for the user to confirm it.",
        used_by=(_CALLBACK, "/api/auth/discord/confirm"),
        changed="New. The document lets a login survive a lost cookie, so a link from an attacker could sign a user in "
        "to the attacker's account. Here a page names the account and asks for confirmation (login CSRF).",
    )
    refresh = Value(
        "login:refresh:{token:token}",
        RefreshToken,
        lifetime=after("30d"),
        leads_to=session,
        member_of="login:{uid}",
        doc="A chain of single-use refresh tokens of a program, and the session it belongs to.",
        used_by=("/api/auth/token", "/api/auth/refresh"),
        changed="New, because programs have no cookie. One record for a token and all its successors. The key is the "
        "digest of the part that they share; they are valid as long as their session.",
    )
    session_successor = Value(
        "next:sess:{sid:token}",
        Successor,
        lifetime=after("10s"),
        tag="sid",
        doc="The successor of a session whose token was rotated, for requests in flight.",
        used_by=(_ME,),
        changed="New, because the document never rotates.",
    )
    session_end = Value(
        "end:sess:{sid:token}",
        Ended,
        lifetime=after("1d"),
        tag="sid",
        doc="Why a session was ended from another device, for the device that still has its token.",
        used_by=(_ME,),
        changed="New: a user who was signed out by another sign-in learns why.",
    )
    preferences = Value(
        "login:preferences:{uid}",
        Preferences,
        lifetime=after("365d"),
        member_of="login:{uid}",
        doc="The language and colours that a user chose. Each session has a copy, so that no page reads this key.",
        used_by=(_CALLBACK, "/preferences"),
        changed="New: the document leaves both to the browser. Each choice restarts the year.",
    )
    guesses = Counter(
        "rl:{name:slug}:{window:int}:{client:hex}",
        lifetime=after("70s"),
        doc="Rate limit: requests of a client per minute. `window` is the number of the minute, `client` the start of "
        "the digest of its address.",
        used_by=(_START, _CALLBACK, _CLAIM, _LOGOUT, _ME),
        changed="Not in the document, but in the running system. The first request sets the lifetime, in one step.",
    )
    session_lock = Value(
        "lock:sess:{sid:token}",
        str,
        lifetime=after("5s"),
        tag="sid",
        doc="Lock held by the request that refreshes the provider's tokens of a session.",
        used_by=(_ME,),
        changed="The value names the holder instead of being `1`, so a request whose 5 seconds are over cannot release "
        "the lock of the next one. It is deleted with its session.",
    )
    revocation = Value(
        "login:revoke:{sid:token}",
        TokenRevocation,
        lifetime=after("2d"),
        member_of="login:{uid}",
        tag="sid",
        doc="The provider's tokens of an ended session, until the provider has revoked them.",
        used_by=(_LOGOUT, _CALLBACK, "keystead sessions end"),
        changed="New: in the document the tokens stay valid at the provider after the session has ended. The outbox "
        "sets when revocation is attempted and for how long it is retried.",
    )
    audit = Log(
        "audit:login",
        AuditEntry,
        keep=50_000,
        lifetime=sliding("90d", touch_every="1h"),
        doc="Audit log: sign-ins and sign-outs, revoked and evicted sessions, and actions of operators.",
        used_by=(_CALLBACK, _CLAIM, _LOGOUT, "keystead sessions end"),
        changed="New: the document has no audit log.",
    )

    async def farewell(self, id: str, session: Session) -> Sequence[Operation[Any]]:
        """The hook of `Sessions`, also for processes that only end sessions. See `Revocations.farewell`."""
        from keystead.kits.login.revocation import Revocations  # which needs this module

        return await Revocations(self).farewell(id, session)

"""The key document of the login kit."""

from keystead.kits.login.models import AuthState, PwaSession, Session
from keystead.schema import Keyspace, Set, Value, after, sliding

_START, _CALLBACK = "/api/auth/discord/start", "/api/auth/discord/callback"
_CLAIM, _LOGOUT, _ME = "/api/auth/discord/claim-session", "/api/auth/logout", "/api/discord/me"


class LoginKeys(Keyspace):
    """Who is logged in: sessions with the provider's tokens, each user's list of them, and logins under way."""

    source = "Login: sessions and OAuth state"
    changes = (
        "A sid or a state is not in the store: keys and members hold its SHA-256 digest, in base64url or hex.",
        "The provider's tokens, the PKCE verifier and a sid that waits to be claimed are sealed.",
    )

    session = Value(
        "sess:{sid:token}",
        Session,
        lifetime=sliding("30d", touch_every="1h"),
        listed_in="user_sessions",
        owns="session_lock",
        member_of="user:{uid}",
        tag="sid",
        doc="A session: who is logged in, and the provider's tokens.",
        used_by=(_CALLBACK, _ME, _LOGOUT),
        changed="The sid in the key is the digest of the one in the cookie; `access_token` and `refresh_token` are "
        "sealed. `avatar` is null for a user who has none. The 30 days begin anew with use, as they did in practice; "
        "to spare writes, at most once an hour.",
    )
    user_sessions = Set(
        "user:{uid}:sessions",
        str,
        lifetime=sliding("30d", touch_every="1h"),
        member_of="user:{uid}",
        doc="The sessions of a user: each member is the `sid` of a `sess` key.",
        used_by=(_CALLBACK, _LOGOUT),
        changed="The document says 30 days, and nothing ever set them: here each login starts them anew, and the set "
        "is touched with its sessions. A logout takes its session out, and sessions that have ended are pruned, so the "
        "set does not grow for ever. Members are digests, as in the keys that they name.",
    )
    auth_state = Value(
        "discord:auth:{state:token}",
        AuthState,
        lifetime=after("10m"),
        doc="A login under way: the PKCE verifier that belongs to a state. Consumed once, by the callback.",
        used_by=(_START, _CALLBACK),
        changed="The state in the key is the digest of the one in the URL; `verifier` is sealed. `returnTo`, where "
        "the user goes after the login, is new and left out unless it is set.",
    )
    pwa_session = Value(
        "discord:pwa-session:{state:token}",
        PwaSession,
        lifetime=after("10m"),
        member_of="user:{userId}",
        doc="A session that an installed app may claim once, after the login took place in a browser.",
        used_by=(_CALLBACK, _CLAIM),
        changed="Not in the document, although its `loginContext` and `claimTokenDigest` are for this: the running "
        "system has it. The state in the key is a digest; `sid` is sealed, because claiming it sets the cookie.",
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

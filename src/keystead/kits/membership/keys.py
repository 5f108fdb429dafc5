"""The key document of the membership kit."""

from hashlib import sha256
from uuid import UUID

from keystead.kits.membership.models import (
    CachedAuth,
    CachedMembership,
    CachedQuota,
    RateLimitData,
    RefreshTokenData,
    SessionData,
    UserTokenData,
)
from keystead.parts.apikeys import ApiKey
from keystead.parts.cache import LoadMarkers
from keystead.parts.schedule.schedule_keys import ScheduleKeys
from keystead.schema import Counter, Hash, Keyspace, SortedSet, Value, after, link, never

_CALLBACK, _LOGOUT, _REFRESH = "/api/auth/callback", "/api/auth/logout", "/api/auth/refresh"
_TOKEN, _WEBHOOK = "/api/auth/token", "/webhook"
_PROGRAMS = "keystead membership issue-key, list-keys, revoke-key"
_EACH_REQUEST = "every request with Authorization: Bearer"


def session_uuid(token: str) -> UUID:
    """The id of a session in the store: a UUID (version 8) of 122 bits of the token's SHA-256 digest."""
    digest = bytearray(sha256(token.encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80  # the version
    digest[8] = digest[8] & 0x3F | 0x80  # the variant of RFC 9562
    return UUID(bytes=bytes(digest))


class MembershipKeys(Keyspace):
    """Members: one session each, paid plans, refresh tokens for JWTs, rate limits and quotas."""

    source = "Membership: sessions, refresh tokens, limits and caches"
    part_keyspaces = (ScheduleKeys,)
    changes = (
        "The store holds no session tokens: keys and fields hold the UUID that `session_uuid` derives from one.",
        "The key of a refresh token is the SHA-256 digest of a part of it. The provider's tokens are encrypted.",
        "The key of a session is a bare UUID. No other key looks like one, even in a store with several keyspaces.",
        "What the document stores in an HTTP cache under a URL is an ordinary family.",
    )

    session = Value(
        "{sessionToken:uuid}",
        SessionData,
        lifetime=after("30d"),
        owns=["auth_mark", "auth", "refresh_chain"],
        leads_to=link("user_token", patreonUserId="user_id"),
        member_of="membership:{user_id}",
        tag="sessionToken",
        doc="A session, and the provider's tokens from the sign-in. It is valid only while its user's `usertoken` "
        "names it.",
        used_by=(_CALLBACK, _EACH_REQUEST, _REFRESH, _LOGOUT),
        changed="The UUID is derived from the session token's digest. `accessToken` and `refreshToken` are encrypted. "
        "`supabaseUuid`, which the running system also stores, is omitted unless set. `createdAt` is new: a repeated "
        "webhook does not end a session that began after the first. A session that the user's row does not name is "
        "invalid. So a new sign-in ends the old session with one write to one key, and a logout is final under any "
        "concurrency.",
    )
    user_token = Value(
        "usertoken:{patreonUserId}",
        UserTokenData,
        lifetime=after("31d"),
        owns=["membership_mark", "membership", "membership_stale", "renewing"],
        member_of="membership:{patreonUserId}",
        tag="patreonUserId",
        doc="The provider's tokens of a user, renewed before they expire, and the user's current session.",
        used_by=(_CALLBACK, _EACH_REQUEST, _REFRESH, _LOGOUT, _WEBHOOK),
        changed="`accessToken` and `refreshToken` are encrypted; `sessionTokens` holds the key of the session. The "
        "provider's tokens are renewed here, which the running system never does. Deleting this key ends the session "
        "and deletes the cached membership.",
    )
    membership = Value(
        "membership:{patreonUserId}",
        CachedMembership,
        lifetime=after("1h"),
        role="cache",
        member_of="membership:{patreonUserId}",
        tag="patreonUserId",
        doc="The membership of a user, cached so that the provider is asked once an hour.",
        used_by=(_CALLBACK, _EACH_REQUEST, _LOGOUT, _WEBHOOK),
        changed="`tierId`, `patronStatus` and `entitledAmountCents`, which the routes return, are new and omitted "
        "unless set.",
    )
    membership_mark = LoadMarkers(
        "membership:{patreonUserId}:mark",
        loading="15s",
        retry="5s",
        retry_at_most="5m",
        tag="patreonUserId",
        member_of="membership:{patreonUserId}",
        doc="Load marker: which request is asking the provider, or that it did not answer. One request asks at a time, "
        "and a load that began before a webhook cannot overwrite it.",
        used_by=(_EACH_REQUEST, _WEBHOOK),
        changed="New: in the running system every cache miss asks the provider.",
    )
    membership_stale = Value(
        "membership:{patreonUserId}:stale",
        CachedMembership,
        lifetime=after("1d"),
        role="cache",
        member_of="membership:{patreonUserId}",
        tag="patreonUserId",
        doc="The last membership that the provider reported, served for up to a day while the provider is down.",
        used_by=(_EACH_REQUEST, _WEBHOOK),
        changed="New: provider outages do not lock users out.",
    )
    renewing = Value(
        "renewing:{patreonUserId}",
        str,
        lifetime=after("20s"),
        member_of="membership:{patreonUserId}",
        tag="patreonUserId",
        doc="Lock of the request that renews the provider's tokens of a user.",
        used_by=(_EACH_REQUEST,),
        changed="New, because the running system never renews them.",
    )
    refresh = Value(
        "refresh:{refreshToken:token}",
        RefreshTokenData,
        lifetime=after("30d"),
        leads_to=session.by(sessionToken="session_token"),
        member_of="membership:{user_id}",
        doc="A chain of single-use refresh tokens, and the session they belong to.",
        used_by=(_REFRESH,),
        changed="One row for a whole chain instead of one for each token: a rotation is one atomic step on one key, "
        "and reusing a token revokes the chain. The key is the digest of the part that the tokens share. `generation` "
        "is the number of the newest token, `rotatedAt` the time of the last rotation; `client`, `scope` and "
        "`audience` say whom they are for, and `isUsed` that one was reused after its grace period. The chain expires "
        "30 days after its first token. `sessionToken` is the UUID in the session's key. A chain without a session "
        "is cleaned up; in the document it stays for the rest of its 30 days.",
    )
    refresh_chain = Value(
        "session:{sessionToken:uuid}:refresh",
        str,
        lifetime=after("30d"),
        tag="sessionToken",
        doc="The refresh token chain of a session, so that a logout revokes it.",
        used_by=(_TOKEN, _LOGOUT),
        changed="New: in the running system refresh tokens outlive the logout, and fail when used.",
    )
    crash_report_limit = Hash(
        "crashreport:ratelimit:{ip:ip}",
        RateLimitData,
        lifetime=after("60s"),
        doc="The number of crash reports from an address in its window of 60 seconds.",
        used_by=("/api/crash-report",),
        changed="A hash instead of a JSON object: the store increments it, so concurrent requests all count. The "
        "colons of an IPv6 address are escaped.",
    )
    rate_limit = Counter(
        "ratelimit:{identifier}:{windowStart:int}",
        lifetime=after("120s"),
        doc="The number of requests of a client in the window that began at `windowStart`.",
        used_by=("every route with a limit",),
        changed="The document has a URL in an HTTP cache, `.../ratelimit/{identifier}/{windowStart}`, whose JSON is "
        "read and written back. A counter misses no concurrent request.",
    )
    quota = Value(
        "quota:{userId}:{yearMonth:month}",
        CachedQuota,
        lifetime=after("5m"),
        role="cache",
        member_of="membership:{userId}",
        tag="userId",
        doc="The tokens a user has used this month, cached for five minutes.",
        used_by=("/api/translate",),
        changed="The document has a URL in an HTTP cache and no format; this is the format of the running system.",
    )
    quota_mark = LoadMarkers(
        "quota:{userId}:{yearMonth:month}:mark",
        loading="5s",
        retry="2s",
        tag="userId",
        member_of="membership:{userId}",
        doc="Load marker: which request is reading the database, or that it did not answer.",
        used_by=("/api/translate",),
        changed="New, as for the membership.",
    )
    auth = Value(
        "auth:{sessionToken:uuid}",
        CachedAuth,
        lifetime=after("60s"),
        role="cache",
        member_of="membership:{user_id}",
        tag="sessionToken",
        doc="The user and plan of a session, cached for a minute.",
        used_by=(_EACH_REQUEST,),
        changed="The document has a URL in an HTTP cache and no format; this is what the routes need. It is deleted "
        "with the session, so a logout takes effect immediately. `planAsOf` is when the provider reported the plan.",
    )
    auth_mark = LoadMarkers(
        "auth:{sessionToken:uuid}:mark",
        loading="20s",
        retry="2s",
        tag="sessionToken",
        doc="Load marker: which request is loading the user and plan of a session, or that it failed.",
        used_by=(_EACH_REQUEST,),
        changed="New, as for the membership.",
    )
    api_keys = SortedSet(
        "membership-apikeys",
        str,
        lifetime=never("emptied as API keys are revoked"),
        role="durable",
        doc="The ids of all API keys of programs, oldest first.",
        used_by=(_PROGRAMS,),
        changed="New: in the running system only the relay itself records usage, for its translations.",
    )
    api_key = Value(
        "membership-apikey:{id:alnum}",
        ApiKey,
        lifetime=never("removed when it is revoked"),
        role="durable",
        listed_in=api_keys.by(score="made_ms"),
        doc="The API key of a program that records usage and grants bonuses, under its public part, with the digest "
        "of its secret. It does not act for a user: `user_id` is 0.",
        used_by=(_PROGRAMS, "/api/membership/…"),
        changed="New, like the list.",
    )

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
    """The UUID (version 8) that stands in the store for a session token: 122 bits of its SHA-256 digest."""
    digest = bytearray(sha256(token.encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80  # the version
    digest[8] = digest[8] & 0x3F | 0x80  # the variant of RFC 9562
    return UUID(bytes=bytes(digest))


class MembershipKeys(Keyspace):
    """Members: one session each, what they pay for, refresh tokens for their JWTs, limits and quotas."""

    source = "Membership: sessions, refresh tokens, limits and caches"
    part_keyspaces = (ScheduleKeys,)
    changes = (
        "A session token is not in the store: keys and fields hold the UUID that `session_uuid` makes of it.",
        "A refresh token is in its key as the SHA-256 digest of a part of it. The provider's tokens are sealed.",
        "The session is a bare UUID. No other key looks like one, even in a store that several keyspaces share.",
        "What the document kept in an HTTP cache under a URL is a family like the others.",
    )

    session = Value(
        "{sessionToken:uuid}",
        SessionData,
        lifetime=after("30d"),
        owns=["auth_mark", "auth", "refresh_chain"],
        leads_to=link("user_token", patreonUserId="user_id"),
        member_of="membership:{user_id}",
        tag="sessionToken",
        doc="A session, and the provider's tokens as the login got them. It counts only while its user's `usertoken` "
        "names it.",
        used_by=(_CALLBACK, _EACH_REQUEST, _REFRESH, _LOGOUT),
        changed="The UUID is made from the digest of the session token. `accessToken` and `refreshToken` are "
        "sealed. `supabaseUuid`, which the running system also keeps, is left out unless it is set. `createdAt` is "
        "new: an event of the provider that comes again does not end a session that began after it. What the user's "
        "row does not name is no session: so a new login ends the old one in one step on one key, and a logout is "
        "final, whatever is under way.",
    )
    user_token = Value(
        "usertoken:{patreonUserId}",
        UserTokenData,
        lifetime=after("31d"),
        owns=["membership_mark", "membership", "membership_stale", "renewing"],
        member_of="membership:{patreonUserId}",
        tag="patreonUserId",
        doc="The provider's tokens of a user, renewed before they expire, and the one session that is theirs.",
        used_by=(_CALLBACK, _EACH_REQUEST, _REFRESH, _LOGOUT, _WEBHOOK),
        changed="`accessToken` and `refreshToken` are sealed; `sessionTokens` holds the key of the session. The "
        "provider's tokens are renewed here, which the running system never does. Deleting it ends the session and "
        "drops what is remembered of the membership.",
    )
    membership = Value(
        "membership:{patreonUserId}",
        CachedMembership,
        lifetime=after("1h"),
        role="cache",
        member_of="membership:{patreonUserId}",
        tag="patreonUserId",
        doc="What a user pays for, so that the provider is asked once an hour.",
        used_by=(_CALLBACK, _EACH_REQUEST, _LOGOUT, _WEBHOOK),
        changed="`tierId`, `patronStatus` and `entitledAmountCents`, which the routes answer with, are new and left "
        "out unless they are set.",
    )
    membership_mark = LoadMarkers(
        "membership:{patreonUserId}:mark",
        loading="15s",
        retry="5s",
        retry_at_most="5m",
        tag="patreonUserId",
        member_of="membership:{patreonUserId}",
        doc="Who asks the provider now, or that it did not answer: so that one asks, and a webhook is not undone by a "
        "question that was under way.",
        used_by=(_EACH_REQUEST, _WEBHOOK),
        changed="New: in the running system every request asks when the cache is empty.",
    )
    membership_stale = Value(
        "membership:{patreonUserId}:stale",
        CachedMembership,
        lifetime=after("1d"),
        role="cache",
        member_of="membership:{patreonUserId}",
        tag="patreonUserId",
        doc="What a user paid for when the provider last answered. It is told while the provider is away, at most a "
        "day.",
        used_by=(_EACH_REQUEST, _WEBHOOK),
        changed="New, so that nobody is shut out while the provider is down.",
    )
    renewing = Value(
        "renewing:{patreonUserId}",
        str,
        lifetime=after("20s"),
        member_of="membership:{patreonUserId}",
        tag="patreonUserId",
        doc="Held by the one request that renews the provider's tokens of a user.",
        used_by=(_EACH_REQUEST,),
        changed="New, because the running system never renews them.",
    )
    refresh = Value(
        "refresh:{refreshToken:token}",
        RefreshTokenData,
        lifetime=after("30d"),
        leads_to=session.by(sessionToken="session_token"),
        member_of="membership:{user_id}",
        doc="Refresh tokens, each good for one use, and the session that they belong to.",
        used_by=(_REFRESH,),
        changed="One row for a token and all that are made of it, instead of a row for each: so that a use is one "
        "atomic step on one key, and a token that is used twice ends them all. The key is the digest of the part that "
        "they share; `generation` says which of them is the newest, `rotatedAt` when the one before was used, "
        "`client`, `scope` and `audience` whom they are for, and `isUsed` that one was used again after its time. "
        "The 30 days are those of all of them together. `sessionToken` is the UUID that is the session's key. One "
        "whose session is gone leads nowhere and is cleaned up; in the document it stays for the rest of its 30 days.",
    )
    refresh_chain = Value(
        "session:{sessionToken:uuid}:refresh",
        str,
        lifetime=after("30d"),
        tag="sessionToken",
        doc="Which refresh tokens belong to a session, so that a logout ends them, too.",
        used_by=(_TOKEN, _LOGOUT),
        changed="New: in the running system they outlive the logout, and fail when they are used.",
    )
    crash_report_limit = Hash(
        "crashreport:ratelimit:{ip:ip}",
        RateLimitData,
        lifetime=after("60s"),
        doc="How many crash reports came from an address in its window of 60 seconds.",
        used_by=("/api/crash-report",),
        changed="A hash instead of a JSON object, so that it is counted in the store: of two requests at once, both "
        "count. The colons of an IPv6 address are escaped.",
    )
    rate_limit = Counter(
        "ratelimit:{identifier}:{windowStart:int}",
        lifetime=after("120s"),
        doc="How many requests came from somebody in the window that began at `windowStart`.",
        used_by=("every route with a limit",),
        changed="The document gives a URL in an HTTP cache, `.../ratelimit/{identifier}/{windowStart}`, whose JSON "
        "is read and written back. A counter counts every request once.",
    )
    quota = Value(
        "quota:{userId}:{yearMonth:month}",
        CachedQuota,
        lifetime=after("5m"),
        role="cache",
        member_of="membership:{userId}",
        tag="userId",
        doc="How many tokens a user has used this month, so that the database is asked every five minutes.",
        used_by=("/api/translate",),
        changed="The document gives a URL in an HTTP cache and no shape; this is the shape of the running system.",
    )
    quota_mark = LoadMarkers(
        "quota:{userId}:{yearMonth:month}:mark",
        loading="5s",
        retry="2s",
        tag="userId",
        member_of="membership:{userId}",
        doc="Who asks the database now, or that it did not answer.",
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
        doc="Whose session it is and what it may do, for the next minute.",
        used_by=(_EACH_REQUEST,),
        changed="The document gives a URL in an HTTP cache and no shape; this is what the routes ask for. It is "
        "deleted with the session, so a logout does not have to wait for it. `planAsOf` says how old the plan is.",
    )
    auth_mark = LoadMarkers(
        "auth:{sessionToken:uuid}:mark",
        loading="20s",
        retry="2s",
        tag="sessionToken",
        doc="Who finds out what a session may do, or that nobody could.",
        used_by=(_EACH_REQUEST,),
        changed="New, as for the membership.",
    )
    api_keys = SortedSet(
        "membership-apikeys",
        str,
        lifetime=never("emptied as API keys are revoked"),
        role="durable",
        doc="The ids of all API keys of programs, the oldest first.",
        used_by=(_PROGRAMS,),
        changed="New: in the running system, only the relay itself records usage, for what it translates.",
    )
    api_key = Value(
        "membership-apikey:{id:alnum}",
        ApiKey,
        lifetime=never("removed when it is revoked"),
        role="durable",
        listed_in=api_keys.by(score="made_ms"),
        doc="The API key of a program that records usage and grants bonuses, under its public part. Of its secret "
        "there is only a digest. It acts for no user: `user_id` is 0.",
        used_by=(_PROGRAMS, "/api/membership/…"),
        changed="New, as the list of them.",
    )

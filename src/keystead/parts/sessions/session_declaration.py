"""Checks of the families that sessions are declared with: one Set by user, lifetimes that fit the policy, one store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from keystead.errors import BadDeclaration, BadKey, DoesNotFit
from keystead.parts.sessions.session_policy import Policy
from keystead.parts.sessions.session_token import id_of
from keystead.schema import Bound
from keystead.schema.lifetime import After, Sliding, in_words
from keystead.schema.relation import Relation

MANAGED_FIELDS: Final = frozenset({"created_at", "last_seen_at"})  # written by `Sessions` alone


def index_relation(family: Bound[Any]) -> Relation:
    admitting = [relation for relation in family.family.listed_in if relation.admits]
    if len(admitting) != 1 or len(family.family.listed_in) != 1:
        raise BadDeclaration(
            f"{family.family.place}: sessions need a Set that lists and admits them by user: "
            'listed_in=link("user_sessions", admits=True)'
        )
    missing = MANAGED_FIELDS - family.family.field_names
    if missing:
        raise BadDeclaration(
            f"{family.family.place}: the model of a session needs the fields created_at and last_seen_at; "
            f"{min(missing)} is missing: subclass SessionRecord, or write {min(missing)}: EpochMs"
        )
    relation: Relation = admitting[0]
    return relation


def user_field(family: Bound[Any], relation: Relation) -> str:
    origins = list(relation.origins.values())
    if len(origins) != 1 or origins[0] is None or origins[0].kind != "field" or len(family.family.pattern.names) != 1:
        raise BadDeclaration(
            f"{family.family.place}: the only placeholder of a session's key must be its id, and one field of the "
            'model must name its Set: Set("user:{uid}:sessions", ...)'
        )
    return origins[0].name


def default_policy(family: Bound[Any], index: Bound[Any]) -> Policy:
    usual = Policy()
    slides = [one.family.lifetime.ms for one in (family, index) if isinstance(one.family.lifetime, Sliding)]
    lifetime = family.family.lifetime
    absolute_ms = min(usual.absolute_ms, lifetime.ms) if isinstance(lifetime, After) else usual.absolute_ms
    idle_ms = min(usual.idle_ms, absolute_ms, *slides)
    return Policy(idle=timedelta(milliseconds=idle_ms), absolute=timedelta(milliseconds=absolute_ms))


def check_lifetimes(policy: Policy, family: Bound[Any], index: Bound[Any]) -> None:
    """Raise BadDeclaration for a record or a list that would expire before the sessions that the policy keeps alive."""
    place, lifetime, listing = family.family.place, family.family.lifetime, index.family.lifetime
    idle = in_words(policy.idle_ms)
    advice = f"write lifetime=sliding(...) with {idle} or more"
    if not (isinstance(lifetime, Sliding) and lifetime.ms >= policy.idle_ms) and not (
        isinstance(lifetime, After) and lifetime.ms >= policy.absolute_ms
    ):
        raise BadDeclaration(
            f"{place}: its lifetime ({lifetime.describe()}) would end sessions that may be idle for {idle}; {advice}"
        )
    if not (isinstance(listing, Sliding) and listing.ms >= policy.idle_ms):
        raise BadDeclaration(
            f"{index.family.place}: its lifetime ({listing.describe()}) would end sessions that may be idle for "
            f"{idle}; {advice}"
        )


def check_successors_and_ends(
    policy: Policy, family: Bound[Any], successors: Bound[Any] | None, ends: Bound[Any] | None
) -> None:
    """Raise BadDeclaration or DoesNotFit where the optional families, or the store, cannot do what sessions need."""
    place = family.family.place
    longest = None if successors is None else successors.family.lifetime.longest_ms
    if successors is not None and (longest is None or longest < policy.grace_ms):
        raise BadDeclaration(
            f"{successors.family.place}: its lifetime ({successors.family.lifetime.describe()}) is shorter than the "
            f"grace of the policy; write lifetime=after(...) with {in_words(policy.grace_ms)} or more"
        )
    for other in (successors, ends):
        if other is not None and other.store is not family.store:
            raise BadDeclaration(f"{other.family.place} and {place} need the same role: they are written in one step")
    if family.store.guarantees.consistency == "eventual":
        raise DoesNotFit(f"{place} does not fit {family.store.url}: a read may miss an acknowledged logout")
    try:
        family(id_of(""))
    except BadKey as error:
        raise BadDeclaration(f"{place}: the id needs 43 base64url characters, as in {{sid:token}}; {error}") from None

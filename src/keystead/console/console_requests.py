"""Requests to the console: who asks, what they may do, and the pages they get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import parse_qs

from fastapi import Depends, Request
from fastapi.responses import Response

from keystead.catalogue import Catalogue
from keystead.console import console_charts, console_texts
from keystead.console.console_access import allows
from keystead.console.console_keys import ConsoleSession, Role
from keystead.console.console_service import Actor, Console
from keystead.console.console_texts import ACTS, CLOSED, FORBIDDEN, NO_FAMILY, NO_KEY, STALE
from keystead.console.console_wording import duration_words, lifetime_words
from keystead.console.key_references import KeyReferences, family_path
from keystead.console.key_visibility import shown_key
from keystead.errors import BadArgument, BadKey, StoreError
from keystead.http.cookies import Cookie
from keystead.http.csrf import FIELD, SAFE_METHODS
from keystead.http.refusals import Refusal
from keystead.kits.identity import SignedInUser, identify, identify_again, sign_in_of
from keystead.kits.kit import service_of
from keystead.kits.visit import Visit
from keystead.parts.sessions import Live
from keystead.schema.family import Bound
from keystead.schema.family_lookup import name_of
from keystead.schema.times import deadline_ms
from keystead.server.local_entry import HINT, is_own_browser

CATALOGUE: Final = Catalogue(Path(__file__).parent)
SESSION_COOKIE: Final = "console"
_FORM_FIELDS_MAX: Final = 1_000


# The pages of the console: a message, the path, the key after `g`, and the role it needs.
PLACES: Final[Sequence[tuple[str, str, str, Role]]] = (
    ("overview", "/console", "o", "viewer"),
    ("findings", "/console/findings", "d", "viewer"),
    ("unknown", "/console/unknown", "u", "viewer"),
    ("live", "/console/live", "l", "viewer"),
    ("jobs", "/console/jobs", "j", "viewer"),
    ("queues", "/console/queues", "q", "viewer"),
    ("sessions", "/console/sessions", "s", "viewer"),
    ("audit", "/console/audit", "a", "operator"),
    ("erase", "/console/erase", "e", "admin"),
)


class NotAllowed(Exception):
    """The page says why: `sentence` is a message of the console."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class ConsoleVisit(Visit):
    """One request to the console, by somebody with a session."""

    catalogue = CATALOGUE
    live: Live[ConsoleSession]
    role: Role

    def __init__(self, request: Request, console: Console) -> None:
        super().__init__(request, console.site)
        self.console = console
        self.cookie = Cookie(SESSION_COOKIE, console.site.secure)
        self.token = self.read(self.cookie)
        self.form: dict[str, str] = {}
        self.is_signed_in = False

    async def admit(self, needed: Role) -> None:
        """Raises NotAllowed without a session, or with a role that does not suffice; Refusal for a forged request."""
        if self.request.method not in SAFE_METHODS:
            await self.read_form()
        live = await self.console.access.read(self.token)
        if not live:
            raise NotAllowed(401, CLOSED)
        self.live, self.role = live, live.session.role
        if live.session.subject is not None:
            await self._require_user(live.session.subject)
        self.is_signed_in = True
        if not allows(self.role, needed):
            raise NotAllowed(403, FORBIDDEN)

    async def is_still_in(self) -> bool:
        """Whether they are still signed in with the role of this request: for streams and tasks that outlast it."""
        live = self.live
        if not await self.console.access.is_alive(live.id):
            return False
        if live.session.subject is None:
            return True
        try:
            found = await identify_again(self.request)
        except Refusal:
            return False
        if found is None or found.credential != "cookie" or found.subject != live.session.subject:
            return False
        return self.console.roles.get(found.subject) == self.role

    async def user(self) -> tuple[SignedInUser, Role] | None:
        """The signed-in user, and the role that the settings give them; None if there is none.

        Raises Refusal for a bad token.
        """
        found = await identify(self.request)
        role = None if found is None or found.credential != "cookie" else self.console.roles.get(found.subject)
        return None if found is None or role is None else (found, role)

    async def _require_user(self, subject: str) -> None:
        """A session of a signed-in user is one as long as they are signed in, and with the role they have now."""
        found = await self.user()
        if found is None or found[0].subject != subject:
            raise NotAllowed(401, CLOSED)
        self.role = found[1]
        if found[0].since is not None:  # they may have signed in again
            self.live.session.proven_at = found[0].since

    async def read_form(self) -> None:
        """The fields of a form post. Raises Refusal unless a page of this site sent it."""
        body = await self.request.body()
        try:
            found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_FORM_FIELDS_MAX)
        except ValueError:
            raise Refusal(400, "BAD_REQUEST", "the form has too many fields") from None
        self.form = {name: values[0] for name, values in found.items()}
        self.refuse_forged(self.form.get(FIELD))

    def require_fresh(self) -> None:
        """Raises NotAllowed if they came in long ago: acts on many keys need a new link."""
        if not self.console.access.is_fresh(self.live):
            raise NotAllowed(403, STALE)

    @property
    def actor(self) -> Actor:
        return Actor(self.live.session.uid, self.address)

    def may(self, role: Role) -> bool:
        return self.is_signed_in and allows(self.role, role)

    places = PLACES

    @property
    def sign_in_url(self) -> str:
        """Where to sign in, for the roles of users; "" if no user has one."""
        found = sign_in_of(self.request.scope) if self.console.roles else None
        return "" if found is None else f"{found.page}?returnTo=/console/enter"

    @property
    def local_hint(self) -> str:
        """Why the person who runs this server may enter without a link; "" for others."""
        return HINT if is_own_browser(self.request) else ""

    @property
    def has_typed(self) -> bool:
        """Whether a name was typed to confirm an act."""
        return "again" in self.form

    def confirms(self, name: str) -> bool:
        """Whether they typed this name."""
        return self.form.get("again", "").strip() == name

    def show_confirmation(self, act: str, name: str, **values: object) -> Response:
        """Ask to type this name before an act; `act` is one of `ACTS`. Again with a problem if another was typed."""
        shown = {"bound": None, "key": None, "steps": [], "lines": [], "notes": [], "cancel": "/console", **values}
        shown.setdefault("here", shown["bound"] or "")
        problem = self.say("The two texts differ.") if self.has_typed else ""
        return self.show("confirm", status=422 if problem else 200, act=ACTS[act], name=name, problem=problem, **shown)

    @property
    def references(self) -> KeyReferences:
        return KeyReferences(self.token or "")

    def bound(self) -> Bound[Any]:
        """The family in the path. Raises NotAllowed if there is none."""
        names = self.request.path_params
        found = self.console.family(names["keyspace"], names["family"])
        if found is None:
            raise NotAllowed(404, NO_FAMILY)
        return found

    def key(self) -> tuple[Bound[Any], str]:
        """The key in the address. Raises NotAllowed if it is not a key of the family."""
        bound, query = self.bound(), self.request.query_params
        key = self.references.key_of(bound, query.get("key"), query.get("ref"))
        if key is None or self.console.is_own(key):
            raise NotAllowed(404, NO_KEY)
        return bound, key

    def show(self, template: str, *, status: int = 200, **values: object) -> Response:
        csrf = self.csrf_token()
        shown = {"families": {}, "find": "", "here": "", **values}
        if self.is_signed_in:
            shown["families"] = self.console.families
        return self.page(
            f"console/{template}.html",
            self.csrf.set(csrf),
            status=status,
            scripts=True,
            csrf=csrf,
            visit=self,
            name_of=lambda bound: name_of(bound.family),
            family_path=family_path,
            key_url=self.references.url,
            shown_key=shown_key,
            duration=self.duration,
            lifetime=lambda bound: lifetime_words(bound.family.lifetime, self.say),
            ago=self.ago,
            keyspace_of=lambda bound: type(bound.keyspace).__name__,
            charts=console_charts,
            texts=console_texts,
            **shown,
        )

    def duration(self, ms: int | None) -> str:
        """A remaining lifetime in words, in its two largest units."""
        if ms is None:
            return self.say("no deadline")
        return duration_words(ms, self.say, most=2) or duration_words(1000, self.say)

    def ago(self, at: datetime) -> str:
        """How long ago this was, in words."""
        minutes = (self.console.now_ms() - deadline_ms(at)) // 60_000
        if minutes >= 2 * 1440:
            return self.say("{count} days ago", count=minutes // 1440)
        if minutes >= 2 * 60:
            return self.say("{count} h ago", count=minutes // 60)
        if minutes >= 1:
            return self.say("{count} min ago", count=minutes)
        return self.say("just now")

    def problem(self, status: int, sentence: str, *, is_stale: bool = False, detail: str = "") -> Response:
        """The page of a problem. `detail` is in English: the sentence of an error."""
        return self.show("problem", status=status, sentence=sentence, is_stale=is_stale, detail=detail)


async def _visit(request: Request, console: Annotated[Console, Depends(service_of("console"))]) -> ConsoleVisit:
    return ConsoleVisit(request, console)


async def show_entrance(visit: ConsoleVisit, *, status: int = 200, problem: str = "") -> Response:
    """The page that lets people in: by the code of a link, or as a signed-in user who has a role."""
    found = await visit.user()
    if status == 401 and visit.local_hint:
        problem = ""  # there is a button for them
    return visit.show(
        "enter", status=status, problem=visit.say(problem) if problem else "", user=None if found is None else found[0]
    )


Visiting = Annotated[ConsoleVisit, Depends(_visit)]


# A route, the role it needs, and what responds.
ConsoleRoute: TypeAlias = tuple[str, Role, Callable[[ConsoleVisit], Awaitable[Response]]]


def for_role(role: Role, respond: Callable[[ConsoleVisit], Awaitable[Response]]) -> Callable[..., Any]:
    """A route for people with at least this role. Refusals and outages are pages of the console."""

    async def endpoint(visit: Visiting) -> Response:
        if visit.home is not None and visit.request.method in SAFE_METHODS:
            return visit.redirect_to(visit.home)
        try:
            await visit.admit(role)
            return await respond(visit)
        except NotAllowed as refused:
            if refused.status == 401:
                return await show_entrance(visit, status=401, problem=refused.sentence)
            return visit.problem(refused.status, visit.say(refused.sentence), is_stale=refused.sentence == STALE)
        except (BadKey, BadArgument) as error:
            return visit.problem(400, visit.say("This address or form is not valid."), detail=str(error))
        except StoreError as error:
            if not error.code.startswith("store"):
                raise
            return visit.problem(503, visit.say("The store does not answer. Try again in a moment."))

    return endpoint

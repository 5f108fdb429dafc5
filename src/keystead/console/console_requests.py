"""Requests to the console: who asks, what they may do, and the pages they get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final
from urllib.parse import parse_qs

from fastapi import Depends, Request
from fastapi.responses import Response

from keystead.console.console_access import allows
from keystead.console.console_keys import ConsoleSession, Role
from keystead.console.console_messages import MESSAGES
from keystead.console.console_service import Actor, Console
from keystead.console.key_references import KeyReferences, family_path
from keystead.console.key_visibility import shown_key
from keystead.errors import BadArgument, BadKey, StoreError
from keystead.http.cookies import Cookie
from keystead.http.csrf import FIELD, SAFE_METHODS
from keystead.http.refusals import Refusal
from keystead.kits.kit import service_of
from keystead.kits.visit import Visit
from keystead.parts.sessions import Live
from keystead.schema.family import Bound
from keystead.schema.family_lookup import name_of
from keystead.schema.lifetime import in_words

SESSION_COOKIE: Final = "console"
_FORM_FIELDS_MAX: Final = 500


class NotAllowed(Exception):
    """The page says why: `code` is a message of the console."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class ConsoleVisit(Visit):
    """One request to the console, by somebody with a session."""

    messages = MESSAGES
    live: Live[ConsoleSession]

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
            raise NotAllowed(401, "closed")
        self.live, self.is_signed_in = live, True
        if not allows(live.session.role, needed):
            raise NotAllowed(403, "forbidden")

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
            raise NotAllowed(403, "stale")

    @property
    def actor(self) -> Actor:
        return Actor(self.live.session.uid, self.address)

    def may(self, role: Role) -> bool:
        return self.is_signed_in and allows(self.live.session.role, role)

    @property
    def references(self) -> KeyReferences:
        return KeyReferences(self.token or "")

    def bound(self) -> Bound[Any]:
        """The family in the path. Raises NotAllowed if there is none."""
        names = self.request.path_params
        found = self.console.family(names["keyspace"], names["family"])
        if found is None:
            raise NotAllowed(404, "no_family")
        return found

    def key(self) -> tuple[Bound[Any], str]:
        """The key in the address. Raises NotAllowed if it is not a key of the family."""
        bound, query = self.bound(), self.request.query_params
        key = self.references.key_of(bound, query.get("key"), query.get("ref"))
        if key is None:
            raise NotAllowed(404, "no_key")
        return bound, key

    def show(self, template: str, *, status: int = 200, **values: object) -> Response:
        csrf = self.csrf_token()
        shown = {"families": {}, "find": "", **values}
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
            **shown,
        )

    def duration(self, ms: int | None) -> str:
        """A remaining lifetime in words, in its two largest units; in English, like the declared ones."""
        if ms is None:
            return self.say("forever")
        return " ".join(in_words(ms).split()[:4]) or in_words(1000)

    def problem(self, status: int, sentence: str) -> Response:
        return self.show("problem", status=status, sentence=sentence)


async def _visit(request: Request, console: Annotated[Console, Depends(service_of("console"))]) -> ConsoleVisit:
    return ConsoleVisit(request, console)


Visiting = Annotated[ConsoleVisit, Depends(_visit)]


def for_role(role: Role, respond: Callable[[ConsoleVisit], Awaitable[Response]]) -> Callable[..., Any]:
    """A route for people with at least this role. Refusals and outages are pages of the console."""

    async def endpoint(visit: Visiting) -> Response:
        if visit.home is not None and visit.request.method in SAFE_METHODS:
            return visit.redirect_to(visit.home)
        try:
            await visit.admit(role)
            return await respond(visit)
        except NotAllowed as refused:
            return visit.problem(refused.status, visit.say(refused.code))
        except (BadKey, BadArgument) as error:
            return visit.problem(400, str(error))
        except StoreError as error:
            if not error.code.startswith("store"):
                raise
            return visit.problem(503, visit.say("outage"))

    return endpoint

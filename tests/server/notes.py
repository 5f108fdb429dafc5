"""A small kit for the tests of the server: sealed notes, and routes that fail in every way."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from keystead import Keyspace, Sealed, Value, after
from keystead.http.refusals import Refusal
from keystead.kits.kit import Example, Kit, Site, service_of


class Note(BaseModel):
    text: Sealed[str]


class NotesKeys(Keyspace):
    """Notes."""

    note = Value("note:{id}", Note, lifetime=after("1h"), doc="a note")
    draft = Value("draft:{id}", str, lifetime=after("1h"), role="cache", doc="a note that is not done")


class Provider(BaseModel):
    model_config = ConfigDict(extra="forbid")

    client_id: str = ""
    client_secret: SecretStr | None = None


class NotesSettings(BaseModel):
    longest: int = Field(100, ge=1)
    api_key: SecretStr | None = None
    providers: dict[str, Provider] = {}


class NewNote(BaseModel):
    id: str = Field(min_length=1, max_length=40)
    text: str


class Notes:
    def __init__(self, keys: NotesKeys, settings: NotesSettings, site: Site) -> None:
        self.keys = keys
        self.settings = settings
        self.site = site
        self.slow = asyncio.Event()


Service = Annotated[Notes, Depends(service_of("notes"))]


def router() -> APIRouter:
    routes = APIRouter(prefix="/api/notes")

    @routes.get("/slow")
    async def slow(notes: Service) -> dict[str, bool]:
        """Waits until `/release` is asked for, in the same process."""
        await notes.slow.wait()
        return {"ok": True}

    @routes.get("/until-there")
    async def until_there(file: str) -> dict[str, bool]:
        """Waits until there is a file of this name where the server runs."""
        while not os.path.exists(file):  # noqa: ASYNC110, ASYNC240 - a file of a test
            await asyncio.sleep(0.01)
        return {"ok": True}

    @routes.post("/release")
    async def release(notes: Service) -> dict[str, bool]:
        notes.slow.set()
        return {"ok": True}

    @routes.get("/worker")
    async def worker() -> dict[str, Any]:
        return {"pid": os.getpid(), "loop": type(asyncio.get_running_loop()).__module__}

    @routes.get("/fail")
    async def fail(secret: str = "") -> None:
        hidden = f"secret-of-a-local-{secret}"
        raise RuntimeError(f"secret-of-a-message {hidden}")

    @routes.get("/refuse")
    async def refuse() -> None:
        raise Refusal(409, "NOTE_LOCKED", "The note is locked.", headers={"x-lock": "1"}, more={"until": 5, "ok": True})

    @routes.get("/events")
    async def events(notes: Service) -> StreamingResponse:
        async def stream() -> AsyncIterator[bytes]:
            yield b"data: one\n\n"
            await notes.slow.wait()
            yield b"data: two\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    @routes.get("/patient")
    async def patient(request: Request, notes: Service) -> dict[str, bool]:
        request.state.time_limit.reschedule(None)
        await notes.slow.wait()
        return {"ok": True}

    @routes.get("/site")
    async def site(request: Request, notes: Service) -> dict[str, Any]:
        own = notes.site
        return {
            "public_url": own.public_url,
            "internal_url": own.internal_url,
            "development": own.development,
            "now_ms": own.now_ms(),
            "longest": notes.settings.longest,
            "client": request.client.host if request.client else None,
            "scheme": request.url.scheme,
        }

    @routes.post("")
    async def add(note: NewNote, notes: Service) -> dict[str, Any]:
        await notes.keys.note(note.id).set(Note(text=note.text))
        return {"ok": True, "id": note.id}

    @routes.post("/raw")
    async def raw(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    @routes.get("/by-id/{id}")
    async def show(id: str, notes: Service) -> dict[str, Any]:
        note = await notes.keys.note(id).get()
        if note is None:
            raise Refusal(404, "NOT_FOUND", "There is no such note.")
        return {"ok": True, "text": note.text}

    @routes.delete("/by-id/{id}")
    async def delete(id: str, notes: Service) -> dict[str, bool]:
        await notes.keys.note(id).delete()
        return {"ok": True}

    return routes


@asynccontextmanager
async def service(keys: NotesKeys, settings: NotesSettings, site: Site) -> AsyncIterator[Notes]:
    yield Notes(keys, settings, site)


KIT = Kit(
    name="notes",
    doc="Notes that only their owner can read.",
    keyspace=NotesKeys,
    settings=NotesSettings,
    router=router,
    service=service,
    environment={"NOTES_API_KEY": "api_key", "DISCORD_CLIENT_ID": "providers.discord.client_id"},
    missing=lambda settings: () if settings.api_key else ("notes.api_key: the key of the notes; ask who runs them",),
    examples=(Example("Where notes run", "/api/notes/site", "What the kit knows of this server."),),
)

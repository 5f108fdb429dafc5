"""`keystead serve`: the application under Granian, in this process."""

import asyncio
import signal
import socket
from typing import Annotated, Final

import typer
from fastapi import FastAPI
from granian.constants import Interfaces
from granian.log import LogLevels
from granian.server.embed import Server
from pydantic import ValidationError

from keystead.cli.leave import ASKED_WRONGLY, FAILED, leave
from keystead.errors import BadUrl, KeysteadError, MissingExtra
from keystead.server import Settings, create_app

START_TIMEOUT_SECONDS: Final = 10.0
STOP_TIMEOUT_SECONDS: Final = 3.0

_STORE_HELP = """Where the keys live: sqlite:///file.db, memory://, redis://user:password@host:6379/0, rediss://,
redis+unix://, redis+sentinel://, redis+cluster://. [dim]\\[env: KEYSTEAD_STORE; default: sqlite:///keystead.db][/dim]"""
_HOST_HELP = """The address to listen on; 0.0.0.0 lets other machines in.
[dim]\\[env: KEYSTEAD_HOST; default: 127.0.0.1][/dim]"""
_PORT_HELP = "The port to listen on. [dim]\\[env: KEYSTEAD_PORT; default: 8700][/dim]"


def serve(
    store: Annotated[str | None, typer.Option(metavar="URL", help=_STORE_HELP, show_default=False)] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help=_HOST_HELP, show_default=False)] = None,
    port: Annotated[str | None, typer.Option(metavar="NUMBER", help=_PORT_HELP, show_default=False)] = None,
) -> None:
    """Run Keystead: a start page on / and a health check on /healthz.

    The store is opened first; Ctrl-C or SIGTERM finishes the requests under way, closes the store and leaves.

    [bold]Examples[/bold]

      keystead serve

      keystead serve --store redis://localhost:6379/0 --port 8080

    A URL with a password is better given as KEYSTEAD_STORE: arguments show in the list of processes.
    """
    given = {"store": store, "host": host, "port": port}
    try:
        settings = Settings.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        leave(
            "; ".join(_wrong_setting(str(wrong["loc"][0]), wrong["input"]) for wrong in error.errors()), ASKED_WRONGLY
        )
    try:
        address = _free_address(settings)
    except OSError as error:
        reason = error.strerror or error
        leave(
            f"cannot listen on {settings.host}:{settings.port} ({reason}); choose another --port or --host.",
            FAILED,
        )
    try:
        asyncio.run(_run(settings, address))
    except KeysteadError as error:
        leave(str(error), ASKED_WRONGLY if isinstance(error, BadUrl | MissingExtra) else FAILED)


def _wrong_setting(name: str, given: object) -> str:
    """What is wrong with a setting. The store's URL is never repeated: it may carry a password."""
    match name:
        case "port":
            return f"port: {given!r} is no number from 1 to 65535"
        case "host":
            return f"host: {given!r} is no address; write one such as 127.0.0.1"
        case _:
            return f"{name}: this is no URL of a store; write one such as sqlite:///keystead.db"


def _free_address(settings: Settings) -> str:
    """The host as an IP address, after making sure that the port is free.

    Granian shares its port with any process that is willing to share; a second Keystead must be told instead.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen()
    return str(address[0])


async def _run(settings: Settings, address: str) -> None:
    app = create_app(settings)
    # The lifespan is run here and not by Granian, so that a store that cannot be opened is an error of this
    # call, and so that the store is closed even when a connection does not end in time.
    async with app.router.lifespan_context(app):
        await _listen(app, address, settings.port)
    typer.echo("Keystead has stopped.")


async def _listen(app: FastAPI, address: str, port: int) -> None:
    server = Server(
        app,
        address=address,
        port=port,
        interface=Interfaces.ASGINL,
        websockets=False,
        log_level=LogLevels.error,
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stopping.set)
    serving = asyncio.create_task(server.serve())
    try:
        await _until_it_listens(serving, address, port)
        typer.echo(f"Keystead is running: open {_url(address, port)} (Ctrl-C stops it)")
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
    finally:
        # A request under way may end; a client that never finishes sending its own is not waited for.
        server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait((serving,), timeout=STOP_TIMEOUT_SECONDS)


async def _until_it_listens(serving: asyncio.Task[None], address: str, port: int) -> None:
    """Granian does not say when it accepts connections, so one is tried until it is accepted."""
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        while not serving.done():
            try:
                _, writer = await asyncio.open_connection(_reachable(address), port)
            except ConnectionError:
                await asyncio.sleep(0.005)
            else:
                writer.close()
                return
    await serving


def _reachable(address: str) -> str:
    """An address that a client on this machine can use, also when all addresses are listened on."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104


def _url(address: str, port: int) -> str:
    host = _reachable(address)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

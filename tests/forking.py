"""`keystead` commands, and programs of tests, as processes that are forked from one which has imported all of it.

To import what it needs takes a command half a second, and hundreds of tests run one. Each still has a process of its
own, with its own folder, environment, standard streams, signals and exit code. Only where a test is about how the
interpreter starts or ends (what is imported from where, the installed program itself) does it start the program anew.
"""

import atexit
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

_LIFELINE = 0  # standard input of the process that is forked from: it ends when this does

# All that commands and workers import, but for prometheus_client, which looks at the environment when it is imported.
_IMPORTED = (
    *("serve", "check", "doctor", "docs", "export", "show", "delete", "erase", "sessions", "jobs", "audit", "secrets"),
    *("backup", "restore", "copy", "infer", "watch"),
)
_ALSO_IMPORTED = (
    "keystead.server.processes",
    "keystead.server.kit_loading",
    "keystead.stores.redis",
    "keystead.stores.sqlite",
    "keystead.demo.demo_site",
    "pydantic.v1",  # FastAPI imports it when it meets the first route
    "pytest",
    "typer.rich_utils",
)


# --- for tests ----------------------------------------------------------------------------------------------------


class Command:
    """A running command, with what `subprocess.Popen` has for one."""

    def __init__(self, args: Sequence[str], connection: socket.socket) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._connection = connection
        self._answers = connection.makefile("r")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            ended = self._answers.readline()
            assert ended, "the process that commands are forked from has ended; what it wrote to stderr says why"
            self.returncode = int(ended)
            self._answers.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and that is still to be told
                os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(arguments: Sequence[str], folder: Path, env: Mapping[str, str], stdout: IO[Any], stderr: IO[Any]) -> Command:
    """`keystead` with these arguments, started in a folder; nothing is at its standard input."""
    with open(os.devnull) as nothing:
        return _ask(
            ["keystead", *arguments], {"folder": str(folder), "environment": dict(env)}, nothing, stdout, stderr
        )


def start_module(
    module: str, arguments: Sequence[str], folder: Path, env: Mapping[str, str], *files: IO[Any]
) -> Command:
    """A module with these arguments, as `python -m` runs it in a folder, with these three standard streams."""
    return _ask([module, *arguments], {"folder": str(folder), "environment": dict(env), "module": module}, *files)


@dataclass
class Talk:
    """A program with pipes to it; what it says of errors goes to a file."""

    command: Command
    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]


@contextmanager
def talking(module: str, arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> Iterator[Talk]:
    """As `start_module`. It is gone when the block is left."""
    given, said = os.pipe(), os.pipe()
    with (
        os.fdopen(given[0]) as its_stdin,
        os.fdopen(given[1], "w") as stdin,
        os.fdopen(said[0]) as stdout,
        os.fdopen(said[1], "w") as its_stdout,
        _text_file() as stderr,
    ):
        command = start_module(module, arguments, folder, env, its_stdin, its_stdout, stderr)
        its_stdin.close()
        its_stdout.close()
        try:
            yield Talk(command, stdin, stdout, stderr)
        finally:
            command.kill()
            command.wait()


def _ask(args: list[str], further: dict[str, Any], *files: IO[Any]) -> Command:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_forker())
    asked = json.dumps({"arguments": args[1:], **further}).encode()
    socket.send_fds(connection, [len(asked).to_bytes(4)], [file.fileno() for file in files])
    connection.sendall(asked)
    return Command(args, connection)


def command(*arguments: str) -> list[str]:
    """A command line for whatever starts programs by itself, such as a shell.

    Its process has the command forked, passes signals on to it, and ends as it does. Where that process is killed,
    so is the command, a moment later.
    """
    place = Path(_forker())
    program = place.with_name("keystead")
    if not program.exists():
        program.write_text(f"#!{sys.executable} -IS\n{_FORKED.format(socket=str(place))}")
        program.chmod(0o755)
    return [str(program), *arguments]


_FORKED = """
import json, os, signal, socket, sys

connection = socket.socket(socket.AF_UNIX)
connection.connect({socket!r})
asked = json.dumps({{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}).encode()
socket.send_fds(connection, [len(asked).to_bytes(4)], [0, 1, 2])
connection.sendall(asked)
answers = connection.makefile()
pid = int(answers.readline())
for one in (signal.SIGINT, signal.SIGTERM):
    signal.signal(one, lambda number, frame: os.kill(pid, number))
code = int(answers.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def run(
    arguments: Sequence[str], folder: Path, env: Mapping[str, str], timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` does with `capture_output` and `text`."""
    with _text_file() as out, _text_file() as error:
        command = start(arguments, folder, env, out, error)
        try:
            code = command.wait(timeout)
        except BaseException:
            command.kill()
            command.wait()
            raise
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(command.args, code, out.read(), error.read())


def _text_file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


_started: dict[str, tuple[subprocess.Popen[bytes], str]] = {}


def _forker() -> str:
    """The socket of the process that commands are forked from, which is started once."""
    if not _started:
        from tests.serving import environment

        folder = tempfile.mkdtemp(prefix="keystead-")
        place = f"{folder}/socket"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(place)
            listening.listen(100)
            process = subprocess.Popen(
                [sys.executable, __file__, str(listening.fileno())],
                env=environment({"PYTHONDONTWRITEBYTECODE": ""}),
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
            )
        _started["forker"] = (process, place)
        atexit.register(_end)
    return _started["forker"][1]


def _end() -> None:
    process, place = _started.pop("forker")
    process.communicate()
    shutil.rmtree(Path(place).parent)


# --- the process that is forked from ------------------------------------------------------------------------------


def _next_command(listening: socket.socket) -> dict[str, Any] | None:
    """Fork for each command that is asked for: in the child, what was asked; in the parent, nothing in the end."""
    running: dict[int, socket.socket] = {}
    ended, wakes = socket.socketpair()
    for one in (ended, wakes):
        one.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    with selectors.DefaultSelector() as selector:
        for source in (listening, ended, _LIFELINE):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if _LIFELINE in ready:
                break
            for pid, asker in running.items():
                if asker in ready:  # it has nothing more to say, so it is gone
                    selector.unregister(asker)
                    os.kill(pid, signal.SIGKILL)
            if ended in ready:
                with suppress(BlockingIOError):
                    ended.recv(4096)
                _report(running, selector)
            if listening in ready:
                connection, _ = listening.accept()
                asked, files = _asked(connection)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for one in (*running.values(), connection, listening, ended, wakes):
                        one.close()
                    for number, file in enumerate(files):
                        os.dup2(file, number)
                        os.close(file)
                    return asked
                for file in files:
                    os.close(file)
                running[pid] = connection
                selector.register(connection, selectors.EVENT_READ)
                connection.sendall(f"{pid}\n".encode())
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def _asked(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(int.from_bytes(size))), files


def _report(running: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    """Tell whoever asked how their command ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as connection, suppress(BrokenPipeError):
            if connection in selector.get_map():
                selector.unregister(connection)
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(asked: dict[str, Any]) -> None:
    """What the interpreter would have done at its start."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [str(Path(sysconfig.get_path("scripts")) / "keystead"), *asked["arguments"]]
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it is open for as long as the process runs
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    sys.stdout.reconfigure(write_through=unbuffered, line_buffering=unbuffered or sys.stdout.isatty())


def _import_all() -> None:
    for name in _IMPORTED:
        import_module(f"keystead.cli.{name}_command")
    for name in _ALSO_IMPORTED:
        import_module(name)
    from keystead.server import Settings
    from keystead.server.kit_loading import load_kits

    with suppress(Exception):  # what is wrong with a kit is said by the command that needs it
        load_kits(Settings(store="memory://"))
    assert "prometheus_client" not in sys.modules, "it is imported by a worker, which names the folder for it first"


def _main() -> None:
    sys.path[0] = sysconfig.get_path("scripts")  # where the program is, as for the program itself
    _import_all()
    gc.freeze()  # or every process would look through all of this again, when it ends at the latest
    asked = _next_command(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _become(asked)
        _leave_after(_run, asked)


def _run(asked: dict[str, Any]) -> None:
    if module := asked.get("module"):
        sys.path[0] = asked["folder"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        import_module("keystead.cli").main()


def _leave_after(run: Callable[[dict[str, Any]], None], asked: dict[str, Any]) -> None:
    """End as the interpreter does, but without taking apart what was imported: that would copy all of it first."""
    code: Any = 0
    try:
        run(asked)
    except SystemExit as left:
        code = left.code
    except KeyboardInterrupt:
        raise  # the interpreter ends by the signal itself
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit((code or 0) & 0xFF if isinstance(code, int | None) else 1)


if __name__ == "__main__":
    _main()

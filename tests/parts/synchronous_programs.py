"""Synchronous programs that the tests run: `python -m tests.parts.synchronous_programs NAME URL`."""

import os
import signal
import sys
import threading
from typing import Any

from keystead import Counter, Keyspace, connect, never, wait
from keystead.errors import StoreUnavailable, WrongEventLoop


class Counts(Keyspace):
    n = Counter("sync:n:{id}", lifetime=never("a test"))


def tell(line: object) -> None:
    os.write(1, f"{line}\n".encode())


def forget_to_close(url: str) -> None:
    """A script of three lines, with a thread."""
    keys = Counts(connect(url))
    thread = threading.Thread(target=lambda: keys.n("1").increment().wait())
    thread.start()
    thread.join()
    tell(keys.n("1").increment().wait())


def fork_under_load(url: str) -> None:
    """Four forks while threads write, each of which writes with four threads itself, and a fork of a fork."""
    keys = Counts(connect(url))

    def write(times: int) -> None:
        for _ in range(times):
            keys.n("1").increment().wait()

    def write_with_threads() -> None:
        threads = [threading.Thread(target=write, args=(25,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    write(1)
    began = threading.Event()

    def write_beside() -> None:
        began.set()
        write(200)

    background = threading.Thread(target=write_beside)
    background.start()
    began.wait()
    children = []
    for number in range(4):
        child = os.fork()
        if child:
            children.append(child)
            continue
        write_with_threads()
        if number == 0 and not (grandchild := os.fork()):
            write_with_threads()
            os._exit(0)
        elif number == 0:
            assert os.waitpid(grandchild, 0)[1] == 0
        sys.exit(0)
    background.join()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    tell(keys.n("1").get().wait())


def ports_of_forks(url: str) -> None:
    """The port of the connection to Redis that each process uses: of the parent, of four forks, and of the parent."""
    store: Any = connect(url)
    keys = Counts(store)

    def write_and_tell() -> None:
        keys.n("1").increment().wait()
        tell(store._link.connection._transport.get_extra_info("sockname")[1])

    write_and_tell()
    for _ in range(4):
        child = os.fork()
        if not child:
            write_and_tell()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    write_and_tell()


def interrupted(url: str) -> None:
    """The main thread is interrupted while it waits for a server that does not answer; then it goes on."""
    keys = Counts(connect(f"{url}?timeout=60s"))
    hung, works = Counts(connect(f"{sys.argv[3]}?timeout=60s&connect_timeout=60s")), threading.Event()

    def write() -> None:
        for _ in range(200):
            keys.n("1").increment().wait()
        works.set()

    other = threading.Thread(target=write)
    other.start()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        hung.n("1").get().wait()
    except KeyboardInterrupt:
        tell("interrupted")
    other.join()
    tell(keys.n("1").get().wait())


def green_threads(url: str) -> None:
    from gevent import monkey

    monkey.patch_all()
    try:
        Counts(connect(url)).n("1").get().wait()
    except WrongEventLoop as error:
        tell(error)


def too_late(url: str) -> None:
    """A call of an exit handler that runs after the store was closed."""
    import atexit

    keys = Counts(connect(url))

    def call() -> None:
        try:
            keys.n("1").increment().wait()
        except StoreUnavailable as error:
            tell(error)

    atexit.register(call)  # handlers run in reverse order: this one is the last
    wait(keys.run(keys.n("1").increment()))


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])

"""What all tests share."""

import gc
import logging
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import httpcore2
import httpx2
import pytest
from hypothesis import HealthCheck, settings
from playwright.async_api import Browser, async_playwright, expect

from keystead.stores import durations
from tests.real_servers import Running
from tests.serving import program

# What is compiled is kept, whatever the machine is set to: each process that a test starts would compile it again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Under `nohup`, or in a background job of a script, SIGHUP or SIGINT is ignored, and every process started from here
# inherits that; then no test could interrupt a program. A handled signal is back at its default in a new process.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda signum, frame: None)

# Files of tests are kept in memory where there is room for them, unless TMPDIR names a place: thousands of databases
# are made whose every write waits for the disk. A process that is killed loses no less in memory than on a disk.
IN_MEMORY, ROOM = "/dev/shm", 2 << 30
if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = IN_MEMORY

# How fast examples come tells of the machine, not of the code. Each run has new ones, so a few are enough.
settings.register_profile(
    "real-servers", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("real-servers")


HERE = Path(__file__).parent
PATIENCE_S = 120.0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting creates millions of objects that all stay, so the garbage collector need not look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# A store on a busy machine answers late, and no test fails for that. Tests of time limits name them in their URL.
durations.TIMEOUT_S = 60.0

# The stores on which `make test` runs each layer; `make test-matrix` takes the others. Most tests of a kit name
# no store and run in memory, so those that name several need not be repeated there.
EVERYDAY = {
    "schema": {"memory", "redis"},
    "parts": {"memory", "redis", "cluster"},
    "kits": {"redis", "cluster"},
}
# What only `make test-matrix` starts: servers, by the fixture of each, and the names that tests take as parameters.
FURTHER_SERVERS = {
    *("postgres_server", "mariadb_server", "memcached_server", "s3_server", "cloudflare_server"),
    *("upstash_gateway", "npm_upstash_server"),
}
FURTHER_STORES = {"postgres", "mariadb", "memcached", "s3", "cloudflare", "cloudflare_kv", "upstash"}
# Files that mostly wait, for pages, servers and time limits. They are spread among those that compute, so that a worker
# which waits leaves its core to another one, and none begins such a file when all others are done.
WAITING = (
    *("tests/browser/", "tests/stores/redis/", "tests/integrations/", "tests/cli/", "tests/server/"),
    "tests/gateway/",
)
SPREAD_OVER = 0.7  # of the run
# A test that takes `ordered` goes through all orders in which the steps of two can fall.
STORE_FIXTURES = ("stores", "urls", "store_url", "database_url", "ordered")
ORDERED = {"memory"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `matrix` what repeats on a further store what the same test shows on an everyday one.

    A test that runs on none of the everyday stores runs on the first one that it names. Of the tests in a browser,
    those marked `main_path` are of every day, in the first of their variants (stores, languages, screens, colours).
    """
    pages: dict[str, list[pytest.Item]] = {}
    tests: dict[tuple[str, str], dict[pytest.Function, str]] = {}
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        given = getattr(item, "callspec", None)
        chosen_by_name = item.get_closest_marker("everyday")
        if chosen_by_name and given and f"-{chosen_by_name.args[0]}-" not in f"-{given.id}-":
            item.add_marker("matrix")
        words = [value for value in given.params.values() if isinstance(value, str)] if given else []
        if FURTHER_SERVERS.intersection(item.fixturenames) or FURTHER_STORES.intersection(
            word for value in words for word in re.split(r"[+-]", value)
        ):
            item.add_marker("matrix")
        stores = [given.params[name] for name in STORE_FIXTURES if name in given.params] if given else []
        layer = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if stores and layer in EVERYDAY:
            tests.setdefault((layer, item.nodeid.partition("[")[0]), {})[item] = stores[0]
        if layer == "browser" and ("redis" in item.name or not item.get_closest_marker("main_path")):
            item.add_marker("matrix")
        elif layer == "browser":
            pages.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for variants in pages.values():
        for item in variants[1:]:
            item.add_marker("matrix")
    for (layer, _), named in tests.items():
        everyday = ORDERED if "ordered" in next(iter(named)).fixturenames else EVERYDAY[layer]
        chosen = everyday.intersection(named.values()) or {next(iter(named.values()))}
        for item, store in named.items():
            if store not in chosen:
                item.add_marker("matrix")
    items[:] = _spread(items)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """A test that asks for a further server by name has to say that it belongs to the matrix."""
    if fixturedef.argname in FURTHER_SERVERS and not request._pyfuncitem.get_closest_marker("matrix"):
        pytest.fail(f"{fixturedef.argname} runs in `make test-matrix` alone: mark this test with pytest.mark.matrix")


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """The same tests, file by file, with the files that wait among the others."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    waiting = [file for file in files if file.startswith(WAITING)]
    others = [file for file in files if not file.startswith(WAITING)]
    places = {file: SPREAD_OVER * number / len(waiting) for number, file in enumerate(waiting)}
    places |= {file: number / len(others) for number, file in enumerate(others)}
    return [item for file in sorted(files, key=places.__getitem__) for item in files[file]]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the ten slowest files and the processor time: a suite that must stay fast has to show where its time goes.

    Unlike seconds, the processor time hardly depends on what else the machine does. Workers have ended by now, so that
    they and what they started count.
    """
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
    terminalreporter.section("slowest files")
    for file, duration in seconds.most_common(10):
        terminalreporter.write_line(f"{duration:7.1f} s  {file}")
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    user_min, system_min = (sum(getattr(one, name) for one in used) / 60 for name in ("ru_utime", "ru_stime"))
    terminalreporter.write_line(
        f"{user_min + system_min:7.1f} CPU-minutes in all: {user_min:.1f} user, {system_min:.1f} system"
    )


# What a test may see of the machine's environment. Settings, credentials, proxies and locale stay outside.
PASSED_ON = re.compile(r"PATH|TMPDIR|VIRTUAL_ENV|PYTHON\w*|PYTEST_\w+|COV_\w+")
FIXED = {"TZ": "UTC", "LANG": "C.UTF-8"}


@pytest.fixture(scope="session", autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests run in an empty folder, with an empty home and a bare environment, and so do the processes they start.

    Otherwise they would read what `make serve` has left in the checkout (`keystead.secrets.toml`, `keystead.db`), or
    the settings of the person who runs them.
    """
    folder, home = tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if not PASSED_ON.fullmatch(name)]:
            patch.delenv(name)
        for name, value in (FIXED | {"HOME": str(home)}).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        time.tzset()
        yield folder
    time.tzset()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only event loop that the stores support."""
    return "asyncio"


@pytest.fixture(scope="session")
def running_servers() -> Iterator[Running]:
    """What tests.real_servers has started for this worker."""
    with ExitStack() as ends:
        yield Running(ends)


@pytest.fixture(scope="session", autouse=True)
def patient_clients() -> Iterator[None]:
    """Clients of HTTP that name no time limit wait as long as it takes; five seconds are little on a busy machine."""
    limits = httpx2._config.DEFAULT_TIMEOUT_CONFIG
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "read", "write", "pool"):
            patch.setattr(limits, name, PATIENCE_S)
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Each client of HTTP would read all certificates of the machine, which takes longer than most tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(autouse=True)
def leaves_no_trace(isolated: Path) -> Iterator[None]:
    """A test that left the log louder would slow down all tests after it; one that left a file would change them."""
    before = logging.root.level, list(logging.root.handlers)
    yield
    assert (logging.root.level, logging.root.handlers) == before
    left = sorted(isolated.iterdir())
    for path in left:  # so that only this test fails, and none after it
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert left == [], "this test has written into the working directory; use tmp_path"


# A page shows what is expected of it as soon as the machine lets it; this bound is only there for what hangs.
expect.set_options(timeout=60_000)

# Of two lists of features the last one counts, so this has what Playwright switches off itself, and then what an
# address bar shows when somebody types: two pages for each tab, which cost more than most of ours.
SWITCHED_OFF = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "LensOverlay"),
    *("HttpsFirstBalancedModeAutoEnable", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled"),
    "PreconnectToSearch",
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
)


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A real Chromium, started once a file; each test has a tab of it, or a context of its own.

    The one that can open no window takes half the time.
    """
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=program("chromium-headless-shell", "chromium"),
            args=["--no-sandbox", "--disable-gpu", f"--disable-features={','.join(SWITCHED_OFF)}"],
        )
        try:
            yield started
        finally:
            await started.close()

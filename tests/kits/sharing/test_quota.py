"""The storage quota, per user or address and in total: neither a race nor a crash exceeds it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from keystead import Store
from keystead.kits.sharing import Sharing, SharingSettings, Wanted
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import Clock, Reason, Visitor, body_of, ok, refused, running, service_on

KB = 1000
SMALL: dict[str, Any] = {"max_upload": "1kB", "quota": "10kB", "quota_per_user": "3kB"}


async def word(sharing: Sharing, who: str, where: str = "10.0.0.1", size: int | None = KB, bytes_: int = KB) -> str:
    with Reason() as reason:
        await sharing.upload(body_of(b"x" * bytes_), None, Wanted(), who=who, where=where, size=size)
    return reason.word


@everywhere
async def test_concurrent_uploads_never_exceed_the_quota_per_user(store: Store, folder: Path, clock: Clock) -> None:
    services = [service_on(store, folder, clock, **SMALL) for _ in range(2)]
    words = await asyncio.gather(*(word(services[number % 2], "login:42", f"10.0.{number}.1") for number in range(50)))
    assert Counter(words) == {"": 3, "QUOTA_EXCEEDED": 47}
    assert await services[0].quota.used("login:42") == 3 * KB
    assert await word(services[0], "login:43") == ""


@everywhere
async def test_concurrent_uploads_never_exceed_the_total_quota(store: Store, folder: Path, clock: Clock) -> None:
    services = [service_on(store, folder, clock, **SMALL) for _ in range(2)]
    uploads = (word(services[number % 2], f"login:{number}", f"10.0.{number}.1") for number in range(50))
    words = await asyncio.gather(*uploads)
    assert Counter(words) == {"": 10, "STORAGE_FULL": 40}
    assert await services[0].quota.used("all") == 10 * KB
    assert await services[0].quota.used("login:49") in (0, KB)


@everywhere
async def test_ended_expired_and_failed_uploads_release_their_quota(store: Store, folder: Path, clock: Clock) -> None:
    sharing = service_on(store, folder, clock, **SMALL)
    made = [
        await sharing.upload(body_of(b"x" * KB), None, Wanted(), who="login:42", where="", size=KB) for _ in range(3)
    ]
    assert await word(sharing, "login:42") == "QUOTA_EXCEEDED"
    await sharing.end(None, id=made[0].id, owner_key=made[0].owner_key, where="")
    assert await sharing.quota.used("login:42") == 2 * KB
    assert await word(sharing, "login:42", bytes_=0) == "EMPTY"
    assert await word(sharing, "login:42", bytes_=KB + 1) == "TOO_LARGE"
    assert await sharing.quota.used("login:42") == 2 * KB
    # One whose size was not known is counted as the largest, and then as what it is.
    assert await word(sharing, "login:42", size=None, bytes_=10) == ""
    assert await sharing.quota.used("login:42") == 2 * KB + 10
    clock.move("8d")
    assert (await sharing.clean_up.run()).deleted == 3
    assert await sharing.quota.used("login:42") == await sharing.quota.used("all") == 0


async def test_each_address_has_its_own_quota_and_the_error_says_what_to_do(folder: Path) -> None:
    async with running("memory://", folder, **SMALL) as site:
        here, there = site.visitor("10.9.0.1"), site.visitor("10.9.0.2")
        for _ in range(3):
            await here.upload(b"x" * KB)
        answer = await here.try_upload(b"x" * KB)
        assert refused(answer) == (413, "QUOTA_EXCEEDED")
        told = answer.json()
        assert (told["used"], told["quota"]) == (3 * KB, 3 * KB)
        assert told["error"].startswith("you are using 3 kB of 3 kB, and this file has 1 kB; end a link")
        await there.upload(b"x" * KB)
        for number in range(2):
            for _ in range(3):
                await site.visitor(f"10.9.1.{number}").upload(b"x" * KB)
        answer = await there.try_upload(b"x" * KB)
        assert refused(answer) == (507, "STORAGE_FULL")


async def test_the_issue_key_is_limited_only_by_the_total_quota(folder: Path) -> None:
    key = "an issue key that is long"
    async with running("memory://", folder, issue_key=key, **SMALL) as site:
        visitor: Visitor = site.visitor()
        headers = {"authorization": f"Bearer {key}"}
        for _ in range(10):
            await visitor.upload(b"x" * KB, headers)
        assert refused(await visitor.try_upload(b"x" * KB, headers)) == (507, "STORAGE_FULL")


async def test_a_quota_of_zero_means_no_limit(folder: Path) -> None:
    async with running("memory://", folder, max_upload="1kB", quota="0", quota_per_user="0") as site:
        for _ in range(20):
            ok(await site.visitor("10.9.0.1").try_upload(b"x" * KB))


def test_the_default_quota_is_a_multiple_of_max_upload() -> None:
    settings = SharingSettings(max_upload="2GB")
    assert (settings.quota_per_user_bytes, settings.quota_bytes) == (20 * 10**9, 200 * 10**9)


@pytest.mark.parametrize(("name", "text"), [("quota", "1kB"), ("quota_per_user", "99MB"), ("quota", "much")])
def test_a_quota_below_max_upload_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"max_upload|not a size"):
        SharingSettings.model_validate({name: text})

"""Interruptions anywhere: a message is repeated, and never lost."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from keystead import Store, connect
from keystead.errors import StoreFull, StoreUnavailable
from keystead.parts.outbox import DeliveryCounts, OutboxKeys, OutboxMessage, OutboxPolicy
from keystead.stores import Absent, Command, Outcome, Reply, Step
from tests.parts.outbox.conftest import (
    LINGERS,
    MINUTE,
    SECOND,
    AppKeys,
    Receiver,
    add,
    each_way,
    everywhere,
    here,
    keys_in,
    let_the_lease_run_out,
    outbox_of,
    until,
    waiting_in,
)
from tests.parts.schedule.conftest import Time
from tests.parts.sessions.relays import Killed, Mortal, Relay
from tests.serving import environment, wait_until

ROOT = Path(__file__).parents[3]


@everywhere
@pytest.mark.parametrize("way", ["delivers", "fails", "gives up"])
async def test_a_process_that_dies_at_any_command_of_a_delivery_loses_nothing_and_keeps_the_order(
    store: Store, time: Time, way: str
) -> None:
    lives = 0
    while True:
        dying, alive = Receiver(), Receiver()
        if way == "fails":
            dying.fails()
        elif way == "gives up":
            dying.raises = lambda message: ConnectionError() if message.payload["n"] == 0 else None
        await add(outbox_of(store, time, alive), store, 0, 1, 2)
        if way == "gives up":
            await outbox_of(store, time, dying).deliver_due()
            time.pass_ms(25 * 60 * MINUTE)
        died = False
        try:
            await outbox_of(Mortal(store, lives), time, dying).deliver_due()
        except Killed:
            died = True
        await let_the_lease_run_out(store)
        time.pass_ms(2 * MINUTE)
        await outbox_of(store, time, alive).deliver_due()
        got = [*dying.numbers(), *alive.numbers()]
        assert sorted(set(got)) == [0, 1, 2] or (way == "gives up" and sorted(set(got)) == [1, 2]), lives
        assert got == sorted(got), lives  # a message may come twice, and none before an earlier one
        assert len(got) <= 4, lives
        time.pass_ms(LINGERS)
        await outbox_of(store, time, alive).deliver_due()
        assert {key.split(":")[1] for key in await keys_in(store)} <= {"given-up", "dead"}, lives
        await AppKeys(store).atomically(*outbox_of(store, time, alive).drop("counter", "a"))
        if not died:
            break
        lives += 1
    assert lives >= 4


@everywhere
async def test_a_process_that_dies_at_any_command_of_an_addition_leaves_both_or_neither(
    store: Store, time: Time, receiver: Receiver
) -> None:
    lives = 0
    while True:
        relay, died = Mortal(store, lives), False
        try:
            await add(outbox_of(relay, time, Receiver()), relay, lives, name=f"n{lives}")
        except Killed:
            died = True
        alive = outbox_of(store, time, receiver)
        await alive.deliver_due()
        time.pass_ms(LINGERS)
        await alive.deliver_due()
        counted = await AppKeys(store).total(f"n{lives}").get()
        assert receiver.numbers(f"n{lives}") == [lives] * counted
        assert await keys_in(store) == set()
        if not died:
            break
        lives += 1
    assert lives >= 1


@everywhere
async def test_a_process_that_dies_at_any_command_of_a_drop_leaves_nothing_that_is_not_found(
    store: Store, time: Time, receiver: Receiver
) -> None:
    lives, alive = 0, outbox_of(store, time, receiver)
    while True:
        await add(alive, store, 1)
        relay, died = Mortal(store, lives), False
        try:
            await AppKeys(relay).atomically(*outbox_of(relay, time, receiver).drop("counter", "a"))
        except Killed:
            died = True
        waits = await waiting_in(store)
        receiver.got.clear()
        await alive.deliver_due()
        assert receiver.numbers() == waits
        time.pass_ms(LINGERS)
        await alive.deliver_due()
        time.pass_ms(LINGERS)
        await alive.deliver_due()
        assert await keys_in(store) == set()
        if not died:
            break
        lives += 1
    assert lives >= 1


@everywhere
async def test_a_delivery_that_lost_its_lease_unnoticed_removes_nothing(store: Store, time: Time) -> None:
    slow, other = Receiver(), Receiver()
    first = outbox_of(store, time, slow)
    await add(first, store, 1, 2)
    slow.may_answer.clear()
    turn = asyncio.create_task(first.deliver_due())
    await until(lambda: slow.at_once == 1)
    await let_the_lease_run_out(store)  # its process was stopped for longer than that
    await store.run([("ZADD", OutboxKeys(store).waiting().key, time.now_ms, b"counter/a")])
    other.may_answer.clear()
    second = asyncio.create_task(outbox_of(store, time, other).deliver_due())
    await until(lambda: other.at_once == 1)
    slow.may_answer.set()
    await turn
    assert await waiting_in(store) == [1, 2]
    lease = await OutboxKeys(store).lease("counter", "a").get()
    assert lease is not None
    other.may_answer.set()
    await second
    assert (slow.numbers(), other.numbers()) == ([1], [1, 2])


@everywhere
async def test_the_lease_is_renewed_while_a_message_is_being_sent_however_long_that_takes(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    lease = OutboxKeys(store).lease("counter", "a").key
    await add(outbox, store, 1)
    receiver.may_answer.clear()
    turn = asyncio.create_task(outbox.deliver_due())
    await until(lambda: receiver.at_once == 1)
    for _ in range(5):
        await time.asked_to_wait(2 * SECOND)
        await store.run([("PEXPIRE", lease, 3 * SECOND)])  # half of it has passed
        time.pass_ms(2 * SECOND)
        await time.asked_to_wait(2 * SECOND)
        assert (await store.run([("PTTL", lease)]))[0] > 3 * SECOND
    receiver.may_answer.set()
    assert await turn == DeliveryCounts(delivered=1)


@everywhere
async def test_losing_the_lease_while_sending_leaves_the_message_to_the_new_holder(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    await add(outbox, store, 1)
    receiver.may_answer.clear()
    outbox_ended = asyncio.create_task(outbox.deliver_due())
    await until(lambda: receiver.at_once == 1)
    await time.asked_to_wait(2 * SECOND)
    await store.run([("SET", OutboxKeys(store).lease("counter", "a").key, b'{"by":"another"}', "PX", MINUTE)])
    time.pass_ms(2 * SECOND)
    await outbox_ended
    assert (receiver.at_once, receiver.got) == (0, [])
    assert await waiting_in(store) == [1]


class _Mortal(Relay):
    """Forwards everything until its program is dead."""

    is_dead = False

    async def before(self) -> None:
        if self.is_dead:
            raise Killed


class _Slowing(Receiver):
    """Accepts one message, and then no other."""

    async def __call__(self, message: OutboxMessage) -> None:
        if self.got:
            self.may_answer.clear()
        await super().__call__(message)


@everywhere
async def test_another_process_takes_over_the_queue_of_a_killed_one_within_ten_seconds(
    store: Store, time: Time, receiver: Receiver
) -> None:
    other = outbox_of(store, time, receiver)
    await add(other, store, 1, 2)
    killed, keys, policy = _Slowing(), OutboxKeys(store), OutboxPolicy()
    mortal = _Mortal(store)
    dying = asyncio.create_task(outbox_of(mortal, time, killed).deliver_due())
    await until(lambda: killed.numbers() == [1])
    await until(lambda: killed.at_once == 1)
    mortal.is_dead = True  # while it sends the second
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    assert await other.deliver_due() == DeliveryCounts()  # as far as anybody knows, that one is at it
    [left_ms, looked_at] = await store.run(
        [("PTTL", keys.lease("counter", "a").key), ("ZSCORE", keys.waiting().key, b"counter/a")]
    )
    resumes_ms = max(left_ms, looked_at - time.now_ms) + policy.look_every_ms
    assert left_ms > 0
    assert resumes_ms < 10 * SECOND
    await let_the_lease_run_out(store)
    time.pass_ms(policy.lease_ms)
    assert await other.deliver_due() == DeliveryCounts(delivered=1)
    assert (killed.numbers(), receiver.numbers()) == ([1], [2])


class Closing(Relay):
    """Another process adds a message just before an empty queue is closed."""

    def __init__(self, inner: Store, time: Time) -> None:
        super().__init__(inner)
        self._time = time
        self.added = False

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        if not self.added and any(isinstance(step, Absent) for step in steps):
            self.added = True
            await add(outbox_of(self._inner, self._time, Receiver()), self._inner, 2)
        return await super().atomically(steps)


@each_way
async def test_a_message_that_comes_while_an_empty_queue_is_closed_is_not_lost(
    store: Store, time: Time, receiver: Receiver
) -> None:
    await add(outbox_of(store, time, receiver), store, 1)
    relay = Closing(store, time)
    assert await outbox_of(relay, time, receiver).deliver_due() == DeliveryCounts(delivered=2)
    assert relay.added
    assert receiver.numbers() == [1, 2]


# --- store outages ------------------------------------------------------------------------------------------


class Away(Relay):
    """A store that can be down, or full."""

    away = False
    full = False
    loses_answers = False
    tries = 0

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        self._check()
        return await super().run(commands)

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        self._check()
        if self.full:
            raise StoreFull("there is no room left")
        done = await super().atomically(steps)
        if self.loses_answers:
            raise StoreUnavailable("the answer was lost", "unknown")
        return done

    def _check(self) -> None:
        self.tries += 1
        if self.away:
            raise StoreUnavailable("the store does not answer")


@each_way
@pytest.mark.parametrize("trouble", ["away", "full"])
async def test_an_outage_or_a_full_store_pauses_and_is_logged_once(
    store: Store, time: Time, receiver: Receiver, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    caplog.set_level(logging.INFO)
    relay = Away(store)
    await add(outbox_of(store, time, receiver), store, 1)
    setattr(relay, trouble, True)
    waited: list[int] = []
    async with outbox_of(relay, time, receiver):
        for _ in range(8):
            tries = relay.tries
            await until(lambda: any(at > time.now_ms for at, _ in time.waits))
            await until(
                lambda: not any(task.get_name().startswith("keystead outbox c") for task in asyncio.all_tasks())
            )
            waited.append(time.next_ms)
            time.pass_ms(time.next_ms)
            await until(lambda tries=tries: relay.tries > tries)  # type: ignore[misc]
        assert receiver.got == []
        setattr(relay, trouble, False)
        while not receiver.got:
            time.pass_ms(SECOND)
            await asyncio.sleep(0.001)
        await until(lambda: "is back" in caplog.text)
    said = [one.message for one in caplog.records if one.name == "keystead.outbox"]
    assert len(said) == 2, said
    assert said[0].startswith("the outbox is paused until its store is back: ")
    assert said[1] == "the outbox continues: its store is back"
    assert waited[-1] > 8 * SECOND  # less and less often
    assert await waiting_in(store) == []


@each_way
async def test_after_an_outage_the_same_process_resumes_its_lease(store: Store, time: Time, receiver: Receiver) -> None:
    relay = Away(store)
    outbox = outbox_of(relay, time, receiver)
    await add(outbox, relay, 1)
    receiver.may_answer.clear()
    turn = asyncio.create_task(outbox.deliver_due())
    await until(lambda: receiver.at_once == 1)
    relay.away = True
    receiver.may_answer.set()
    with pytest.raises(StoreUnavailable):
        await turn
    relay.away = False
    await store.run([("ZADD", OutboxKeys(store).waiting().key, time.now_ms, b"counter/a")])
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1)  # although the lease is still there
    assert receiver.numbers() == [1, 1]
    assert await waiting_in(store) == []


@each_way
async def test_an_answer_that_was_lost_loses_no_message(store: Store, time: Time, receiver: Receiver) -> None:
    relay = Away(store)
    outbox = outbox_of(relay, time, receiver)
    await add(outbox_of(store, time, Receiver()), store, 1, 2, 3)
    for _ in range(12):
        relay.loses_answers = not relay.loses_answers
        with suppress(StoreUnavailable):
            await outbox.deliver_due()
        time.pass_ms(2 * MINUTE)
    assert sorted(set(receiver.numbers())) == [1, 2, 3]
    assert await waiting_in(store) == []


# --- a stop -------------------------------------------------------------------------------------------------


@each_way
async def test_a_stop_finishes_sends_in_progress_and_leaves_the_rest(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    receiver.may_answer.clear()
    await add(outbox, store, 1)
    looping = asyncio.create_task(outbox.run())
    await until(lambda: receiver.at_once == 1)
    looping.cancel()
    await time.asked_to_wait(5 * SECOND)
    receiver.may_answer.set()
    await asyncio.wait({looping})
    assert looping.cancelled()
    assert receiver.numbers() == [1]
    assert not await OutboxKeys(store).lease("counter", "a").exists()


@each_way
async def test_a_stop_cancels_slow_sends_and_another_process_takes_over(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox, other = outbox_of(store, time, receiver), Receiver()
    receiver.may_answer.clear()
    await add(outbox, store, 1, 2)
    looping = asyncio.create_task(outbox.run())
    await until(lambda: receiver.at_once == 1)
    looping.cancel()
    await time.asked_to_wait(5 * SECOND)
    time.pass_ms(5 * SECOND)
    await asyncio.wait({looping})
    assert looping.cancelled()
    assert receiver.at_once == 0
    assert await outbox_of(store, time, other).deliver_due() == DeliveryCounts(delivered=2)
    assert other.numbers() == [1, 2]


@here
async def test_a_sender_that_will_not_be_cancelled_does_not_keep_the_process(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    may_end, began = asyncio.Event(), asyncio.Event()

    async def stubborn(message: OutboxMessage) -> None:
        began.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    outbox = outbox_of(store, time, stubborn)
    await add(outbox, store, 1)
    looping = asyncio.create_task(outbox.run())
    await began.wait()
    looping.cancel()
    for given_ms in (5 * SECOND, 2_500):
        await time.asked_to_wait(given_ms)
        time.pass_ms(given_ms)
    await asyncio.wait({looping})
    assert "is still running although it was cancelled" in caplog.text
    may_end.set()
    await until(lambda: not any(task.get_name().startswith("keystead") for task in asyncio.all_tasks()))


@here
async def test_a_stop_during_an_outage_ends(store: Store, time: Time, receiver: Receiver) -> None:
    relay = Away(store)
    outbox = outbox_of(relay, time, receiver)
    receiver.may_answer.clear()
    await add(outbox, relay, 1)
    async with outbox:
        await until(lambda: receiver.at_once == 1)
        relay.away = True
        receiver.may_answer.set()
    assert receiver.numbers() == [1]
    assert await waiting_in(store) == [1]  # it is repeated


@here
async def test_a_cancelled_round_releases_its_leases(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    receiver.may_answer.clear()
    await add(outbox, store, 1)
    turn = asyncio.create_task(outbox.deliver_due())
    await until(lambda: receiver.at_once == 1)
    turn.cancel()
    await asyncio.wait({turn})
    assert turn.cancelled()
    assert not await OutboxKeys(store).lease("counter", "a").exists()
    receiver.may_answer.set()
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1)


# --- real processes -----------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_another_process_takes_over_within_ten_seconds_after_a_kill_and_loses_nothing(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    command = [sys.executable, "-m", "tests.parts.outbox.worker", store_url, str(file)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=ROOT, env=environment())

    def lines() -> list[list[str]]:
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    async with connect(store_url) as adding:
        time = Time()
        time.now_ms = 0
        outbox = outbox_of(adding, time, Receiver())
        await add(outbox, adding, *range(50))
        killed = start()
        try:
            wait_until(lambda: len(lines()) >= 5, "five messages were delivered")
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()
        finally:
            killed.kill()
        keys, policy = OutboxKeys(adding), OutboxPolicy()
        lease, marks = keys.lease("counter", "a").key, keys.waiting().key
        left_ms, looked_at = await adding.run([("PTTL", lease), ("ZSCORE", marks, b"counter/a")])
        assert left_ms > 0
        assert max(left_ms, looked_at - keys.now_ms()) + policy.look_every_ms < 10 * SECOND
        await adding.run([("DEL", lease), ("ZADD", marks, 0, b"counter/a")])  # that time is over
        other = start()
        try:
            wait_until(lambda: any(number == "49" for _, number in lines()), "the last message was delivered")
            other.send_signal(signal.SIGTERM)
            assert other.wait(300) == 0
        finally:
            other.kill()
    numbers = [int(number) for _, number in lines()]
    assert sorted(set(numbers)) == [*range(50)]
    assert numbers == sorted(numbers)
    assert len(numbers) <= 51
    assert {int(pid) for pid, _ in lines()} == {killed.pid, other.pid}

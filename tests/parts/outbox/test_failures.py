"""Failures: exponential back-off, independent queues, and dead letters."""

import asyncio
import logging
from typing import Any

import pytest

from keystead import Store
from keystead.parts.outbox import (
    DeliveryCounts,
    DeliveryFailed,
    GivenUp,
    Outbox,
    OutboxKeys,
    OutboxPolicy,
    Undeliverable,
)
from keystead.parts.outbox.outbox_keys import QueueName
from keystead.parts.outbox.queue_control import QueueControl
from tests.parts.outbox.conftest import (
    DAY,
    HOUR,
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
    outbox_of,
    until,
    waiting_in,
)
from tests.parts.schedule.conftest import Time


async def tries_until(outbox: Outbox, time: Time, receiver: Receiver, count: int) -> list[int]:
    """Let time pass from one attempt to the next; how long it took each time."""
    waited = []
    while len(receiver.tried) < count:
        state = await outbox.state("counter", "a")
        assert state.trouble is not None
        left_ms = state.trouble.next_ms - time.now_ms
        time.pass_ms(left_ms - 1)
        assert await outbox.deliver_due() == DeliveryCounts()  # it is not yet time
        time.pass_ms(1)
        await outbox.deliver_due()
        waited.append(left_ms)
    return waited


@each_way
async def test_a_queue_that_fails_waits_twice_as_long_each_time_up_to_an_hour(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    await add(outbox, store, 1)
    receiver.fails()
    await outbox.deliver_due()
    waited = await tries_until(outbox, time, receiver, 13)
    expected = [min(10 * SECOND << n, HOUR) for n in range(12)]
    assert all(0.8 * full <= ms <= full for ms, full in zip(waited, expected, strict=True)), waited
    assert [message.attempts for message in receiver.tried] == [*range(13)]


@each_way
async def test_a_success_ends_the_trouble_and_the_next_failure_waits_ten_seconds_again(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    await add(outbox, store, 1)
    receiver.fails()
    await outbox.deliver_due()
    await tries_until(outbox, time, receiver, 6)
    receiver.works()
    time.pass_ms(HOUR)
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1)
    assert (await outbox.state("counter", "a")).trouble is None
    receiver.fails()
    await add(outbox, store, 2)
    await outbox.deliver_due()
    trouble = (await outbox.state("counter", "a")).trouble
    assert trouble is not None
    assert (trouble.failures, trouble.attempts) == (1, 1)
    assert 8 * SECOND <= trouble.next_ms - time.now_ms <= 10 * SECOND


@everywhere
async def test_adding_to_a_queue_in_back_off_does_not_shorten_it(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    await add(outbox, store, 1)
    receiver.fails()
    await outbox.deliver_due()
    for number in (2, 3):
        await add(outbox, store, number)
        assert await outbox.deliver_due() == DeliveryCounts()
    assert len(receiver.tried) == 1
    receiver.works()
    time.pass_ms(10 * SECOND)
    assert await outbox.deliver_due() == DeliveryCounts(delivered=3)
    assert receiver.numbers() == [1, 2, 3]


@everywhere
async def test_a_receiver_that_is_down_does_not_delay_others(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    receiver.raises = lambda message: ConnectionError() if message.name == "a" else None
    for name in "abcd":
        await add(outbox, store, 1, 2, name=name)
    assert await outbox.deliver_due() == DeliveryCounts(delivered=6, failed=1)
    assert await waiting_in(store) == [1, 2]


@each_way
async def test_a_message_is_given_up_when_it_and_the_trouble_are_a_day_old_and_the_next_is_tried(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    poison = time.now_ms
    receiver.raises = lambda message: ConnectionError() if message.payload["n"] == 1 else None
    await add(outbox, store, 1)
    await outbox.deliver_due()
    time.pass_ms(MINUTE)
    await add(outbox, store, 2, 3)
    while receiver.got == []:
        assert time.now_ms < poison + DAY + 2 * HOUR
        time.pass_ms(10 * MINUTE)
        await outbox.deliver_due()
    assert time.now_ms >= poison + DAY
    assert receiver.numbers() == [2, 3]
    state = await outbox.state("counter", "a")
    assert (state.waiting, state.trouble) == (0, None)
    [entry] = state.given_up
    assert (entry.why, entry.count, entry.created_ms, entry.error) == ("too old", 1, poison, "ConnectionError")
    assert entry.attempts == sum(message.payload["n"] == 1 for message in receiver.tried)
    assert entry.id == receiver.tried[0].id
    time.pass_ms(LINGERS)
    await outbox.deliver_due()
    assert {key.split(":")[1] for key in await keys_in(store)} == {"given-up", "dead"}


@here
async def test_where_one_after_the_other_fails_all_that_is_a_day_old_is_given_up_together(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    receiver.fails()
    await add(outbox, store, *range(10))
    await outbox.deliver_due()
    time.pass_ms(DAY + MINUTE)
    await add(outbox, store, 10)
    assert await outbox.deliver_due() == DeliveryCounts(failed=3, given_up=10)
    assert await waiting_in(store) == [10]
    entries = (await outbox.state("counter", "a")).given_up
    assert [(entry.why, entry.count) for entry in entries] == [("too old", 9), ("too old", 1)]


@here
async def test_a_message_that_waited_for_this_side_for_days_has_its_day_of_attempts(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    await add(outbox, store, 1)
    time.pass_ms(3 * DAY)  # no process was there
    receiver.fails()
    assert await outbox.deliver_due() == DeliveryCounts(failed=1)
    time.pass_ms(12 * HOUR)
    receiver.works()
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1)


@everywhere
async def test_undeliverable_messages_are_given_up_immediately(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    receiver.raises = lambda message: Undeliverable("it is gone") if message.payload["n"] == 1 else None
    await add(outbox, store, 1, 2)
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1, failed=1, given_up=1)
    state = await outbox.state("counter", "a")
    [entry] = state.given_up
    assert (entry.why, entry.error, entry.attempts, state.waiting) == ("undeliverable", "it is gone", 1, 0)


@everywhere
async def test_dead_letters_are_sent_again_with_their_ids_by_one_of_several_callers(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox, keys = outbox_of(store, time, receiver), OutboxKeys(store, now_ms=time)
    queue, control = QueueName("counter", "a"), QueueControl(keys)
    receiver.raises = lambda message: Undeliverable("it is gone") if message.payload["n"] < 3 else None
    await add(outbox, store, 1, 2, 3)
    await outbox.deliver_due()
    assert (receiver.numbers(), (await control.state(queue)).dead) == ([3], 2)
    receiver.works()
    assert sorted(await asyncio.gather(*(control.retry_dead_letters(queue) for _ in range(3)))) == [0, 0, 2]
    now = await control.state(queue)
    assert (now.waiting, now.dead, now.given_up) == (2, 0, [])
    await outbox.deliver_due()
    assert receiver.numbers() == [3, 1, 2]
    assert [message.id for message in receiver.got][1:] == [message.id for message in receiver.tried][:2]
    assert await control.retry_dead_letters(queue) == 0


@here
async def test_retry_after_of_a_receiver_is_respected_within_bounds(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    for name, asked_ms, longest_ms in (("a", 5 * MINUTE, 5 * MINUTE), ("b", DAY, HOUR), ("c", 1, 10 * SECOND)):
        receiver.raises = lambda message, asked_ms=asked_ms: DeliveryFailed("busy", asked_ms)  # type: ignore[misc]
        await add(outbox, store, 1, name=name)
        await outbox.deliver_due()
        trouble = (await outbox.state("counter", name)).trouble
        assert trouble is not None
        assert trouble.error == "busy"
        assert 0.8 * longest_ms <= trouble.next_ms - time.now_ms <= longest_ms


@everywhere
async def test_a_full_queue_gives_up_its_oldest_messages_and_records_it(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver, most_waiting=20)
    receiver.fails()
    await add(outbox, store, *range(20))
    await outbox.deliver_due()
    await add(outbox, store, 20)
    # The first may be under way. Of the others, the oldest go.
    assert await waiting_in(store) == [0, *range(4, 21)]
    [entry] = (await outbox.state("counter", "a")).given_up
    assert (entry.why, entry.count, entry.error) == ("too many", 3, None)
    await add(outbox, store, *range(21, 200))
    found = await waiting_in(store)
    assert found == [0, *range(found[1], 200)]
    assert len(found) <= 20
    state = await outbox.state("counter", "a")
    assert sum(entry.count for entry in state.given_up) <= 200 - len(found)
    assert len(state.given_up) <= 20


@everywhere
async def test_concurrent_adds_keep_a_full_queue_within_its_bound(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver, most_waiting=20)
    await asyncio.gather(*(add(outbox, store, number) for number in range(100)))
    await add(outbox, store, 100)
    found = await waiting_in(store)
    assert len(found) <= 20
    noted = sum(entry.count for entry in (await outbox.state("counter", "a")).given_up)
    assert noted + len(found) == 101
    assert await AppKeys(store).total("a").get() == 101  # what the messages tell of took effect in any case


@each_way
async def test_an_invalid_item_is_set_aside_and_blocks_no_message(
    store: Store, time: Time, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = outbox_of(store, time, receiver)
    await store.run([("RPUSH", OutboxKeys(store).queue("counter", "a").key, b"not JSON", b"{}")])
    await add(outbox, store, 1)
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1, given_up=2)
    assert [entry.why for entry in (await outbox.state("counter", "a")).given_up] == ["unreadable"] * 2
    assert "is not a message" in caplog.text
    set_aside = [key async for page in store.scan("keystead:quarantine:*") for key in page]
    assert len(set_aside) == 2  # as they were found, for `keystead doctor --restore`


@each_way
async def test_a_queue_of_another_kind_and_a_mark_of_no_queue_harm_no_other(
    store: Store, time: Time, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    outbox, keys = outbox_of(store, time, receiver, at_once=2), OutboxKeys(store)
    await store.run([("SET", keys.queue("counter", "bad").key, b"text")])
    await store.run([("ZADD", keys.waiting().key, 1, b"counter/bad", 1, b"no queue", 2, b"a/b/c", 2, b"\xff")])
    await add(outbox, store, 1)
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1)
    assert await outbox.deliver_due() == DeliveryCounts()
    assert caplog.text.count("counter/bad cannot be delivered") == 1


@each_way
async def test_trouble_that_cannot_be_read_or_comes_from_a_wrong_clock_keeps_nothing_back(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox, keys = outbox_of(store, time, receiver), OutboxKeys(store)
    receiver.fails()
    await add(outbox, store, 1)
    await outbox.deliver_due()
    trouble = (await outbox.state("counter", "a")).trouble
    assert trouble is not None
    receiver.works()
    await keys.trouble("counter", "a").set(trouble.model_copy(update={"next_ms": time.now_ms + 30 * DAY}))
    time.pass_ms(MINUTE)
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1)
    await add(outbox, store, 2)
    await store.run([("SET", keys.trouble("counter", "a").key, b"not JSON")])
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1)


class _ErrorOfItsOwn(BaseException):
    pass


@here
@pytest.mark.parametrize(
    "error", [SystemExit(3), asyncio.CancelledError(), _ErrorOfItsOwn(), ValueError("a secret"), TimeoutError()]
)
async def test_any_sender_error_is_a_failure_and_foreign_messages_are_not_stored(
    store: Store, time: Time, receiver: Receiver, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    outbox = outbox_of(store, time, receiver)
    receiver.raises = lambda message: error
    await add(outbox, store, 1)
    assert await outbox.deliver_due() == DeliveryCounts(failed=1)
    trouble = (await outbox.state("counter", "a")).trouble
    assert trouble is not None
    assert trouble.error == type(error).__name__
    assert "a secret" not in caplog.text


@here
async def test_a_hanging_sender_times_out(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    receiver.may_answer.clear()
    await add(outbox, store, 1)
    turn = asyncio.create_task(outbox.deliver_due())
    await time.asked_to_wait(20 * SECOND)
    time.pass_ms(20 * SECOND)
    assert await turn == DeliveryCounts(failed=1)
    assert receiver.at_once == 0
    trouble = (await outbox.state("counter", "a")).trouble
    assert trouble is not None
    assert trouble.error == "it timed out after 20 seconds"


@here
async def test_each_attempt_is_reported(store: Store, time: Time, receiver: Receiver) -> None:
    told: list[tuple[str, str]] = []
    outbox = Outbox(
        OutboxKeys(store, now_ms=time),
        receiver,
        wait=time.wait,
        on_outcome=lambda topic, outcome: told.append((topic, outcome)),
    )
    answers: list[Any] = [None, ConnectionError(), Undeliverable("gone")]
    receiver.raises = lambda message: answers[message.payload["n"]]
    await add(outbox, store, 0, 1, topic="like")
    await add(outbox, store, 2)
    await outbox.deliver_due()
    assert sorted(told) == [("counter", "failed"), ("counter", "given-up"), ("like", "delivered"), ("like", "failed")]


@here
async def test_the_first_failure_in_a_row_is_logged_and_no_other(
    store: Store, time: Time, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    outbox = outbox_of(store, time, receiver)
    receiver.fails()
    await add(outbox, store, 1)
    await outbox.deliver_due()
    await tries_until(outbox, time, receiver, 5)
    said = [one.message for one in caplog.records if one.name == "keystead.outbox"]
    assert said == ["counter/a was not delivered, and will be retried: ConnectionError"]


def test_back_off_has_jitter() -> None:
    policy = OutboxPolicy()
    assert len({policy.wait_ms(5) for _ in range(50)}) > 10
    assert policy.wait_ms(10**6) <= HOUR


@here
async def test_the_loop_tries_again_when_it_is_time(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    receiver.fails()
    async with outbox:
        await add(outbox, store, 1)
        await until(lambda: len(receiver.tried) == 1)
        receiver.works()
        await until(lambda: bool(time.waits))
        began_ms = time.now_ms
        while not receiver.got:
            time.pass_ms(SECOND)
            await asyncio.sleep(0.001)
    assert 8 * SECOND <= time.now_ms - began_ms <= 15 * SECOND


def test_dead_letters_omit_unknown_fields() -> None:
    entry = GivenUp(at_ms=1, why="too many", count=2)
    assert OutboxKeys.given_up.item.encode(entry, "") == b'{"at_ms":1,"why":"too many","count":2,"attempts":0}'

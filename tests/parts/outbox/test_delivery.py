"""Delivery: in order, at least once, by one process at a time, and nothing is left behind."""

import asyncio
from typing import Any

import pytest

from keystead import Store
from keystead.errors import BadKey, BadValue, DoesNotFit
from keystead.parts.outbox import DeliveryCounts, Outbox, OutboxKeys, OutboxMessage, OutboxPolicy
from keystead.parts.outbox.delivery import MAX_PER_DELIVERY
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.procedure_tracing import traced
from keystead.stores import Absent, Guarantees
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
    in_a_cluster,
    keys_in,
    let_the_lease_run_out,
    outbox_of,
    until,
    waiting_in,
)
from tests.parts.schedule.conftest import Time
from tests.parts.sessions.relays import Relay


@everywhere
async def test_messages_are_delivered_in_order_and_removed(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    await add(outbox, store, *range(5))
    await add(outbox, store, *range(3), name="b")
    assert await outbox.deliver_due() == DeliveryCounts(delivered=8)
    assert (receiver.numbers("a"), receiver.numbers("b")) == ([*range(5)], [*range(3)])
    assert await AppKeys(store).total("a").get() == 5
    time.pass_ms(LINGERS)
    assert await outbox.deliver_due() == DeliveryCounts()
    assert await keys_in(store) == set()


@everywhere
async def test_a_message_is_there_if_and_only_if_the_step_took_effect(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox, keys = outbox_of(store, time, receiver), AppKeys(store)
    await outbox.announce("counter", "a")
    absent = keys.total("a").exists().required()
    assert not await keys.atomically(absent, *outbox.add("counter", "a", {"n": 1}))
    assert await outbox.deliver_due() == DeliveryCounts()
    assert await waiting_in(store) == []
    time.pass_ms(LINGERS)
    await outbox.deliver_due()
    assert await keys_in(store) == set()  # a mark without a message is taken out


@here
async def test_a_message_has_its_topic_and_a_stable_id(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    created_ms = time.now_ms
    payload = {"event": "counter.increment", "data": {"é": [1, 2.5, None, True, "\n"]}}
    await OutboxKeys(store).atomically(*outbox.add("counter", "a", payload))
    receiver.fails()
    await outbox.deliver_due()
    time.pass_ms(MINUTE)
    receiver.works()
    await outbox.deliver_due()
    first, second = receiver.tried
    assert second == OutboxMessage("counter", "a", first.id, created_ms, payload, attempts=1)
    assert first.attempts == 0
    assert len(first.id) > 20


@here
async def test_ids_are_not_used_twice(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver)
    await add(outbox, store, *range(300))
    await outbox.deliver_due()
    assert len({message.id for message in receiver.got}) == 300


@everywhere
async def test_messages_added_while_running_are_delivered_immediately(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    async with outbox:
        await until(lambda: bool(time.waits))  # it has looked, and found nothing
        await add(outbox, store, 1)
        await until(lambda: receiver.numbers() == [1])
        await add(outbox, store, 2)
        await until(lambda: receiver.numbers() == [1, 2])


@each_way
async def test_messages_of_another_process_are_seen_at_the_next_poll(
    store: Store, time: Time, receiver: Receiver
) -> None:
    other = outbox_of(store, time, Receiver())
    async with outbox_of(store, time, receiver):
        await until(lambda: bool(time.waits))
        await add(other, store, 1)
        assert time.next_ms <= 2 * SECOND
        while not receiver.got:
            time.pass_ms(SECOND)
            await asyncio.sleep(0.001)
    assert receiver.numbers() == [1]


@everywhere
async def test_two_processes_deliver_each_queue_in_order_and_each_message_once(store: Store, time: Time) -> None:
    receiver = Receiver()
    one, two = outbox_of(store, time, receiver), outbox_of(store, time, receiver)
    for number in range(4):
        for name in "abcdefghijkl":
            await add(one if number % 2 else two, store, number, name=name)
    counts = [*await asyncio.gather(one.deliver_due(), two.deliver_due())]
    while len(receiver.got) < 48:
        time.pass_ms(MINUTE)  # a queue that the other one held is looked at when its lease could be over
        counts += await asyncio.gather(one.deliver_due(), two.deliver_due())
    assert sum(count.delivered for count in counts) == 48
    for name in "abcdefghijkl":
        assert receiver.numbers(name) == [0, 1, 2, 3]


@everywhere
async def test_of_many_claims_one_gets_the_queue(store: Store, time: Time) -> None:
    receiver = Receiver()
    several = [outbox_of(store, time, receiver) for _ in range(5)]
    await add(several[0], store, 1, 2, 3)
    receiver.may_answer.clear()
    rounds = [asyncio.create_task(one.deliver_due()) for one in several]
    await until(lambda: sum(task.done() for task in rounds) == 4)
    await until(lambda: receiver.at_once > 0)  # the others may be told no before the one has asked
    assert receiver.at_once == 1
    receiver.may_answer.set()
    await asyncio.gather(*rounds)
    assert receiver.numbers() == [1, 2, 3]
    assert receiver.most_at_once == 1


@here
async def test_the_policy_limits_concurrent_queues(store: Store, time: Time, receiver: Receiver) -> None:
    outbox = outbox_of(store, time, receiver, at_once=3)
    for name in "abcdefgh":
        await add(outbox, store, 1, name=name)
    receiver.may_answer.clear()
    async with outbox:
        await until(lambda: receiver.at_once == 3)
        receiver.may_answer.set()
        await until(lambda: len(receiver.got) == 8)
    assert receiver.most_at_once == 3


@each_way
async def test_a_queue_that_never_ends_lets_others_have_their_turn(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver, at_once=1)
    await add(outbox, store, *range(MAX_PER_DELIVERY + 50))
    await add(outbox, store, 1, name="b")
    time.pass_ms(1)
    await outbox.deliver_due()
    assert receiver.numbers("a") == [*range(MAX_PER_DELIVERY + 50)]
    assert [message.name for message in receiver.got].index("b") == MAX_PER_DELIVERY


@everywhere
async def test_after_a_drop_nothing_of_the_queue_is_left(store: Store, time: Time, receiver: Receiver) -> None:
    outbox, keys = outbox_of(store, time, receiver, give_up_after="1m"), AppKeys(store)
    receiver.fails()
    for _ in range(4):
        await add(outbox, store, 1)
        await outbox.deliver_due()
        time.pass_ms(5 * MINUTE)
    await store.run([("SET", OutboxKeys(store).lease("counter", "a").key, b'{"by":"another"}', "PX", MINUTE)])
    found = await keys_in(store)
    assert {key.split(":")[1] for key in found} == {"queue", "lease", "trouble", "given-up", "dead", "waiting"}
    await add(outbox, store, 2, name="b")
    assert await keys.atomically(keys.total("a").delete(), *outbox.drop("counter", "a"))
    left = await keys_in(store)
    assert {key.split(":")[1] for key in left} == {"queue", "waiting"}
    assert await OutboxKeys(store).waiting().lowest(10) == [(("counter", "b"), time.now_ms)]
    assert await keys.atomically(*outbox.drop("counter", "b"))
    assert await keys_in(store) == set()


@everywhere
async def test_a_queue_that_is_dropped_while_it_is_sent_stays_gone(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox, keys = outbox_of(store, time, receiver), AppKeys(store)
    await add(outbox, store, 1, 2)
    for error in (None, ValueError()):
        receiver.may_answer.clear()
        receiver.raises = lambda message, error=error: error  # type: ignore[misc]
        turn = asyncio.create_task(outbox.deliver_due())
        await until(lambda: receiver.at_once == 1)
        assert await keys.atomically(*outbox.drop("counter", "a"))
        receiver.may_answer.set()
        await turn
        assert await keys_in(store) == set()
        await add(outbox, store, 3, 4)
    assert receiver.numbers() == [1]


@everywhere
async def test_a_state_shows_waiting_failing_and_given_up_messages(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    now = await outbox.state("counter", "a")
    assert (now.waiting, now.trouble, now.given_up) == (0, None, [])
    await add(outbox, store, 1, 2)
    receiver.fails()
    failed_ms = time.now_ms
    await outbox.deliver_due()
    now = await outbox.state("counter", "a")
    assert (now.waiting, now.given_up) == (2, [])
    assert now.trouble is not None
    assert (now.trouble.failures, now.trouble.since_ms, now.trouble.error) == (1, failed_ms, "ConnectionError")


@here
@pytest.mark.parametrize(
    ("topic", "name"), [("Counter", "a"), ("a/b", "a"), ("counter", "a/b"), ("counter", ""), ("counter", "a:b")]
)
async def test_a_queue_has_a_name_that_a_key_can_have(
    store: Store, time: Time, receiver: Receiver, topic: str, name: str
) -> None:
    outbox = outbox_of(store, time, receiver)
    with pytest.raises(BadKey):
        outbox.add(topic, name, {})
    with pytest.raises(BadKey):
        await outbox.announce(topic, name)
    with pytest.raises(BadKey):
        outbox.drop(topic, name)


@here
@pytest.mark.parametrize("payload", [{"n": {1, 2}}, {"n": object()}, {"n": "\ud800"}])
async def test_claims_that_are_not_json_are_refused(
    store: Store, time: Time, receiver: Receiver, payload: dict[str, Any]
) -> None:
    with pytest.raises(BadValue):
        outbox_of(store, time, receiver).add("counter", "a", payload)


@in_a_cluster
async def test_in_a_cluster_a_message_that_was_not_announced_is_refused(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    with pytest.raises(BadValue, match="announce"):
        outbox.add("counter", "a", {"n": 1})
    await outbox.announce("counter", "a")
    time.pass_ms(2 * MINUTE)
    with pytest.raises(BadValue, match="announce"):
        outbox.add("counter", "a", {"n": 1})
    await outbox.announce("counter", "a")
    assert await OutboxKeys(store).run(*outbox.add("counter", "a", {"n": 1}))


@in_a_cluster
async def test_in_a_cluster_a_look_between_the_announcement_and_the_message_loses_nothing(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox, other = outbox_of(store, time, Receiver()), outbox_of(store, time, receiver)
    await outbox.announce("counter", "a")
    operations = outbox.add("counter", "a", {"n": 1})
    assert await other.deliver_due() == DeliveryCounts()  # the queue is empty, and rests
    await store.run([operations[0].in_batch()[0]])  # and now it is not; the process dies before it can say so
    time.pass_ms(LINGERS)
    assert await other.deliver_due() == DeliveryCounts(delivered=1)
    assert receiver.numbers() == [1]


@in_a_cluster
async def test_in_a_cluster_a_mark_that_was_announced_again_is_not_taken_out(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)

    class Slow(Relay):
        """Announces a message after the poll of its queue, just before its mark is removed."""

        announced = False

        async def atomically(self, steps: Any) -> Any:
            if not self.announced:
                self.announced = True
                await outbox.announce("counter", "a")
            return await super().atomically(steps)

    await outbox.announce("counter", "a")
    await outbox.deliver_due()
    time.pass_ms(LINGERS)
    await outbox_of(Slow(store), time, receiver).deliver_due()
    await store.run([outbox.add("counter", "a", {"n": 1})[0].in_batch()[0]])
    time.pass_ms(LINGERS)
    await outbox.deliver_due()
    assert receiver.numbers() == [1]


@in_a_cluster
async def test_in_a_cluster_a_message_that_comes_just_after_an_empty_queue_was_closed_does_not_wait(
    store: Store, time: Time, receiver: Receiver
) -> None:
    class Slow(Relay):
        """Adds a message after the lease of the empty queue was released, before its mark is moved."""

        closed = added = False

        async def atomically(self, steps: Any) -> Any:
            if self.closed and not self.added:
                self.added = True
                await add(outbox_of(store, time, Receiver()), store, 2)
            self.closed = self.closed or any(isinstance(step, Absent) for step in steps)
            return await super().atomically(steps)

    await add(outbox_of(store, time, receiver), store, 1)
    relay = Slow(store)
    assert await outbox_of(relay, time, receiver).deliver_due() == DeliveryCounts(delivered=2)
    assert relay.added
    assert receiver.numbers() == [1, 2]


@everywhere
async def test_the_doctor_finds_nothing_wrong_while_messages_wait_fail_and_are_delivered(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    await add(outbox, store, 1, 2)
    for fails in (True, False):
        receiver.fails() if fails else receiver.works()
        receiver.may_answer.clear()
        turn = asyncio.create_task(outbox.deliver_due())
        await until(lambda: receiver.at_once == 1)
        assert (await examine([OutboxKeys(store), AppKeys(store)])).findings == 0
        receiver.may_answer.set()
        await turn
        assert (await examine([OutboxKeys(store), AppKeys(store)])).findings == 0
        time.pass_ms(MINUTE)
    assert receiver.numbers() == [1, 2]


def test_nothing_is_wrong_with_the_key_document_and_only_one_key_is_in_another_slot() -> None:
    assert check([OutboxKeys]) == []
    assert check([OutboxKeys], cluster=True) == []


def test_all_procedures_are_traceable_and_only_marks_are_in_another_slot() -> None:
    found = {name: traced(OutboxKeys, one) for name, one in OutboxKeys.procedures.items()}
    assert {name: one.problem for name, one in found.items() if one.problem} == {}
    assert {name for name, one in OutboxKeys.procedures.items() if one.ordered} == {
        name for name, one in found.items() if one.groups == 2
    }
    assert {name for name, one in found.items() if not one.one_slot} == {"claim", "give_back", "close", "take_mark_out"}


@here
async def test_a_store_without_atomic_steps_is_refused(store: Store, time: Time, receiver: Receiver) -> None:
    poor = Relay(store)
    poor.guarantees = Guarantees(atomic="one key")
    with pytest.raises(DoesNotFit, match="atomic step"):
        Outbox(OutboxKeys(poor), receiver)


@here
async def test_a_queue_whose_lease_another_holds_is_left_to_it_and_taken_over_when_that_is_over(
    store: Store, time: Time, receiver: Receiver
) -> None:
    outbox = outbox_of(store, time, receiver)
    keys = OutboxKeys(store, now_ms=time)
    await add(outbox, store, 1)
    await store.run([("SET", keys.lease("counter", "a").key, b'{"by":"another"}', "PX", 30 * SECOND)])
    assert await outbox.deliver_due() == DeliveryCounts()
    assert await outbox.deliver_due() == DeliveryCounts()
    await let_the_lease_run_out(store)
    time.pass_ms(31 * SECOND)
    assert await outbox.deliver_due() == DeliveryCounts(delivered=1)


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    wrongs: list[dict[str, Any]] = [
        {"lease": "500ms"},
        {"lease": "2d"},
        {"at_once": 0},
        {"most_waiting": True},
        {"first_retry": "2h"},
        {"look_every": "soon"},
    ]
    for wrong in wrongs:
        with pytest.raises(Exception, match=next(iter(wrong))):
            OutboxPolicy(**wrong)


@each_way
async def test_two_outboxes_of_one_store_deliver_only_their_own_topics(
    store: Store, time: Time, receiver: Receiver
) -> None:
    """Two kits of one server: neither may treat messages of the other as undeliverable."""
    other = Receiver()
    mine = Outbox(OutboxKeys(store, now_ms=time), receiver, topics=("counter",), policy=OutboxPolicy(at_once=3))
    theirs = Outbox(OutboxKeys(store, now_ms=time), other, topics=("slack",), policy=OutboxPolicy(at_once=3))
    for number in range(10):  # more than one look takes, and all before those of the first outbox
        await theirs.announce("slack", str(number))
        await AppKeys(store).atomically(*theirs.add("slack", str(number), {"n": number}))
    time.pass_ms(SECOND)
    await mine.announce("counter", "a")
    await AppKeys(store).atomically(*mine.add("counter", "a", {"n": 1}))
    assert await mine.deliver_due() == DeliveryCounts(delivered=1)
    assert await theirs.deliver_due() == DeliveryCounts(delivered=10)
    assert ([one.topic for one in receiver.got], {one.topic for one in other.got}) == (["counter"], {"slack"})

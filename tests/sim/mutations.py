"""Rules of the producer and the client broken on purpose, one at a time: does the simulator notice?

``python -m tests.sim.mutations [--sim-runs N]`` prints how many of N seeds catch each one. A rule that can be broken
without any seed noticing is a rule that the simulator does not test.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from kafka_sink.client.connection.client_request import InFlightRequests
from kafka_sink.client.metadata.metadata import Metadata
from kafka_sink.common.errors import ErrorCode
from kafka_sink.producer.batching.batch_drain import BatchDrain
from kafka_sink.producer.batching.partition_queues import IncompleteBatches, PartitionQueue
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.sending.in_flight_batches import InFlightBatches
from kafka_sink.producer.transactions.idempotence import IdempotenceManager
from kafka_sink.records.layout import NO_SEQUENCE
from tests.sim.network import SimNetwork
from tests.sim.plan import Plan, make_plan
from tests.sim.simulation import Simulation
from tests.sim.world import ViolationError


@dataclass(frozen=True, slots=True)
class Mutation:
    """A broken rule: *broken* replaces a method of *owner*, and gets the original as its first argument."""

    name: str
    owner: type
    method: str
    broken: Callable[..., Any]
    #: A seed that noticed it when this was written, which is tried first.
    likely_seed: int = 0
    #: Restricts the plans to those in which the rule matters; without it, the table counts all plans.
    focus: Callable[[Plan], None] = lambda plan: None
    #: Rules to break together with it, if each alone has no effect.
    also: tuple[Mutation, ...] = ()

    def run(self, seed: int) -> None:
        """:raises ViolationError: if the run notices the mutation."""
        plan = make_plan(seed)
        self.focus(plan)
        Simulation(seed, plan=plan).run()

    @contextmanager
    def applied(self) -> Iterator[None]:
        true = getattr(self.owner, self.method)
        broken = self.broken

        def method(*args: Any, **options: Any) -> Any:
            return broken(true, *args, **options)

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(self.owner, self.method, method))
            for other in self.also:
                stack.enter_context(other.applied())
            yield


def _new_sequence_for_a_retry(true: Any, self: IdempotenceManager, batch: ProducerBatch) -> None:
    if batch.has_sequence:
        self._state(batch.topic_partition).in_flight.pop(batch)
        batch.base_sequence = NO_SEQUENCE
    true(self, batch)


def _sequence_given_twice(true: Any, self: IdempotenceManager, batch: ProducerBatch) -> None:
    state = self._state(batch.topic_partition)
    before = state.next_sequence
    true(self, batch)
    if batch.record_count > 2:
        state.next_sequence = before


def _free_early(true: Any, self: IncompleteBatches, batch: ProducerBatch) -> None:
    sends, batch.unanswered_sends = batch.unanswered_sends, 0
    true(self, batch)
    batch.unanswered_sends = sends


def _free_when_sent(true: Any, self: InFlightBatches, drained: dict[int, list[ProducerBatch]]) -> None:
    true(self, drained)
    for batches in drained.values():
        for batch in batches:
            # The pool is private, as batches keep the memory that a request still refers to.
            self._incomplete._pool.deallocate(batch.memory)


def _to_the_front(true: Any, self: PartitionQueue, batch: ProducerBatch) -> None:
    self.batches.appendleft(batch)


def _to_the_back(true: Any, self: PartitionQueue, batch: ProducerBatch) -> None:
    self.batches.append(batch)


def _nothing(true: Any, *args: Any, **options: Any) -> None:
    """Omit the rule."""


def _not_asked_for(true: Any, self: Metadata) -> int:
    return self.update_version


def _finish_again(true: Any, self: ProducerBatch, *args: Any) -> bool:
    self.final_state = None
    true(self, *args)
    if self.record_count % 3 == 0:
        self.final_state = None
        true(self, *args)
    return True


def _lost_means_stored(true: Any, self: InFlightBatches, batch: ProducerBatch, answer: Any, now_ms: int) -> None:
    if answer.error_code == ErrorCode.NETWORK_EXCEPTION:
        answer = replace(answer, error_code=ErrorCode.NONE, base_offset=0)
    true(self, batch, answer, now_ms)


def _forget_unresolved(true: Any, self: IdempotenceManager, *args: Any) -> Any:
    self._unresolved.clear()
    return true(self, *args)


def _new_epoch_at_once(true: Any, self: IdempotenceManager, batch: ProducerBatch) -> None:
    true(self, batch)
    if batch.has_sequence:
        self.request_epoch_bump(batch.topic_partition)


def _first_is_like_any(true: Any, self: IdempotenceManager, first: ProducerBatch) -> bool:
    self._state(first.topic_partition).is_known_to_broker = True
    return bool(true(self, first))


def _any_number_behind(true: Any, self: IdempotenceManager, first: ProducerBatch) -> bool:
    self._state(first.topic_partition).numbered = 0
    return bool(true(self, first))


def _newest_first(true: Any, self: InFlightRequests, node_id: str) -> Any:
    return self.complete_last_sent(node_id)


def _no_limit(true: Any, self: InFlightRequests, node_id: str) -> bool:
    return True


def _free_when_taken(true: Any, self: SimNetwork, connection_id: str) -> bool:
    """As if the frame knew: the client's view before it asked the network."""
    link = self._links.get(connection_id)
    return link is not None and link.reported and (link.outgoing is None or link.outgoing.completed)


def _keep_waiting(true: Any, self: InFlightRequests, now_ms: int) -> list[Any]:
    return []


def _one_in_flight_and_moving_leaders(plan: Plan) -> None:
    _slow_and_patient(plan)
    plan.properties.update({"enable.idempotence": False, "max.in.flight.requests.per.connection": 1})
    plan.faults.zombies = False
    plan.faults.move_leaders_every_ms = 20


def _many_in_flight_and_errors(plan: Plan) -> None:
    _slow_and_patient(plan)
    plan.properties.update({"enable.idempotence": True, "max.in.flight.requests.per.connection": 5})
    plan.faults.refused_before, plan.faults.failed_after = 0.3, 0.15


def _slow_and_patient(plan: Plan) -> None:
    plan.properties.update({"acks": "all", "request.timeout.ms": 1000, "delivery.timeout.ms": 9000, "batch.size": 150})
    plan.properties["buffer.memory"] = 15_000
    plan.properties.pop("retries", None)
    plan.faults.slow_share, plan.faults.slow_ms = 0.3, 150


MUTATIONS = (
    Mutation("a retry gets a new sequence", IdempotenceManager, "assign_sequence", _new_sequence_for_a_retry, 4),
    Mutation("a sequence is given twice", IdempotenceManager, "assign_sequence", _sequence_given_twice, 2),
    Mutation("a buffer is freed while its request is unanswered", IncompleteBatches, "deallocate", _free_early, 319),
    Mutation("a buffer is freed as soon as it is handed over", InFlightBatches, "track", _free_when_sent, 1),
    Mutation("retries go to the front, whatever their order", PartitionQueue, "put_back", _to_the_front, 69),
    Mutation("retries go behind what is new", PartitionQueue, "put_back", _to_the_back, 1),
    Mutation("no mute with one request in flight", BatchDrain, "mute", _nothing, 12, _one_in_flight_and_moving_leaders),
    Mutation("a batch is completed twice", ProducerBatch, "_finish", _finish_again),
    Mutation("a lost connection counts as stored", InFlightBatches, "complete", _lost_means_stored, 1),
    Mutation("unresolved sequences are ignored", IdempotenceManager, "resolve_sequences", _forget_unresolved, 127),
    Mutation("no new epoch after a gap", IdempotenceManager, "request_epoch_bump", _nothing, 29),
    Mutation("a new epoch while batches may be stored", IdempotenceManager, "failed", _new_epoch_at_once, 236),
    Mutation("the first batch may be overtaken", IdempotenceManager, "must_wait", _first_is_like_any, 65),
    Mutation(
        "any number of batches behind one in doubt",
        IdempotenceManager,
        "must_wait",
        _any_number_behind,
        237,
        _many_in_flight_and_errors,
    ),
    Mutation("answers belong to the newest request", InFlightRequests, "complete_next", _newest_first, 10),
    Mutation("no limit on requests in flight", InFlightRequests, "can_send_more", _no_limit, 4),
    Mutation("a frame that the transport has taken counts as sent", SimNetwork, "can_send", _free_when_taken, 8),
    Mutation("requests never time out", InFlightRequests, "nodes_with_timed_out_requests", _keep_waiting, 17),
    Mutation("nothing expires", InFlightBatches, "expire", _nothing, 1),
    Mutation("metadata is not refreshed on errors", Metadata, "request_update", _not_asked_for, 989),
)


def catches(mutation: Mutation, seed: int) -> str | None:
    """Return the violation that run *seed* finds with *mutation*; None if it does not notice the mutation."""
    with mutation.applied():
        try:
            mutation.run(seed)
        except ViolationError as error:
            return str(error)
    return None


def first_catch(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """Return the first of *seeds* that notices *mutation*, and the violation that it finds."""
    for seed in seeds:
        said = catches(mutation, seed)
        if said is not None:
            return seed, said
    return None


def main() -> None:
    # Imported here, since that module imports this one.
    from tests.sim.transaction_mutations import TRANSACTION_MUTATIONS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sim-runs", type=int, default=100)
    parser.add_argument("--only", default="", help="part of a name")
    args = parser.parse_args()
    runs = args.sim_runs
    print(f"| broken rule | caught by, of {runs} seeds | first seed | what it says |\n| --- | --- | --- | --- |")
    for mutation in (*MUTATIONS, *TRANSACTION_MUTATIONS):
        if args.only not in mutation.name:
            continue
        caught = [(seed, said) for seed in range(runs) if (said := catches(mutation, seed)) is not None]
        first, said = caught[0] if caught else ("-", "")
        print(
            f"| {mutation.name} | {len(caught)} | {first} | {said.splitlines()[0][:110] if said else ''} |", flush=True
        )


if __name__ == "__main__":
    main()

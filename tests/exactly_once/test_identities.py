"""The ids and epochs that a sink uses over many batches, and clusters whose transaction version changes.

KAFKALITE_ID_BATCHES sets the number of batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.coordinator.store import CoordinatorStore, TransactionStore
from kafka_sink.common.model import LAST_PRODUCER_EPOCH, TransactionVersion
from kafka_sink.exactly_once.model import Plan, Progress
from kafka_sink.exactly_once.transactions import driver_id, sink_id
from kafka_sink.exactly_once.writing import FEWEST_IDS
from tests.conftest import Figure
from tests.exactly_once.world import PARTITIONS, QUERY, World
from tests.support import amounts
from tests.support.readback import read_values
from tests.support.waiting import until

BATCHES = amounts.ID_BATCHES
TASKS = 2


@pytest.fixture(scope="module", params=[2, 1], ids=["version 2", "version 1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=1, config=replace(BrokerConfig(), transaction_version=request.param)) as running:
        yield running


@pytest.mark.behaviour("Exactly once: ids and versions", "Brokers keep no more ids after more batches")
@pytest.mark.behaviour("Faults: exactly once", "Brokers keep the same few ids after a thousand batches")
@pytest.mark.timeout(200 + 2 * BATCHES)
@pytest.mark.parametrize(("protocol", "most_ids"), [("parallel", 1 + max(2 * TASKS, FEWEST_IDS)), ("atomic", 1)])
def test_brokers_keep_no_more_ids_after_many_batches(
    cluster: EmbeddedCluster, world: World, protocol: str, most_ids: int, figure: Figure
) -> None:
    seen: set[tuple[str, int]] = set()
    for version in range(BATCHES):
        world.write_batch(protocol, version, b"%d-a" % version, b"%d-b" % version)
        seen |= {(name, each.transaction.producer_id) for name, each in world.ids_known().items()}
    figure(
        protocol, f"{BATCHES} batches of {TASKS} tasks: {len({name for name, _ in seen})} ids, {len(seen)} with pids"
    )
    assert len(seen) <= most_ids
    assert len(set(world.committed())) == len(world.committed()) == 2 * BATCHES


@pytest.mark.behaviour(
    "Exactly once: ids and versions", "The last epoch of an id is passed by drivers, and by ids that are used again"
)
@pytest.mark.behaviour("Faults: exactly once", "Every row is there once when an id passes its last epoch")
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
@pytest.mark.parametrize("transaction_version", TransactionVersion)
@pytest.mark.parametrize("epochs_left", [2, 5])
def test_drivers_and_reused_ids_pass_the_last_epoch(
    tmp_path: Path, protocol: str, transaction_version: TransactionVersion, epochs_left: int
) -> None:
    config = replace(BrokerConfig(), transaction_version=transaction_version)
    with EmbeddedCluster(nodes=1, config=config, data_dir=tmp_path) as cluster:
        cluster.create_topic("rows", partitions=PARTITIONS)
        young = World(cluster.bootstrap_servers, "rows")
        for version in range(3):
            young.write_batch(protocol, version, b"%d-a" % version, b"%d-b" % version)
        until("the end of all transactions", lambda: all(each.is_over for each in young.ids_known().values()))
        before = {name: each.transaction.producer_id for name, each in young.ids_known().items()}
        young.client.close()
    _age_ids(tmp_path, set(before), epochs_left)
    with EmbeddedCluster(nodes=1, config=config, data_dir=tmp_path) as cluster:
        world = World(cluster.bootstrap_servers, "rows")
        world.ids = young.ids
        drivers, decide = [], world.steps.end_decision

        def end_decision(plan: Plan, progress: Progress) -> None:
            drivers.append(plan.driver)
            decide(plan, progress)

        world.steps.end_decision = end_decision  # type: ignore[method-assign]
        for version in range(3, 13):
            world.write_batch(protocol, version, b"%d-a" % version, b"%d-b" % version)
        after = {name: each.transaction for name, each in world.ids_known().items()}
        rows = world.committed()
        world.client.close()
    crossed = [name for name, producer_id in before.items() if after[name].producer_id != producer_id]
    assert drivers and not any(each.is_reserved for each in drivers)
    # Tasks abandon their ids, whose epochs are not those after their last transactions.
    assert crossed == [driver_id(sink_id("rows", "rows"))]
    assert all(after[name].epoch < 100 for name in after if name not in before or name in crossed)
    expected = [b"%d-%s" % (version, half) for version in range(13) for half in (b"a", b"b")]
    assert sorted(map(bytes, rows)) == sorted(expected)  # type: ignore[arg-type]


def _age_ids(directory: Path, names: set[str], epochs_left: int) -> None:
    """Set the epochs of the ids *names* in the file of a stopped cluster, so that *epochs_left* remain."""
    file = CoordinatorStore(directory, flush_writes=False)
    store = TransactionStore(file)
    found = store.load()
    assert {each.transactional_id for each in found} == names
    for each in found:
        store.save(replace(each, producer_epoch=LAST_PRODUCER_EPOCH - epochs_left))
    file.close()


@pytest.mark.behaviour("Exactly once: ids and versions", "A batch goes on in the transaction version in which it began")
@pytest.mark.behaviour("Faults: exactly once", "Every row is there once when the cluster's transaction version changes")
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)], ids=["upgrade", "downgrade"])
@pytest.mark.parametrize("is_decided", [True, False], ids=["decided", "open"])
def test_batch_keeps_its_version_when_cluster_version_changes(
    tmp_path: Path, before: int, after: int, is_decided: bool
) -> None:
    config = replace(BrokerConfig(), transaction_version=before)
    with EmbeddedCluster(nodes=1, config=config, data_dir=tmp_path) as cluster:
        cluster.create_topic("rows", partitions=PARTITIONS)
        old = World(cluster.bootstrap_servers, "rows")
        old.write_batch("parallel", 0, b"0-a", b"0-b")
        plan = old.parallel.plan()
        assert plan.transaction_version == before
        written = [old.write_task(plan, 1, b"1-a"), old.write_task(plan, 1, b"1-b")]
        if is_decided:
            transactions = tuple(sorted(each.transaction for each in written))
            old.steps.decide(plan, Progress(2, QUERY, plan.transaction_version, 0, transactions))
        old.client.close()
    with EmbeddedCluster(nodes=1, config=replace(config, transaction_version=after), data_dir=tmp_path) as cluster:
        new = World(cluster.bootstrap_servers, "rows")
        if not is_decided:
            # The driver that has planned the batch still runs.
            new.parallel.commit(plan, 1, QUERY, written)
        assert new.client.transaction_version() == TransactionVersion(after)
        for version in (1, 2, 3):
            new.write_batch("atomic" if version == 3 else "parallel", version, b"%d-a" % version, b"%d-b" % version)
        new.client.close()
        found = sorted(read_values(cluster.bootstrap_servers, "rows"))
    assert found == sorted(b"%d-%s" % (version, half) for version in range(4) for half in (b"a", b"b"))

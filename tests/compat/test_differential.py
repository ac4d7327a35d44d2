"""A real Kafka and the embedded broker get the same bytes, in all APIs and versions that both serve, and answer alike.

Each difference is listed here with its reason; a difference that no longer exists must be removed from the list.
``docs/internals/differences.md`` describes them for users.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from kafka_sink import EmbeddedCluster
from tests.compat.kafka_version import requires_kafka
from tests.conftest import Figure
from tests.support.amounts import LONG
from tests.support.differential import Broker, Table, differences, name_of
from tests.support.differential_scenarios import SCENARIOS, TOPICS
from tests.support.real_kafka import RealKafka

modelled_on = requires_kafka("4.3", "the APIs and answers that the embedded broker is modelled on")


@dataclass(frozen=True)
class Known:
    """An intentional difference: the request (``API: label``) and the place in the answer, both as patterns."""

    asked: str
    where: str
    reason: str


_ONE_OF_SEVERAL: Final = "of several faults in one request, another is looked for first"
_TIME_IS_UP: Final = "Kafka refuses what should have been done before it was asked for; here it takes no time"
_NOT_SHOWN: Final = (
    "a request that makes Kafka fail with UNKNOWN_SERVER_ERROR gets its answer, or the error that it names"
)
KNOWN: Final = (
    Known("Produce: a topic without partitions|Fetch: a topic without partitions", r"\.responses", "echoed, empty"),
    Known(
        "Produce: half a batch", r".*error_code", "half a batch is damaged; Kafka sees no batch and calls it invalid"
    ),
    Known("Fetch: an epoch of no record", ".*", "only followers say what they have; here is none"),
    Known("(Fetch|ListOffsets): an isolation of 2", ".*", _NOT_SHOWN),
    Known("Fetch: a partition twice", ".*", "answered twice"),
    Known("Metadata: (by no id|an id where only names are taken)", ".*", _NOT_SHOWN),
    Known("Metadata: full", ".*", _NOT_SHOWN),
    Known(
        "Metadata: by id and by name", r"\.topics", "Kafka overlooks the names where one topic is asked for by its id"
    ),
    Known(
        "CreateTopics: .*", r"\.topics\[.*\]\.configs", "only what was set is shown; DescribeConfigs shows the others"
    ),
    Known(
        "FindCoordinator: a group twice", r"\.coordinators", "answered once, so that no answer grows with repetition"
    ),
    Known("Fetch: .*", r"\.session_id", "there are no fetch sessions"),
    Known("DescribeConfigs: a topic twice", r"\.results", "answered once, so that no answer grows with repetition"),
    Known("DescribeConfigs: .*", ".*config_type", "INT and LONG are one kind of number"),
    Known(
        "DescribeConfigs: .*",
        r".*(config_source|synonyms|configs)",
        "Kafka keeps min.insync.replicas as a dynamic setting",
    ),
    Known("IncrementalAlterConfigs: an unknown operation", ".*", _NOT_SHOWN),
    Known("IncrementalAlterConfigs: a topic without a name", ".*", "a bad name is INVALID_TOPIC_EXCEPTION everywhere"),
    Known("ElectLeaders: (a kind of 9|full)", ".*", "said once, not for each partition"),
    Known("ApiVersions: .*", r"\.(api_keys|.*features.*)", "compared by test_only_the_known_apis_are_not_served"),
    Known("(Produce|ListOffsets|CreateTopics|AddPartitionsToTxn): full", ".*error_code", _ONE_OF_SEVERAL),
    Known("(Fetch|ListOffsets): sparse", ".*", _ONE_OF_SEVERAL),
    Known("(CreateTopics|CreatePartitions|ElectLeaders|AlterPartitionReassignments): sparse", ".*", _TIME_IS_UP),
    Known(
        "DescribeQuorum: the metadata",
        r".*(log_end_offset|high_watermark|leader_epoch|timestamp|listeners.*)",
        "the metadata is a file without offsets, and its controller has no listener of its own",
    ),
    Known(
        "AlterClientQuotas: (an address|a share of requests)( no more)?",
        ".*",
        "quotas that nothing enforces here are refused",
    ),
    Known("DescribeTopicPartitions: (the name ''|sparse)", ".*", _NOT_SHOWN),
    Known("WriteTxnMarkers: sparse", ".*", "a marker for no partition is answered"),
)

_TOKENS: Final = "there are no delegation tokens"
_SHARE: Final = "there are no share groups (KIP-932)"
_STREAMS: Final = "there is no protocol for Kafka Streams' groups (KIP-1071)"
_METRICS: Final = "clients are asked for no metrics (KIP-714)"
_STORES: Final = "the share coordinator's own"
#: API of Kafka 4.3.0 → why the embedded broker does not serve it.
NOT_SERVED: Final = {
    34: "a broker has one directory",
    38: _TOKENS,
    39: _TOKENS,
    40: _TOKENS,
    41: _TOKENS,
    57: "a feature has one level here, or is an option of the broker",
    64: "nodes of KRaft are not unregistered here",
    80: "there is no quorum of controllers",
    81: "there is no quorum of controllers",
    **dict.fromkeys((76, 77, 78, 79, 90, 91, 92), _SHARE),
    **dict.fromkeys((83, 84, 85, 86, 87), _STORES),
    **dict.fromkeys((88, 89), _STREAMS),
}


@pytest.fixture(scope="module")
def pair(real_kafka: RealKafka) -> Iterator[tuple[Broker, Broker]]:
    """Yield the embedded broker and Kafka."""
    with EmbeddedCluster() as cluster:
        brokers = Broker(cluster.bootstrap_servers), Broker(real_kafka.bootstrap_servers)
        yield brokers
        for broker in brokers:
            broker.close()


def shared(ours: Broker, theirs: Broker) -> dict[int, range]:
    return {
        key: range(max(versions.start, theirs.versions[key].start), min(versions.stop, theirs.versions[key].stop))
        for key, versions in ours.versions.items()
    }


@pytest.mark.behaviour(
    "Same answers as Apache Kafka", "Every field of every answer is Kafka's, for all APIs and versions that are served"
)
@pytest.mark.behaviour(
    "Same answers as Apache Kafka",
    "Valid, unknown, empty, null, doubled and out-of-range fields are answered as Kafka does",
)
@modelled_on
def test_the_same_bytes_get_the_same_answers(pair: tuple[Broker, Broker], figure: Figure) -> None:
    ours, theirs = pair
    # Both list Produce from version 0 in ApiVersions, but serve it from version 3.
    versions: Table = {**shared(ours, theirs), 0: range(3, ours.versions[0].stop)}
    if not LONG:
        # Every second version, and the newest.
        versions = {key: sorted({*each[::2], each[-1]}) for key, each in versions.items()}
    asked = 0
    for broker, other in zip(pair, (None, ours), strict=True):
        broker.create_topics(TOPICS)
        asked = sum(broker.play(scenario, asks, versions, other) for scenario, asks in SCENARIOS.items())

    assert list(ours.answers) == list(theirs.answers)
    unknown, used, differ = [], Counter[Known](), set()
    for name, answer in theirs.answers.items():
        _, api, label = name.split(": ", 2)
        for where, mine, other in differences(ours.answers[name], answer):
            question = f"{api.rsplit(' ', 1)[0]}: {label}"
            known = [each for each in KNOWN if re.fullmatch(each.asked, question) and re.match(each.where, where)]
            used.update(known[:1])
            differ.add(name)
            if not known:
                unknown.append(f"{name} {where}: {mine!r:.300}, Kafka says {other!r:.300}")
    assert not unknown, "\n".join(unknown)
    assert [each for each in KNOWN if each not in used] == []
    figure("APIs and versions", f"{len(versions)}, {sum(map(len, versions.values()))}")
    figure("requests", asked)
    figure("answers that differ, all in a way that is meant", len(differ))


@pytest.mark.behaviour("Same answers as Apache Kafka", "The APIs that are not served are known")
@modelled_on
def test_only_the_known_apis_are_not_served(pair: tuple[Broker, Broker], figure: Figure) -> None:
    ours, theirs = pair
    assert theirs.versions.keys() - ours.versions.keys() == NOT_SERVED.keys()
    assert {name_of(key): theirs.versions.get(key) for key, versions in ours.versions.items()} == {
        name_of(key): versions for key, versions in ours.versions.items()
    }
    figure("APIs of Kafka's that are not served", len(theirs.versions) - len(ours.versions))

"""What the topics of a write refuse, asked on the driver before its tasks begin.

The tasks check their rows against it, so that what a broker would refuse is a bad row like any other. Topics that a
column names are not known here. It never fails a write: whatever prevents an answer, such as missing permissions, a
driver that cannot reach the brokers, or files that only executors have, leaves the limits unknown, and the brokers'
answers to the tasks tell what is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.producer.topic_limits import TopicLimits

#: How long the driver waits for the brokers: a write does not need the answer.
_TIMEOUT_MS: Final = 3_000

#: Brokers that could not be asked are not asked again for so long.
_NO_ANSWER_MS: Final = 60_000

_log = logging.getLogger(__name__)

#: By bootstrap servers and topics: the limits, and when they were asked for.
_asked: Final[dict[tuple[str, frozenset[str]], tuple[Mapping[str, TopicLimits] | None, int]]] = {}


def limits_of(properties: Mapping[str, str], topics: Collection[str], *, valid_ms: int) -> Mapping[str, TopicLimits]:
    """The limits of those of *topics* whose settings the brokers show; an answer is used again for *valid_ms*.

    :param properties: a producer's properties under Kafka's names.
    """
    if not topics:
        return {}
    key = (properties["bootstrap.servers"], frozenset(topics))
    now_ms = SYSTEM_CLOCK.monotonic_ms()
    known, asked_ms = _asked.get(key, (None, -_NO_ANSWER_MS))
    if now_ms - asked_ms < (_NO_ANSWER_MS if known is None else valid_ms):
        return known or {}
    found: Mapping[str, TopicLimits] | None = None
    try:
        # Planners of writes that do not ask start without the client.
        from kafka_sink.spark.task.shared_client import shared_client

        client = shared_client(properties)
        settings = client.run(client.topic_settings(sorted(topics), _TIMEOUT_MS))
        found = {topic: TopicLimits.of(each) for topic, each in settings.items()}
    except Exception as error:
        _log.info("the settings of %s are not known before the write: %s", ", ".join(sorted(topics)), error)
    _asked[key] = found, now_ms
    return found or {}

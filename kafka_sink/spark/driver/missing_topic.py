"""Creates the topics of a write, if the options ask for it, before the tasks begin.

Called on the driver, in Spark's planner process or in the user's. Tasks never create a topic.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.spark.options import SinkOptions

#: A stream creates a writer for every micro-batch, and somebody may delete a topic between two of them.
_CHECKED_EVERY_MS: Final = 60_000

#: By bootstrap servers and topic, when the topic was last known to exist.
_present: Final[dict[tuple[str, str], int]] = {}


def ensure_topics_of(options: SinkOptions) -> None:
    """Create the topics of rows and dead letters that are missing, if the option topicPartitions is set.

    :raises ApiError: if it could not be created; the text says what to do.
    """
    if options.topic_partitions is None:
        return
    for topic in filter(None, (options.topic, options.dead_letter_topic)):
        key = (options.producer_properties["bootstrap.servers"], topic)
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if now_ms - _present.get(key, -_CHECKED_EVERY_MS) < _CHECKED_EVERY_MS:
            continue
        # Only writes that ask for it load the client.
        from kafka_sink.producer.topic_creation import ensure_topic

        ensure_topic(options.producer_properties, topic, options.topic_partitions, options.topic_replication_factor)
        _present[key] = now_ms

"""The limits of a topic's settings, as values: made on the driver, which does without numpy, and pickled to the tasks.

Source: apache/kafka ``TopicConfig`` and ``LogValidator``; KIP-937 (the limits of timestamps, from Kafka 3.6 on; before,
one setting was the limit in both directions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_sink.common.bounded import INT64_MAX, known_number

#: The settings that limits are made of.
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
CLEANUP_POLICY: Final = "cleanup.policy"
TIMESTAMP_TYPE: Final = "message.timestamp.type"
BEFORE_MAX_MS: Final = "message.timestamp.before.max.ms"
AFTER_MAX_MS: Final = "message.timestamp.after.max.ms"
_DIFFERENCE_MAX_MS: Final = "message.timestamp.difference.max.ms"


class TimeLimit(NamedTuple):
    """The largest difference, in ms, between a timestamp and the time of the write, and the *setting* of this limit."""

    setting: str
    most_ms: int


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits of one topic. None, or False: no limit, or an unknown one.

    *max_message_bytes* is the size of a batch after its compression. *before* and *after* are for timestamps in the
    past and in the future. *needs_key*: the topic is compacted.
    """

    max_message_bytes: int | None = None
    before: TimeLimit | None = None
    after: TimeLimit | None = None
    needs_key: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TopicLimits:
        """The limits that the *settings* of a topic set; a value that is no number sets none."""
        # With LogAppendTime brokers ignore the timestamps of the rows.
        is_stamped = settings.get(TIMESTAMP_TYPE) == "LogAppendTime"
        return cls(
            known_number(settings.get(MAX_MESSAGE_BYTES)),
            None if is_stamped else _time_limit(settings, BEFORE_MAX_MS),
            None if is_stamped else _time_limit(settings, AFTER_MAX_MS),
            "compact" in settings.get(CLEANUP_POLICY, ""),
        )


def _time_limit(settings: Mapping[str, str], name: str) -> TimeLimit | None:
    # In versions with both settings the older one applied if the newer one was not set.
    for setting in (name, _DIFFERENCE_MAX_MS):
        most_ms = known_number(settings.get(setting))
        # The largest value limits nothing.
        if most_ms is not None and most_ms != INT64_MAX:
            return TimeLimit(setting, most_ms)
    return None

"""Times of requests, under Kafka's metric names.

Each network thread has its own :class:`RequestMetrics` and is the only writer, so recording takes no lock;
:func:`request_figures` aggregates them on any thread. The cost per request must be minimal: timestamps are stored as
they are, and percentiles are computed only when metrics are read.

Source: apache/kafka ``RequestChannel.Metrics`` and ``RequestMetrics`` (``kafka.network:type=RequestMetrics``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_sink.broker.network.request_channel import Request
from kafka_sink.common.metrics import Metric, families
from kafka_sink.protocol.api_key import ApiKey

FAMILIES: Final = families(
    "RequestMetrics",
    {
        "RequestsPerSec": "Requests of the API: their number (Count), and per second over the last minute.",
        "RequestQueueTimeMs": "Time that a request waited for a handler. If it grows, the handlers are busy: see the "
        "local time of the APIs.",
        "LocalTimeMs": "Time that the handler took. For Produce it depends on the disk and on the validation of each "
        "batch.",
        "RemoteTimeMs": "Time that a request waited for something else: a fetch for records, up to fetch.max.wait.ms.",
        "ThrottleTimeMs": "Time that the client was held back, because it exceeds its quota.",
        "ResponseQueueTimeMs": "Time that an answer waited for the network thread.",
        "ResponseSendTimeMs": "Time to send an answer. If it grows, the client reads slowly.",
        "TotalTimeMs": "Time from the request's last byte to its answer's. If it grows, compare the other times.",
    },
)
#: Number of most recent requests, per API and network thread, from which times are computed.
_KEPT: Final = 512
_MINUTE_NS: Final = 60 * 10**9
_NS_PER_MS: Final = 1_000_000


class _Instants(NamedTuple):
    """The timestamps of one request, in ns of a monotonic clock."""

    received: int
    dequeued: int
    handled: int
    responded: int
    response_dequeued: int
    ended: int
    throttle_ms: int


@dataclass(slots=True)
class _Times:
    count: int = 0
    recent: deque[_Instants] = field(default_factory=lambda: deque(maxlen=_KEPT))


class RequestMetrics:
    """The requests of one network thread."""

    def __init__(self) -> None:
        self.by_api: dict[ApiKey, _Times] = {}

    def record(self, request: Request, ended_ns: int) -> None:
        """Record *request*, whose response was sent or dropped (called by the network thread)."""
        key = request.context.header.api_key
        times = self.by_api.get(key) or _Times()
        times.count += 1
        responded_ns = request.responded_ns
        # As in Kafka: if the handler answers before it has finished, the request has no remote time.
        handled_ns = request.handled_ns or responded_ns
        times.recent.append(
            _Instants(
                request.received_ns,
                request.dequeued_ns,
                handled_ns if handled_ns < responded_ns else responded_ns,
                responded_ns,
                request.response_dequeued_ns,
                ended_ns,
                request.throttle_ms,
            )
        )
        # The thread that reads the metrics finds no API without a request.
        self.by_api[key] = times


def request_figures(
    threads: Iterable[RequestMetrics], tags: tuple[tuple[str, str], ...], now_ns: int
) -> Iterator[Metric]:
    """The metrics of each API with requests; times in ms, of the most recent requests."""
    counts: dict[ApiKey, int] = {}
    recent: dict[ApiKey, list[_Instants]] = {}
    for thread in threads:
        for key, times in tuple(thread.by_api.items()):
            counts[key] = counts.get(key, 0) + times.count
            recent.setdefault(key, []).extend(times.recent.copy())
    for key in sorted(counts):
        named = (*tags, ("request", kafka_name(key)))
        requests = FAMILIES["RequestsPerSec"]
        yield requests.at(counts[key], *named, ("attribute", "Count"))
        yield requests.at(_rate(recent[key], now_ns), *named, ("attribute", "OneMinuteRate"))
        for name, values in _durations_ms(recent[key]):
            values.sort()
            for attribute, value in (
                ("Mean", sum(values) / len(values)),
                ("Max", values[-1]),
                ("50thPercentile", _percentile(values, 0.5)),
                ("99thPercentile", _percentile(values, 0.99)),
            ):
                yield FAMILIES[name].at(value, *named, ("attribute", attribute))


def kafka_name(key: ApiKey) -> str:
    """``FindCoordinator`` of ``FIND_COORDINATOR``."""
    return "".join(word.capitalize() for word in key.name.split("_"))


def _durations_ms(recent: list[_Instants]) -> Iterator[tuple[str, list[float]]]:
    yield "RequestQueueTimeMs", [(one.dequeued - one.received) / _NS_PER_MS for one in recent]
    yield "LocalTimeMs", [(one.handled - one.dequeued) / _NS_PER_MS for one in recent]
    yield "RemoteTimeMs", [(one.responded - one.handled) / _NS_PER_MS for one in recent]
    yield "ThrottleTimeMs", [float(one.throttle_ms) for one in recent]
    yield "ResponseQueueTimeMs", [(one.response_dequeued - one.responded) / _NS_PER_MS for one in recent]
    yield "ResponseSendTimeMs", [(one.ended - one.response_dequeued) / _NS_PER_MS for one in recent]
    yield "TotalTimeMs", [(one.ended - one.received) / _NS_PER_MS for one in recent]


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _rate(recent: list[_Instants], now_ns: int) -> float:
    """Requests per second over the last minute, or over the time span of the stored requests if that is shorter."""
    ended = [one.ended for one in recent if now_ns - one.ended < _MINUTE_NS]
    if not ended:
        return 0.0
    span_ns = now_ns - min(ended) if len(ended) >= _KEPT else _MINUTE_NS
    return len(ended) * 10**9 / max(span_ns, 1)

"""The phases in which requests spend their time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kafka_sink.broker.network.request_channel import Request, RequestContext, Response
from kafka_sink.broker.network.request_metrics import RequestMetrics, request_figures
from kafka_sink.common.metrics import IdleMeter
from kafka_sink.network.frames import NetworkReceive
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader

MS = 1_000_000
S = 1000 * MS


class Nobody:
    """A processor of requests that get no response."""

    def enqueue_response(self, response: Response) -> None:
        raise AssertionError(response)


def ended(key: ApiKey, *instants_ms: int, throttle_ms: int = 0) -> tuple[Request, int]:
    """Instants: received, dequeued, handled (0: not before the response), responded, response dequeued, ended."""
    receive = NetworkReceive("c", memoryview(b""))
    request = Request(Nobody(), RequestContext(RequestHeader(key, 0, 1, None), "c", "127.0.0.1", "L"), receive, 0)
    names = ("received_ns", "dequeued_ns", "handled_ns", "responded_ns", "response_dequeued_ns")
    for name, instant in zip(names, instants_ms, strict=False):
        setattr(request, name, instant * MS)
    request.throttle_ms = throttle_ms
    return request, instants_ms[-1] * MS


def figures(*threads: RequestMetrics, now_ns: int = 100 * S) -> dict[tuple[str, str, str], float]:
    found = {}
    for metric in request_figures(threads, (("node", "1"),), now_ns):
        tags = dict(metric.tags)
        assert metric.group == "RequestMetrics" and tags["node"] == "1"
        found[metric.name, tags["request"], tags["attribute"]] = metric.value
    return found


class ReadMeanwhile:
    """A request during whose recording another thread reads the figures."""

    def __init__(self, request: Request, thread: RequestMetrics) -> None:
        self._request = request
        self._thread = thread
        self.found: list[dict[tuple[str, str, str], float]] = []

    def __getattr__(self, name: str) -> Any:
        self.found.append(figures(self._thread))
        return getattr(self._request, name)


def test_an_api_has_figures_after_its_first_request() -> None:
    thread = RequestMetrics()
    request, ended_ns = ended(ApiKey.END_TXN, 1000, 1001, 1003, 1007, 1015, 1031)
    read = ReadMeanwhile(request, thread)
    thread.record(read, ended_ns)  # type: ignore[arg-type]
    assert read.found == [{}] * len(read.found) != []
    assert figures(thread)


@pytest.mark.behaviour("Request metrics", "Each part of a request's time has its metric, by API")
def test_each_part_of_a_requests_time_has_its_figure() -> None:
    thread = RequestMetrics()
    thread.record(*ended(ApiKey.FETCH, 1000, 1001, 1003, 1007, 1015, 1031, throttle_ms=5))
    found = figures(thread)
    assert {name: value for (name, _, attribute), value in found.items() if attribute == "Mean"} == {
        "RequestQueueTimeMs": 1,
        "LocalTimeMs": 2,
        "RemoteTimeMs": 4,
        "ThrottleTimeMs": 5,
        "ResponseQueueTimeMs": 8,
        "ResponseSendTimeMs": 16,
        "TotalTimeMs": 31,
    }
    assert found["RequestsPerSec", "Fetch", "Count"] == 1


def test_handler_answering_before_it_ends_has_no_remote_time() -> None:
    thread = RequestMetrics()
    thread.record(*ended(ApiKey.PRODUCE, 0, 1, 0, 3, 4, 5))
    thread.record(*ended(ApiKey.PRODUCE, 0, 1, 9, 3, 4, 5))
    found = figures(thread)
    assert found["LocalTimeMs", "Produce", "Max"] == 2
    assert found["RemoteTimeMs", "Produce", "Max"] == 0


def test_threads_are_added_up_and_apis_kept_apart() -> None:
    one, two = RequestMetrics(), RequestMetrics()
    for number in range(1, 101):
        (one if number % 2 else two).record(*ended(ApiKey.FIND_COORDINATOR, 0, 0, 0, 0, 0, number))
    one.record(*ended(ApiKey.PRODUCE, 0, 0, 0, 0, 0, 7))
    found = figures(one, two)
    total = {
        attribute: value
        for (name, key, attribute), value in found.items()
        if (name, key) == ("TotalTimeMs", "FindCoordinator")
    }
    assert total == {"Mean": 50.5, "Max": 100, "50thPercentile": 51, "99thPercentile": 100}
    assert found["RequestsPerSec", "FindCoordinator", "Count"] == 100
    assert found["RequestsPerSec", "Produce", "Count"] == 1


def test_times_cover_newest_requests_and_count_covers_all() -> None:
    thread = RequestMetrics()
    thread.record(*ended(ApiKey.PRODUCE, 0, 0, 0, 0, 0, 5000))
    for _ in range(512):
        thread.record(*ended(ApiKey.PRODUCE, 0, 0, 0, 0, 0, 1))
    found = figures(thread)
    assert found["TotalTimeMs", "Produce", "Max"] == 1
    assert found["RequestsPerSec", "Produce", "Count"] == 513


def test_the_rate_is_that_of_the_last_minute() -> None:
    thread = RequestMetrics()
    for second in range(100):
        thread.record(*ended(ApiKey.PRODUCE, 0, 0, 0, 0, 0, second * 1000))
    rate = figures(thread, now_ns=100 * S)["RequestsPerSec", "Produce", "OneMinuteRate"]
    assert math.isclose(rate, 1, rel_tol=0.05)
    assert figures(thread, now_ns=300 * S)["RequestsPerSec", "Produce", "OneMinuteRate"] == 0
    for number in range(1000):
        thread.record(*ended(ApiKey.PRODUCE, 0, 0, 0, 0, 0, 100_000 + number))
    assert math.isclose(
        figures(thread, now_ns=101 * S)["RequestsPerSec", "Produce", "OneMinuteRate"], 1000, rel_tol=0.05
    )


@pytest.mark.behaviour("Request metrics", "Idle time of the request handlers is measured")
def test_an_idle_thread_is_idle_and_a_busy_one_is_not() -> None:
    idle = IdleMeter(0)
    assert idle.share(0) == 1
    idle.begin_wait(1 * S)
    assert idle.share(4 * S) == 0.75
    idle.end_wait(4 * S)
    assert idle.share(8 * S) == 3 / 8
    # Waits that ended more than a window ago do not count any more.
    for second in range(8, 200):
        idle.begin_wait(second * S)
        idle.end_wait(second * S)
    assert idle.share(200 * S) == 0

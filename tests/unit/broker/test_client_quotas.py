"""How long a client is throttled."""

from __future__ import annotations

from kafka_sink.broker.client_quotas import ClientQuota


def test_within_the_rate_nobody_is_throttled() -> None:
    quota = ClientQuota(1000)
    assert [quota.record("c", 100, now_ms) for now_ms in range(0, 5000, 100)] == [0] * 50


def test_a_second_may_be_ahead_and_no_more() -> None:
    quota = ClientQuota(1000)
    assert quota.record("c", 1000, 0) == 0
    assert quota.record("c", 500, 0) == 500
    assert quota.record("other", 1000, 0) == 0
    assert quota.record("c", 0, 10_000) == 0


def test_throttling_is_bounded() -> None:
    assert ClientQuota(1).record("c", 10**9, 0) == 11_000


def test_without_a_quota_nothing_is_kept() -> None:
    quota = ClientQuota(2**63 - 1)
    assert quota.record("c", 10**9, 0) == 0
    assert quota._worked_off_ms == {}


def test_clients_that_owe_nothing_are_forgotten() -> None:
    quota = ClientQuota(1000)
    for number in range(10_000):
        quota.record(f"c{number}", 1, 0)
    quota.record("late", 1, 10_000)
    assert list(quota._worked_off_ms) == ["late"]

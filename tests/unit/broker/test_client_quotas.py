"""The throttle times of clients."""

from __future__ import annotations

import pytest

from kafka_sink.broker.network.quotas import CLIENT, NO_QUOTA, ClientQuota, RateQuota
from kafka_sink.common.model import QuotaEntity
from tests.support.living import living


def of(**parts: str | None) -> QuotaEntity:
    """A quota entity; ``client=None`` stands for every client without a quota of its own."""
    return frozenset((CLIENT if kind == "client" else kind, name) for kind, name in parts.items())


def everyone(bytes_per_s: int) -> ClientQuota:
    """A quota for every client id."""
    quota = ClientQuota()
    quota.follow({of(client=None): bytes_per_s})
    return quota


def test_within_the_rate_nobody_is_throttled() -> None:
    quota = everyone(1000)
    assert [quota.record("c", 90, now_ms) for now_ms in range(0, 50_000, 100)] == [0] * 500


@pytest.mark.behaviour("Throttling and quotas", "Rates are measured over Kafka's windows")
def test_burst_is_measured_over_all_windows_but_one() -> None:
    quota = everyone(1000)
    assert quota.most_bytes("c") == 10_000
    assert quota.record("c", 10_000, 0) == 0
    # 12,500 bytes in 10 s are 25 % above the quota: (1250 - 1000) / 1000 of 10 s.
    assert quota.record("c", 2_500, 0) == 2_500
    assert quota.record("other", 10_000, 0) == 0


def test_bytes_older_than_the_windows_do_not_count() -> None:
    quota = everyone(1000)
    assert quota.record("c", 30_000, 0) == 20_000
    assert quota.record("c", 100, 10_999) > 0
    assert quota.record("c", 100, 11_000) == 0


def test_unrecorded_bytes_do_not_count_against_the_quota() -> None:
    quota = everyone(1000)
    quota.record("c", 10_000, 0)
    assert quota.record("c", 5_000, 500) > 0
    quota.unrecord("c", 5_000)
    assert quota.record("c", 0, 500) == 0


def test_a_throttle_fits_into_the_answer() -> None:
    assert everyone(1).record("c", 10**12, 0) == 2**31 - 1


def test_without_a_quota_nothing_is_kept() -> None:
    before = living(RateQuota)
    quota = ClientQuota()
    assert quota.record("c", 10**9, 0) == 0
    assert quota.most_bytes("c") == NO_QUOTA
    assert living(RateQuota) == before


def test_idle_clients_are_removed_from_the_quota() -> None:
    before = living(RateQuota)
    quota = everyone(1000)
    for number in range(1_000):
        quota.record(f"c{number}", 1, 0)
    assert living(RateQuota) == before + 1_000
    quota.record("late", 1, 11_000)
    assert living(RateQuota) == before + 1


@pytest.mark.behaviour("Throttling and quotas", "A client that changes its id costs no more with each request")
def test_changing_client_ids_cost_the_same_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    is_idle = RateQuota.is_idle
    monkeypatch.setattr(RateQuota, "is_idle", lambda rate, now_ms: looks.append(now_ms) or is_idle(rate, now_ms))
    quota = everyone(1000)
    for number in range(11_000):
        quota.record(f"c{number}", 1, 0)
    assert len(looks) < 2 * 11_000


@pytest.mark.behaviour("Throttling and quotas", "Quotas change while clients move bytes")
def test_limits_change_while_clients_move_bytes() -> None:
    quota = ClientQuota()
    quota.follow({of(client="busy"): 1000})
    assert quota.record("busy", 20_000, 0) == 10_000
    assert quota.record("other", 20_000, 0) == 0
    # The measurement stays, and the limit changes.
    quota.follow({of(client="busy"): 4000})
    assert quota.record("busy", 0, 0) == 0
    quota.follow({of(client="busy"): 4000, of(client=None): 1000})
    assert quota.record("other", 20_000, 0) == 10_000
    quota.follow({of(client=None): 1000})
    assert quota.record("busy", 0, 0) == 10_000
    quota.follow({})
    assert quota.record("other", 10**9, 0) == 0


@pytest.mark.behaviour("Throttling and quotas", "The quota that is the most special takes precedence, as in Kafka")
def test_the_most_special_quota_takes_precedence() -> None:
    """KIP-55: in order from the least specific one; each added quota applies to user u with client c."""
    quota, limits = ClientQuota(), {}
    for number, entity in enumerate(
        [
            of(client=None),
            of(client="c"),
            of(user=None),
            of(user=None, client=None),
            of(user=None, client="c"),
            of(user="u"),
            of(user="u", client=None),
            of(user="u", client="c"),
        ],
        1,
    ):
        limits[entity] = number * 100
        quota.follow(dict(limits))
        assert quota.most_bytes("c", "u") == number * 1_000
        quota.follow(dict(reversed(limits.items())))
        assert quota.most_bytes("c", "u") == number * 1_000
    assert quota.most_bytes("other", "other") == 4_000


def test_clients_of_a_user_share_the_quota_of_the_user() -> None:
    quota = ClientQuota()
    quota.follow({of(user="u"): 1000})
    assert quota.record("one", 10_000, 0, user="u") == 0
    assert quota.record("two", 2_500, 0, user="u") == 2_500
    quota.unrecord("one", 2_500, user="u")
    assert quota.record("two", 0, 0, user="u") == 0
    assert quota.record("two", 10**9, 0, user="other") == 0

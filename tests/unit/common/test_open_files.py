"""The last file descriptors of the process are reserved for logs."""

from __future__ import annotations

import resource

import pytest

from kafka_sink.common.files import is_reserved, is_reserved_for_local, most_local_connections, most_log_files


@pytest.mark.parametrize(
    ("limit", "logs", "local", "first_reserved", "first_for_local"),
    [
        (256, 128, 16, 224, 192),
        (1024, 512, 64, 896, 768),
        (64, 32, 8, 48, 40),
        (resource.RLIM_INFINITY, 1 << 15, 64, 1 << 30, 1 << 30),
    ],
)
def test_descriptors_are_shared(
    limit: int, logs: int, local: int, first_reserved: int, first_for_local: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert (most_log_files(), most_local_connections()) == (logs, local)
    has_limit = limit != resource.RLIM_INFINITY
    for reserved, first in ((is_reserved, first_reserved), (is_reserved_for_local, first_for_local)):
        assert (reserved(first - 1), reserved(first)) == (False, has_limit)

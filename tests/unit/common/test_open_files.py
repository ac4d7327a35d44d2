"""The last files that the process may open are for logs."""

from __future__ import annotations

import resource

import pytest

from kafka_sink.common.open_files import is_reserved, most_local_connections, most_log_files


@pytest.mark.parametrize(
    ("limit", "logs", "local", "first_reserved"),
    [(256, 128, 16, 224), (1024, 512, 64, 896), (64, 32, 8, 48), (resource.RLIM_INFINITY, 1 << 15, 64, None)],
)
def test_descriptors_are_shared(
    limit: int, logs: int, local: int, first_reserved: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert (most_log_files(), most_local_connections()) == (logs, local)
    if first_reserved is None:
        assert not is_reserved(1 << 30)
    else:
        assert (is_reserved(first_reserved - 1), is_reserved(first_reserved)) == (False, True)

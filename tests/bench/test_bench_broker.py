"""The comparison of brokers still runs on the embedded broker; its measurements are not checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import resources
from tests.bench.bench_broker import WORKS, Work, embedded, measure
from tests.conftest import Figure


@pytest.mark.parametrize("work", [work for work in WORKS if "Java" not in work.name], ids=lambda work: work.name)
def test_every_record_is_stored_and_read(work: Work) -> None:
    with embedded() as (bootstrap_servers, pid):
        found = measure(work, bootstrap_servers, pid, 10_000)
    assert found["records_per_s"] > 0


@pytest.mark.behaviour("EmbeddedCluster", "An idle node is small")
def test_an_idle_node_is_small(figure: Figure) -> None:
    with embedded() as (_, pid):
        idle_mib = resources.resident_bytes(pid) / 2**20
        loaded = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    figure("memory of an idle node", f"{idle_mib:.0f} MiB")
    assert idle_mib < 80
    assert [name for name in ("numpy", "pyarrow") if f"/{name}/" in loaded] == [], "a broker needs no columns"

"""Tables show names as they are, and words that brokers do not know are refused."""

from __future__ import annotations

import pytest

from kafka_sink.cli import output
from kafka_sink.cli.main import run


def test_a_name_with_colons_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["group", "host"], [["shop:key:orders", "/2001:db8:100:1::5"]])
    assert capsys.readouterr().out.splitlines()[3].split() == ["shop:key:orders", "/2001:db8:100:1::5"]


def test_a_state_that_brokers_do_not_know_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["txn", "list", "--state", "open", "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert "ongoing" in capsys.readouterr().err.lower()
    # In any case of letters it is the state, and the cluster is asked.
    assert run(["txn", "list", "--state", "ongoing", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"]) == 1

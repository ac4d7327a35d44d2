"""``kafkalite check`` of a registry whose address is wrong says so, and shows nothing of the password."""

from __future__ import annotations

import pytest

from kafka_sink.cli.main import run


@pytest.mark.parametrize("password", ["hunter,2", "hunter/2", "hunter[2", "hun@ter,2"])
def test_check_says_what_is_wrong_with_an_address(password: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "t", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"]
    assert run([*words, "--registry", f"http://user:{password}@127.0.0.1:1"]) == 1
    printed = capsys.readouterr()
    assert "schema registry" in printed.out and "unexpected" not in printed.err
    assert not any(part in printed.out + printed.err for part in ("hunter", "hun@", "ter,", "user:"))

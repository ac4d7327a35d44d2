"""The completion scripts for shells, and the command's responses to them."""

from __future__ import annotations

import pytest

from kafka_sink.cli import main as command_line
from kafka_sink.cli.commands.completion import SHELLS


def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return the completions of the last of *words* for fish, without help texts."""
    monkeypatch.setenv("_KAFKALITE_COMPLETE", "fish_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["kafkalite", *words]))
    monkeypatch.setenv("COMP_CWORD", words[-1])
    with pytest.raises(SystemExit) as end:
        command_line.run([])
    assert end.value.code == 0
    items = [line for line in capsys.readouterr().out.splitlines() if line.startswith("plain,")]
    return [item.removeprefix("plain,").split("\t")[0] for item in items]


@pytest.mark.parametrize("shell", SHELLS)
def test_script_of_every_shell_asks_kafkalite(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["completion", shell]) == 0
    assert f"_KAFKALITE_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_an_unknown_shell_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["completion", "csh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_commands_and_options_are_completed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(monkeypatch, capsys, "to") == ["topics"]
    assert complete(monkeypatch, capsys, "topics", "de") == ["delete", "describe"]
    assert "--bootstrap-server" in complete(monkeypatch, capsys, "topics", "list", "--")


def test_a_line_that_is_wrong_already_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A completion that fails would print into the command line of the shell."""
    complete(monkeypatch, capsys, "topcs", "--")
    assert capsys.readouterr().err == ""

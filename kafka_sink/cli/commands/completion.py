"""``kafkalite completion``: prints the script with which a shell completes commands and options of ``kafkalite``.

Runs on the main thread. The script calls ``kafkalite`` again with click's variable ``_KAFKALITE_COMPLETE``, which
``main`` answers before any command runs.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    bash  eval "$(kafkalite completion bash)" in ~/.bashrc (bash 4.4 or later)
    zsh   eval "$(kafkalite completion zsh)" in ~/.zshrc, after compinit
    fish  kafkalite completion fish > ~/.config/fish/completions/kafkalite.fish
    """
    root = click.get_current_context().find_root()
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click supports all of SHELLS"
    click.echo(completion_class(root.command, {}, "kafkalite", "_KAFKALITE_COMPLETE").source())

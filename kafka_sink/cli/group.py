"""A command that only has subcommands, such as ``kafkalite`` itself and ``kafkalite topics``.

Used by click on the main thread while it parses the command line. It never runs a command itself.
"""

from __future__ import annotations

import click


class CommandGroup(click.Group):
    """Without a subcommand it shows its help as a usage error: on stderr, with exit code 2, in every version of
    click."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(click.UsageError.exit_code)
        return super().parse_args(ctx, args)

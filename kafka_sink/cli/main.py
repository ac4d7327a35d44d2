"""The entry point of the ``kafkalite`` command: finds the subcommand and converts its outcome to an exit code.

Called once, on the main thread of a separate process. Commands are imported on demand, so ``kafkalite broker`` does not
wait for the producer's imports. It never shows a traceback without ``--debug``.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from kafka_sink.cli import output
from kafka_sink.common.config import nearest
from kafka_sink.common.log_context import Said, once
from kafka_sink.common.text import words

COMMANDS: Final = words("broker topics groups txn produce consume verify check report ui files completion")
#: A command of earlier versions → its replacement.
_GONE: Final = {
    "acls": "Command 'acls' is gone: use kafka-acls, whose commands for a job are printed by 'kafkalite check TOPIC "
    "--print-acls User:NAME'."
}


class LazyGroup(output.CommandGroup):
    """A group whose command *name* is the attribute *name* of the module ``kafka_sink.cli.commands.<name>``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None  # A shell completes the line, which may still be wrong.
            ctx.fail(_GONE.get(cmd_name) or f"No such command {cmd_name!r}{nearest(cmd_name, COMMANDS)}.")
        command = getattr(importlib.import_module(f"kafka_sink.cli.commands.{cmd_name}"), cmd_name)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            output.discard_rest(sys.stdout)
            return 0
        return result


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafkalite", prog_name="kafkalite")
@click.option("--debug", is_flag=True, help="Log everything to stderr and show tracebacks.")
def cli(debug: bool) -> None:
    """Run a Kafka broker for development and tests, and inspect any Kafka cluster.

    Exit codes: 0 success, 1 failure, 2 usage error, 3 records that could not be decoded.
    """
    output.configure_logging(debug)


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line *arguments* (without the program's name) and return the exit code."""
    try:
        # A command has several clients, which would log the same warnings about properties.
        with once(Said()):
            code = cli.main(list(arguments), prog_name="kafkalite", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "kafkalite"
        output.error_line(f"{error.format_message()} See '{path} --help'.")
        return output.EXIT_USAGE
    except click.Abort:
        return output.EXIT_INTERRUPTED
    except Exception as error:
        if output.is_debug():
            traceback.print_exc()
        output.error_line(output.explain(error))
        return output.EXIT_USAGE if output.is_usage(error) else output.EXIT_FAILURE
    return code if isinstance(code, int) else 0

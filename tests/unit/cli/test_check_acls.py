"""``kafkalite check --print-acls``: the commands of kafka-acls for a job."""

from __future__ import annotations

import pytest

from kafka_sink.cli.main import run
from kafka_sink.cli.output import EXIT_USAGE
from tests.support.acl_commands import acls_of

WRITE, READ = "WRITE TOPIC orders LITERAL", "READ TOPIC orders LITERAL"
SINK = ("--exactly-once", "a sink")
OF_SINK = ["WRITE TRANSACTIONAL_ID a sink PREFIXED", "READ GROUP a sink LITERAL"]


@pytest.mark.behaviour(
    "ACLs", "'kafkalite check --print-acls' prints what allows a job what it needs, without a broker"
)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["orders"], [WRITE]),
        (["orders", "orders"], [WRITE]),
        (
            ["orders", "bad", "--topic-partitions", "4"],
            [f"{each} TOPIC {topic} LITERAL" for topic in ("orders", "bad") for each in ("WRITE", "CREATE")],
        ),
        (["orders", *SINK], [WRITE, READ, *OF_SINK]),
        (["orders", *SINK, "--progress-topic", "p"], [WRITE, "READ TOPIC p LITERAL", *OF_SINK]),
    ],
)
def test_the_commands_are_what_the_job_needs(
    options: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # No server listens on this address.
    server = ("--bootstrap-server", "127.0.0.1:1")
    assert run(["check", *options, "--print-acls", "User:job", *server]) == 0
    printed = capsys.readouterr().out
    acls = acls_of(printed)
    assert {acl.principal for acl in acls} == {"User:job"}
    assert all(line.startswith("kafka-acls --bootstrap-server 127.0.0.1:1 --add ") for line in printed.splitlines())
    assert [
        f"{acl.operation.name} {acl.resource_type.name} {acl.resource_name} {acl.pattern_type.name}" for acl in acls
    ] == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["orders", "--print-acls", "job"], "'job' is not TYPE:NAME"), (["--print-acls", "User:job"], "needs a TOPIC")],
)
def test_what_no_command_can_be_made_of(options: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *options]) == EXIT_USAGE
    assert problem in capsys.readouterr().err

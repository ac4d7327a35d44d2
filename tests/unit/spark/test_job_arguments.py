"""The parsing of the jobs' command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_arguments import job_parser, to_kafka

INPUT = ["--input", "in", "--topic", "t"]


def options(*arguments: str) -> dict[str, str]:
    return to_kafka(job_parser(None, is_stream=False).parse_args([*INPUT, *arguments]))


@pytest.mark.behaviour("Spark jobs", "Secrets of a file are not passed on to Spark, but references to them")
def test_secrets_of_the_file_travel_as_references(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=h:1\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=s3cr3t\n"
        "ssl.key.password=${env:KEY_PASSWORD}\nlinger.ms=7\n"
    )
    assert options("--command-config", str(file), "--option", "kafka.linger.ms=8") == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "a",
        "kafka.sasl.password": f"${{file:{file}:sasl.password}}",
        "kafka.ssl.key.password": "${env:KEY_PASSWORD}",
        "kafka.linger.ms": "8",
        "topic": "t",
    }
    assert options("--command-config", str(file), "--bootstrap-servers", "i:2")["kafka.bootstrap.servers"] == "i:2"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xe9", "cannot be read: it is not UTF-8 text"),
        (b"s3cr3t", "line 1: expected name=value"),
        (b"sasl.password=s3cr3t", "add --bootstrap-servers HOST:PORT, or bootstrap.servers to the file"),
    ],
)
def test_a_file_that_cannot_be_used_is_explained(
    content: bytes | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "p").write_bytes(content)
    with pytest.raises(SystemExit):
        options("--command-config", str(tmp_path / "p"))
    said = capsys.readouterr().err
    assert problem in said and "s3cr3t" not in said

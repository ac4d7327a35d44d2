"""References to secrets: their values, and the errors for references without one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.common import config
from kafka_sink.common.config import INT, STRING
from kafka_sink.common.errors import ConfigError, UnresolvedReferenceError
from kafka_sink.common.references import PROVIDERS, has_reference, referenced_files, resolve


@dataclass(frozen=True)
class Sample(config.ReferencesConfig):
    linger_ms: int = INT(5, "how long to wait", config.at_least(0))
    password: str = STRING("", "a secret", sensitive=True, at_connect=True)


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s.properties").write_text("pw = S3cr3t\\t1\na\\:b=S3cr3t2\nempty=\n", encoding="utf-8")
    (tmp_path / "pw").write_text("S3cr3t3\n")
    (tmp_path / "raw").write_text("S3cr3t4")
    (tmp_path / "of an editor").write_text("pw = S3cr3t6", encoding="utf-8-sig")
    (tmp_path / "latin").write_bytes(b"x=\xe9")
    monkeypatch.setenv("SAMPLE_PASSWORD", "S3cr3t5")
    monkeypatch.setenv("SAMPLE_REFERENCE", "${env:SAMPLE_PASSWORD}")
    return tmp_path


# Source of the expected values: apache/kafka's ConfigTransformer with the three providers, for the same text.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${env:SAMPLE_PASSWORD}", "S3cr3t5"),
        ("${file:DIR/s.properties:pw}", "S3cr3t\t1"),
        ("${file:DIR/s.properties:a:b}", "S3cr3t2"),
        ("${file:DIR/s.properties:empty}", ""),
        ("${dir:DIR:raw}", "S3cr3t4"),
        # Java's client keeps the byte order mark, and does not find the key.
        ("${file:DIR/of an editor:pw}", "S3cr3t6"),
        ("${dir:DIR:of an editor}", "pw = S3cr3t6"),
        ('u="a" p="${dir:DIR:raw}";', 'u="a" p="S3cr3t4";'),
        ("${dir:DIR:raw}${env:SAMPLE_PASSWORD}", "S3cr3t4S3cr3t5"),
        ("${env:SAMPLE_REFERENCE}", "${env:SAMPLE_PASSWORD}"),
        ("${vault:DIR:raw}", "${vault:DIR:raw}"),
        ("$env:SAMPLE_PASSWORD", "$env:SAMPLE_PASSWORD"),
        ("${SAMPLE_PASSWORD}", "${SAMPLE_PASSWORD}"),
        ("${env:SAMPLE_PASSWORD", "${env:SAMPLE_PASSWORD"),
    ],
)
def test_a_reference_stands_for_what_it_does_in_java(text: str, expected: str, secrets: Path) -> None:
    here = str(secrets)
    assert resolve("o", text.replace("DIR", here), PROVIDERS) == expected.replace("DIR", here)


def test_the_line_feed_at_a_files_end_is_not_in_the_secret(secrets: Path) -> None:
    assert resolve("o", f"${{dir:{secrets}:pw}}", PROVIDERS) == "S3cr3t3"
    (secrets / "pw").write_bytes(b"S3cr3t3\n\r\n")
    assert resolve("o", f"${{dir:{secrets}:pw}}", PROVIDERS) == "S3cr3t3\n"


@pytest.mark.behaviour(
    "Faults: security", "A reference that cannot be resolved is explained, and nothing read is shown"
)
@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("${env:SAMPLE_MISSING}", "the environment variable SAMPLE_MISSING is not set; set it for every process"),
        ("${env:}", "expected ${env:NAME}"),
        ("${env:DIR:SAMPLE_PASSWORD}", "expected ${env:NAME}"),
        ("${file:DIR/s.properties}", "expected ${file:/path/of/a.properties:key}"),
        ("${file:DIR/none:pw}", "DIR/none cannot be read: No such file or directory; put it on every machine"),
        ("${file:DIR:pw}", "DIR cannot be read: Is a directory"),
        ("${file:DIR/latin:x}", "DIR/latin is not a properties file of UTF-8: each line must be name=value"),
        ("${file:DIR/raw:pw}", "DIR/raw is not a properties file of UTF-8: each line must be name=value"),
        ("${file:DIR/s.properties:pq}", "DIR/s.properties has no key pq; add a line pq=…"),
        ("${dir:DIR:none}", "DIR/none cannot be read: No such file or directory"),
        ("${dir:DIR:../pw}", "expected ${dir:/path/of/a/directory:file}"),
        ("${dir:DIR:..}", "expected ${dir:/path/of/a/directory:file}"),
        ("${dir:DIR}", "expected ${dir:/path/of/a/directory:file}"),
    ],
)
def test_a_reference_to_nothing_is_explained(reference: str, problem: str, secrets: Path) -> None:
    reference = reference.replace("DIR", str(secrets))
    with pytest.raises(UnresolvedReferenceError) as caught:
        resolve("sasl.password", f"inline {reference}", PROVIDERS)
    said = str(caught.value)
    assert said.startswith(f"option sasl.password: {reference} cannot be resolved on ")
    assert problem.replace("DIR", str(secrets)) in said
    assert "S3cr3t" not in said and "inline" not in said
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_options_are_resolved_once_and_credentials_each_time(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_LINGER", "7")
    reference = f"${{dir:{secrets}:pw}}"
    parsed = config.parse(Sample, {"linger.ms": "${env:SAMPLE_LINGER}", "password": reference})
    assert (parsed.linger_ms, parsed.password) == (7, reference)
    assert config.resolved(parsed).password == "S3cr3t3"
    (secrets / "pw").write_text("new")
    assert config.resolved(parsed).password == "new"
    assert config.resolved(Sample(password="inline")).password == "inline"


def test_what_was_read_is_in_no_error(secrets: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(Sample, {"linger.ms": "${env:SAMPLE_PASSWORD}"}, prefix="kafka.")
    assert str(caught.value).startswith("option kafka.linger.ms: [hidden] is not a whole number")


def test_a_reference_to_an_empty_secret_is_refused(secrets: Path) -> None:
    (secrets / "pw").write_text(" \n")
    with pytest.raises(
        UnresolvedReferenceError, match=r"option kafka\.password: \$\{dir:.*:pw\} refers to an empty value"
    ):
        config.resolved(Sample(password=f"${{dir:{secrets}:pw}}"), "kafka.")


def test_providers_can_be_turned_off(secrets: Path, caplog: pytest.LogCaptureFixture) -> None:
    reference = "${env:SAMPLE_PASSWORD}"
    off = config.parse(Sample, {"password": reference, "config.providers": ""})
    assert config.resolved(off).password == reference
    files = config.parse(Sample, {"password": reference, "config.providers": "file"})
    assert config.resolved(files).password == reference
    with pytest.raises(ConfigError, match="expected any of env, file, dir, which are built in"):
        config.parse(Sample, {"config.providers": "file,vault"})


def test_a_reference_to_another_provider_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config.parse(Sample, {"password": "${vault:S3cr3t}"}, prefix="kafka.")
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "option kafka.password contains a reference to a provider that is not among env, file, dir; it is used as it is"
    )


def test_files_of_references_are_known() -> None:
    text = "${file:/a/b:c}${env:X}${dir:/d:e} ${file:x}"
    assert [str(path) for path in referenced_files(text)] == ["/a/b", "/d/e"]


@given(st.text(st.sampled_from("${}:envfildr/ab \n")))
def test_any_text_is_resolved_or_refused(text: str) -> None:
    try:
        changed = resolve("o", text, PROVIDERS)
    except UnresolvedReferenceError:
        return
    assert changed == text or has_reference(text, PROVIDERS)

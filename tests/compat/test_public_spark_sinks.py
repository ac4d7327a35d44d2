"""The options that public jobs set for Spark's own Kafka sink are set for kafkalite, too.

``public_spark_sinks.json`` has one set per line, with the names of servers, topics, files and secrets replaced. Spark's
own sink is the reference for the sets that it accepts. The page has the verdicts for each kind of set, and describes
how to change sets for which the two differ.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from kafka_sink.common.errors import ConfigError
from kafka_sink.spark.options import parse_options
from tests.support.amounts import only_long
from tests.support.certificates import Authority
from tests.support.mistakes import fits, recorded
from tests.support.spark_jars import connector_jars_at_hand

ROOT = Path(__file__).parents[2]
SETS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("public_spark_sinks.json").read_text(encoding="utf-8"))
PAGE = ROOT / "docs" / "from-spark.md"
ROW = re.compile(
    r"^\| (?P<kind>[^|]+) \| (?P<sets>\d+) \| (?P<spark>accepted|refused|logs in) \| (?P<ours>accepted|refused) \|",
    re.M,
)
PASSWORD = b"changeit"
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Return the files that sets name, such as ``{trust}``: PKCS12, as Java's keytool writes with any file name."""
    folder, authority = tmp_path_factory.mktemp("stores"), Authority()
    own = authority.issue("localhost")
    encryption = BestAvailableEncryption(PASSWORD)
    trusted = pkcs12.PKCS12Certificate(load_pem_x509_certificate(authority.pem.encode()), b"authority")
    contents = {
        "trust": pkcs12.serialize_java_truststore([trusted], encryption),
        "keys": pkcs12.serialize_key_and_certificates(b"own", own.key, own.chain[0], None, encryption),
        "pem": authority.pem.encode(),
        "key pem": own.pem().encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {f"{{{name}}}": str(folder / name) for name in contents}


def given(options: Mapping[str, str], files: Mapping[str, str]) -> dict[str, str]:
    return {name: files.get(value, value) for name, value in options.items()}


def ours(options: Mapping[str, str], *, is_stream: bool) -> str | None:
    """Return the sink's reason to refuse *options*; None if it accepts them."""
    try:
        parse_options(options, is_stream=is_stream)
    except ConfigError as error:
        return str(error)
    return None


def promised(column: str) -> dict[str, str]:
    """Return the verdict of each kind of set in *column* of the table on the page."""
    return {row["kind"]: row[column] for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))}


@pytest.mark.behaviour(
    "Sink options and commit messages",
    "What Spark's own sink takes is taken, or refused with what to write instead, as the page says",
)
def test_options_of_public_jobs_are_taken_as_the_page_says(files: Mapping[str, str]) -> None:
    assert len(SETS) >= 100
    assert f"{len(SETS)} sets of options" in PAGE.read_text(encoding="utf-8")
    kinds = [each["kind"] for each in SETS]
    assert promised("sets") == {kind: str(kinds.count(kind)) for kind in kinds}
    spark, here = promised("spark"), promised("ours")
    for each in SETS:
        refusal = ours(given(each["options"], files), is_stream=each["stream"])
        assert (refusal is None) == (here[each["kind"]] == "accepted"), (each, refusal)
        if refusal is not None and spark[each["kind"]] != "refused":
            assert re.search(r"did you mean|remove |set |use |expected |: kafka\.", refusal), refusal


@pytest.mark.behaviour("Spark's own Kafka connector", "Says of the same sets of options what the page says of it")
def test_sparks_own_sink_takes_what_the_page_says(files: Mapping[str, str]) -> None:
    sets = [given(each["options"], files) for each in SETS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_sink_check", connector_jars_at_hand()],
        input=json.dumps(sets),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    promises = promised("spark")
    for each, refusal in zip(SETS, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert verdict(refusal) == promises[each["kind"]], (each, refusal)


def verdict(refusal: str | None) -> str:
    """Return the page's word for it: a sink accepts its options before it logs in, which fails without a server."""
    if refusal is None:
        return "accepted"
    return "logs in" if "LoginException" in refusal and "No LoginModule found" not in refusal else "refused"


@only_long
@pytest.mark.behaviour("Documentation", "The errors of Spark's own sink have the lines that docs/from-spark.md says")
def test_errors_of_sparks_own_sink_are_as_long_as_recorded(tmp_path: Path) -> None:
    file = tmp_path / "lines.json"
    command = [sys.executable, "-m", "tests.support.mistakes", connector_jars_at_hand(), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    known = recorded()
    for name, of_ways in recorded(file).items():
        for way, found in of_ways.items():
            # Java's stack traces depend on its version.
            assert fits(found, known[name][way], most=2 if way.startswith("kafkalite") else 40), (name, way, found)

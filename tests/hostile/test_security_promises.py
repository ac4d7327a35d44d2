"""Each sentence of the pages on security with a bound or a negation names its tests."""

from __future__ import annotations

import ast
import re
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.cli.commands.broker import DEFAULT_HOST
from kafka_sink.common.config import parse
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.trust.tls_context import TlsContexts
from tests.hostile.security_promises import NO_PROMISES, PAGE, RECIPES
from tests.support.cases import with_each
from tests.support.certificates import Authority

pytestmark = pytest.mark.behaviour("Package", "Each promise of SECURITY.md has a test")

ROOT: Final = Path(__file__).parents[2]
SECURITY: Final = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
#: Words of a bound or a negation.
PROMISING: Final = re.compile(r"\b(not|never|no|nobody|nothing|none|neither|only|without)\b|\d", re.IGNORECASE)


def sentences(page: str) -> Iterator[str]:
    """Yield the sentences of *page*, and the cells of its tables, each on one line."""
    page = re.sub(r"```.*?```|<!--.*?-->", "", page, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=[|*#])", page):
        text = " ".join(block.split())
        if not text.startswith("#"):
            yield from (each.strip(" |") for each in re.split(r"(?<=[.])\s+(?=[A-Z`*])| \| ", text))


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@with_each("promise", {**PAGE, **RECIPES})
def test_a_promise_is_on_its_page_and_has_its_tests(promise: str) -> None:
    page = SECURITY if promise in PAGE else (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert promise in " ".join(page.split())
    for test in {**PAGE, **RECIPES}[promise]:
        file, _, name = test.partition("::")
        assert name in functions_of(file), test


def test_every_promising_sentence_has_tests() -> None:
    known = (*PAGE, *NO_PROMISES)
    left = [each for each in sentences(SECURITY) if PROMISING.search(each) and not any(part in each for part in known)]
    assert left == []


def test_tls_has_no_older_version_and_no_renegotiation(tmp_path: Path) -> None:
    keystore = tmp_path / "broker.pem"
    keystore.write_text(Authority().issue("127.0.0.1").pem())
    for server, options in ((False, {}), (True, {"ssl.keystore.location": str(keystore)})):
        context = TlsContexts(parse(SslConfig, options), server=server).current()
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION and context.options & ssl.OP_NO_COMPRESSION
        assert server or (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_the_broker_listens_on_loopback_alone() -> None:
    with EmbeddedCluster() as cluster:
        (address,) = cluster.bootstrap_servers.split(",")
        assert address.startswith("127.0.0.1:") and DEFAULT_HOST == "127.0.0.1"


def test_sparks_expression_hides_what_the_page_says() -> None:
    (expression,) = re.findall(r"`(\(\?i\)secret[^`]*)`", SECURITY)
    found = re.compile(expression)
    assert not found.search("kafka.ssl.keystore.key") and found.search("kafka.sasl.password")
    assert re.search(f"{expression}|keystore[.]key", "kafka.ssl.keystore.key")

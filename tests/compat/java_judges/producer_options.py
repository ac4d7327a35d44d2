"""Configurations of a producer: values of every option of Kafka's own, valid, invalid and at their bounds."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable
from typing import Any, Final

from kafka_sink.client.options import other_names
from kafka_sink.common import config as c
from kafka_sink.producer.config import ProducerConfig, reconcile
from tests.compat.java_judges.judging import Difference, Judged, Verdict
from tests.golden.make_producer_options import names

_SERVERS: Final = "bootstrap.servers"
#: Options of kafkalite alone, and options whose values are code.
_NOT_OF_JAVA: Final = frozenset(
    {"receive.message.max.bytes", "sasl.username", "sasl.password", "sasl.oauthbearer.aws.region"}
)
_CODE: Final = frozenset(
    {
        *(name for name, (entry, _) in c.keys(ProducerConfig).items() if entry.type in (c.PLUGIN, c.PLUGINS)),
        "sasl.client.callback.handler.class",
        "sasl.oauthbearer.jwt.retriever.class",
    }
)
_OPTIONS: Final = tuple(name for name in c.keys(ProducerConfig) if name not in _NOT_OF_JAVA | _CODE)
#: Options that only Java's producer reads, options of other clients, and names that no client has.
_NOT_HERE: Final = (
    *(name for name in names() if name not in c.keys(ProducerConfig)),
    *("group.id", "application.id", "key.converter", "linger.mss", "own.table", "ssl.ca.location"),
)
#: Options whose values depend on those of others.
_SETTLED: Final = (
    "acks",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.in.flight.requests.per.connection",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
)
#: Chosen more often, because they depend on each other.
_OFTEN: Final = (
    *_SETTLED,
    "linger.ms",
    "request.timeout.ms",
    "transactional.id",
    "transaction.two.phase.commit.enable",
    "transaction.timeout.ms",
    "batch.size",
    "buffer.memory",
    "security.protocol",
    "compression.type",
)
_NUMBERS: Final = (
    *("0", "1", "-1", "2", "5", "6", "9", "17", "18", "100", "1000", "4999", "5000", "30000", "2147483647", "-2"),
    *("2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
)
_NUMBER_LIKE: Final = ("", " ", "5.0", "1e3", "0x10", "1_000", "+5", "--5", "007", "5L", "٣", "²", "5 5", "NaN", "true")
_FRACTIONS: Final = (
    *("0", "0.5", "0.25", "0.8", "1", "1.0", ".5", "5e-1", "0.05", "0.26", "1.1", "-0.1", "NaN", "Infinity", "inf"),
    *("1_0", "0x1p-1", "0.5f", "0.5d", "infinity", "nan", "+0.5", "", "half"),
)
_TRUTHS: Final = ("true", "false", "True", "FALSE", "yes", "no", "1", "0", "", "t", "on", "null")
_TEXTS: Final = ("", "a", "A", "a b", "all", "none", "a,b", "ü", "-1", "PEM", "https")
_WORDS: Final = (
    *("all", "-1", "0", "1", "none", "gzip", "snappy", "lz4", "zstd", "use_all_dns_ips", "rebootstrap", "PLAINTEXT"),
    *("SSL", "SASL_PLAINTEXT", "SASL_SSL", "resolve_canonical_bootstrap_servers_only", "default", "PLAIN", "https"),
    *("JKS", "PKCS12", "PEM", "GSSAPI", "SCRAM-SHA-256", "OAUTHBEARER", "RS256", "ES256", "TLSv1.2", "uncompressed"),
)
_LISTS: Final = (
    "a",
    "a,b",
    "a, b",
    ",",
    "a,",
    ",a",
    "a,,b",
    "a,a",
    "",
    " ",
    "TLSv1.2",
    "TLSv1.2,TLSv1.3",
    "env",
    "file,env",
)
#: The characters that Java trims.
_BLANKS: Final = "".join(map(chr, range(0x21)))
_AROUND: Final = ("", "", "", "", " ", "\t", "\n", "\r\n", "\x0b", "\x00", "\x1f", "\u00a0", "\u2003")


def _options(rng: random.Random) -> dict[str, Any]:
    chosen = {rng.choice(_OFTEN if rng.random() < 0.6 else _OPTIONS) for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))}
    options = {_SERVERS: "127.0.0.1:9092"} | {name: _value(rng, name) for name in sorted(chosen - {_SERVERS})}
    asked = sorted({*options, *_SETTLED})
    if rng.random() < 0.1:
        options[rng.choice(_NOT_HERE)] = rng.choice(_TEXTS)
    return {"options": options, "asked": asked}


def _value(rng: random.Random, name: str) -> str:
    kind = c.keys(ProducerConfig)[name][0].type
    if rng.random() < 0.05:
        values: tuple[str, ...] = rng.choice((_NUMBERS, _FRACTIONS, _TRUTHS, _TEXTS, _LISTS))
    elif kind is c.INT:
        values = _NUMBERS if rng.random() < 0.8 else _NUMBER_LIKE
    elif kind is c.DOUBLE:
        values = _FRACTIONS
    elif kind is c.BOOLEAN:
        values = _TRUTHS if rng.random() < 0.3 else _TRUTHS[:2]
    elif kind is c.LIST:
        values = _LISTS
    else:
        values = _allowed(name) if rng.random() < 0.7 else (_TEXTS if rng.random() < 0.3 else _WORDS)
    value = rng.choice(values)
    if rng.random() < 0.1:
        value = rng.choice((value.lower(), value.upper(), value.title()))
    return rng.choice(_AROUND) + value + rng.choice(_AROUND)


def _allowed(name: str) -> tuple[str, ...]:
    """Return the words that the option accepts."""
    validator = c.keys(ProducerConfig)[name][0].validator
    return tuple(word for word in _WORDS if validator is None or validator.accepts(word)) or _TEXTS


def _ours(given: dict[str, Any]) -> Any:
    options = given["options"]
    config = reconcile(c.parse(ProducerConfig, options), frozenset(options))
    values = c.as_properties(config)
    values["acks"] = str(config.acks_code)
    return {name: list(values[name]) if isinstance(values[name], tuple) else values[name] for name in given["asked"]}


def _case(**options: str) -> dict[str, Any]:
    """Return a case with these options, ``_`` for each dot."""
    named = {_SERVERS: "127.0.0.1:9092"} | {name.replace("_", "."): value for name, value in options.items()}
    return {"options": named, "asked": sorted({*named, *_SETTLED} & {*_OPTIONS})}


def _refused_here(pattern: str) -> Callable[[Any, Verdict, Verdict], bool]:
    """Return a test of cases that Java accepts and kafkalite refuses with an error that matches *pattern*."""
    return lambda given, java, ours: java.refused is None and re.match(pattern, ours.refused or "", re.S) is not None


def _refused_by_java(pattern: str) -> Callable[[Any, Verdict, Verdict], bool]:
    return lambda given, java, ours: ours.refused is None and re.search(pattern, java.refused or "") is not None


def _number_out_of_range(is_out: Callable[[int], bool]) -> Callable[[Any, Verdict, Verdict], bool]:
    def applies(given: Any, java: Verdict, ours: Verdict) -> bool:
        found = re.match(r"option \S+: (.*) is not allowed, expected from -?\d+ to \d+;", ours.refused or "", re.S)
        return java.refused is None and found is not None and is_out(int(ast.literal_eval(found[1]).strip(_BLANKS)))

    return applies


def _differs_in_case(given: Any, java: Verdict, ours: Verdict) -> bool:
    if java.refused is not None or ours.refused is not None:
        return False
    different = [name for name, value in java.taken.items() if ours.taken[name] != value]
    return all(str(java.taken[name]).upper() == str(ours.taken[name]) for name in different)


#: Options whose values Java validates only when it uses them.
_LATER: Final = (
    "config.providers|sasl.mechanism|sasl.oauthbearer.assertion.algorithm|ssl.enabled.protocols|"
    "ssl.endpoint.identification.algorithm|ssl.keystore.(certificate.chain|key|location|type)|"
    "ssl.truststore.(certificates|location|type)"
)

PRODUCER_OPTIONS: Final = Judged(
    "ProducerOptions",
    _options,
    _ours,
    (
        Difference("Unknown option names", _case(linger_mss="5"), _refused_here("unknown option ")),
        Difference(
            "Options of Java that would change the promises of kafkalite",
            _case(security_providers="a.B"),
            _refused_here(r"option \S+ is not supported"),
        ),
        Difference(
            "Options without effect",
            _case(metrics_recording_level="none"),
            _refused_by_java(rf"configuration ({'|'.join(other_names.NO_EFFECT)})"),
        ),
        Difference(
            "Values that kafkalite validates at once",
            _case(ssl_truststore_type="BKS"),
            _refused_here(rf"option ({_LATER}): .* is not allowed, expected "),
        ),
        Difference("Names in any case", _case(sasl_mechanism="plain"), _differs_in_case),
        Difference(
            "Zeros and negative numbers that would disable a function",
            _case(request_timeout_ms="0"),
            _number_out_of_range(lambda number: number <= 0),
        ),
        Difference(
            "Numbers above 2,147,483,647",
            _case(linger_ms="2147483648"),
            _number_out_of_range(lambda number: number > 2**30),
        ),
        Difference(
            "Numbers as only Java writes them",
            _case(sasl_login_refresh_window_factor="0.8d"),
            _refused_here(r"option \S+: .* is not a number;"),
        ),
        Difference("Empty entries of lists", _case(ssl_cipher_suites="a,,b"), _refused_by_java("must not be empty")),
        Difference(
            "A short delivery time-out",
            _case(delivery_timeout_ms="17"),
            _refused_by_java("delivery.timeout.ms should be equal"),
        ),
        Difference(
            "Two-phase commit without an id",
            _case(transaction_two_phase_commit_enable="true"),
            _refused_here(r"option transaction.two.phase.commit.enable=true needs transactional.id"),
        ),
        Difference(
            "A `batch.size` above `buffer.memory`",
            _case(batch_size="20", buffer_memory="10"),
            _refused_here(r"option batch.size \(\d+\) is more than buffer.memory"),
        ),
    ),
)

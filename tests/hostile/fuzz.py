"""Fuzz tests of all readers of kafkalite, for a given time, from a random seed, which they print.

    scripts/test.sh --fuzz MINUTES        or        python -m tests.hostile.fuzz --minutes MINUTES [--seed SEED]

The attacks take turns, and each case has a number: ``--only NAME --case NUMBER`` repeats one; ``--group PACKAGE`` tries
the readers of ``readers.py`` of one package. Attacks on encoders compare the columns of the three formats with those of
independent libraries. Texts that users paste are parsed by Java as well, and a difference that differences.md does not
name is a finding. Exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

import hypothesis

from tests.compat.java_judges.judged import JUDGED
from tests.compat.java_judges.judging import JavaJudges, Judged
from tests.hostile import (
    answers,
    batches,
    guarded,
    json_columns,
    kerberos,
    ports,
    records,
    references,
    secrets,
    servers,
    slow_tls,
    weights,
)
from tests.hostile.readers import READERS, attack_of
from tests.property import test_avro_properties, test_protobuf_properties
from tests.support.kdc import HAS_KERBEROS
from tests.support.real_kafka import HAS_KAFKA

Attack = Callable[[random.Random], None]

#: The length of an attack's turn.
_TURN_S: Final = 5.0
#: How many findings of each kind are printed.
_SHOWN: Final = 3


def _property(test: Any) -> Attack:
    """Return a property of hypothesis as an attack, with the seed and the number of batches of the normal run."""

    def attack(rng: random.Random) -> None:
        hypothesis.seed(rng.getrandbits(64))(test)()

    return attack


ATTACKS: Final[dict[str, Attack]] = {
    "Avro columns": _property(test_avro_properties.test_payloads_equal_those_of_fastavro),
    "Avro slices": _property(test_avro_properties.test_slices_are_encoded_like_copies),
    "Avro nulls": _property(test_avro_properties.test_values_under_null_rows_are_not_written),
    "Protobuf columns": _property(test_protobuf_properties.test_payloads_equal_those_of_googles_library),
    "Protobuf slices": _property(test_protobuf_properties.test_slices_are_encoded_like_copies),
    "JSON columns": json_columns.json_columns,
    "coded and chunked columns": records.avro_columns,
    "Avro records": records.avro_records,
    "Avro like fastavro": records.avro_like_fastavro,
    "Avro schemas": records.avro_schemas,
    "JSON schemas": records.json_schemas,
    "Protobuf records": records.protobuf_records,
    "Protobuf schemas": records.protobuf_schemas,
    "record batches": batches.record_batches,
    "Protobuf weights": weights.protobuf_weights,
    "Avro and JSON weights": weights.text_weights,
    "schema references": references.schema_references,
    "HTTP answers": servers.http_answers,
    "command lines": servers.command_lines,
    "answers of every API": answers.answers_of_apis,
    "HTTP requests": ports.http_requests,
    "broker requests": ports.broker_requests,
    "guarded listeners": guarded.guarded_listeners,
    "slow TLS": slow_tls.slow_tls,
    "Kerberos answers": kerberos.kerberos_answers,
    "addresses": secrets.addresses,
    "echoing registries": secrets.echoing_registries,
    "values of rows": secrets.values_of_rows,
    "report lines": secrets.report_lines,
}
#: One attack for each reader of untrusted bytes; test_readers.py runs them, too.
OF_READERS: Final = {name: attack_of(reader) for name, reader in READERS.items()}


def _spark_connect(rng: random.Random) -> None:
    """Not part of the normal run, in which no other test needs its server, whose start takes half a minute."""
    from tests.hostile.connect import spark_connect

    spark_connect(rng)


JUDGES: Final = JavaJudges()


def _judged(judged: Judged) -> Attack:
    """Return an attack that compares the result of a random case with that of Java."""
    return lambda rng: judged.compare(JUDGES, judged.random(rng))


ALL: Final[dict[str, Attack]] = (
    ATTACKS | OF_READERS | ({name: _judged(judged) for name, judged in JUDGED.items()} if HAS_KAFKA else {})
)
if not HAS_KERBEROS:
    del ALL["Kerberos answers"]
if importlib.util.find_spec("grpc") is not None:
    ALL["Spark Connect"] = _spark_connect


def _groups() -> dict[str, list[str]]:
    groups = defaultdict(list)
    for name in ALL:
        reader = READERS.get(name)
        groups[reader.of.partition(".")[0] if reader else "java" if name in JUDGED else "attacks"].append(name)
    return dict(groups)


#: The attacks by the package of their reader; comparisons with Java and attacks without reader are separate groups.
GROUPS: Final = _groups()


def attacked(name: str, seed: int, case: int) -> Exception | None:
    """Return the failure of case number *case* of the attack *name*; None if it passed."""
    try:
        ALL[name](random.Random(f"{seed} {name} {case}"))
    except Exception as error:
        return error
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--only", choices=ALL, help="one attack")
    parser.add_argument("--group", choices=GROUPS, help="the readers of readers.py of this package, or others together")
    parser.add_argument("--case", type=int, help="with --only: one case, with its traceback")
    asked = parser.parse_args()
    # A warning would reach a user's log, so it is a finding.
    warnings.simplefilter("error", RuntimeWarning)
    if asked.case is not None:
        with JUDGES:
            ALL[asked.only](random.Random(f"{asked.seed} {asked.only} {asked.case}"))
        return
    print(f"seed {asked.seed}, {asked.minutes:g} minutes", flush=True)
    names = [asked.only] if asked.only else GROUPS.get(asked.group, list(ALL))
    with servers.OPEN, JUDGES:
        cases, findings = _run(names, asked.seed, time.monotonic() + asked.minutes * 60)
    for name in names:
        print(f"{name:28}{cases[name]:>10,} cases{findings[name]:>8,} findings")
    if waits := sorted(guarded.WAITS_MS):
        print(f"under attack, a client waited {waits[-1 - len(waits) // 1000]:.0f} ms for 999 of 1,000 answers", end="")
        print(f", and {waits[-1]:.0f} ms at most", flush=True)
    print(f"{sum(cases.values()):,} cases, {sum(findings.values()):,} findings, seed {asked.seed}", flush=True)
    sys.exit(1 if sum(findings.values()) else 0)


def _run(names: list[str], seed: int, end_s: float) -> tuple[Counter[str], Counter[str]]:
    cases, findings, kinds = Counter[str](), Counter[str](), Counter[str]()
    while time.monotonic() < end_s:
        for name in names:
            turn_ends_s = min(end_s, time.monotonic() + _TURN_S)
            while time.monotonic() < turn_ends_s:
                error = attacked(name, seed, cases[name])
                if error is not None:
                    findings[name] += 1
                    kinds[f"{name} {type(error).__name__}"] += 1
                    if kinds[f"{name} {type(error).__name__}"] <= _SHOWN:
                        print(f"--only '{name}' --seed {seed} --case {cases[name]}:", flush=True)
                        traceback.print_exception(error, limit=-6, file=sys.stdout)
                cases[name] += 1
    return cases, findings


if __name__ == "__main__":
    main()

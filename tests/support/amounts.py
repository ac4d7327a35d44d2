"""The amounts of tests: small in the normal run, larger in ``scripts/test.sh --long``, or set by a variable.

``scripts/test.sh --amounts`` prints the table.
"""

from __future__ import annotations

import os
import textwrap
from typing import Final, TypeVar

import pytest

_Amount = TypeVar("_Amount", int, float, str)

#: Whether the run includes tests that take long.
LONG = os.environ.get("KAFKALITE_LONG", "") not in ("", "0")
#: For tests without a useful smaller form.
only_long = pytest.mark.skipif(not LONG, reason="only with --long")

#: Variable, normal run, long run and meaning of each amount.
_TABLE: Final[list[tuple[str, str, str, str]]] = []


def _amount(name: str, normal: _Amount, long: _Amount, meaning: str) -> _Amount:
    """Return the value of KAFKALITE_*name*, else *normal*, or *long* in the long run; of *normal*'s type."""
    variable = f"KAFKALITE_{name}"
    _TABLE.append((variable, str(normal), str(long), meaning))
    said = os.environ.get(variable)
    if said is None:
        return long if LONG else normal
    return type(normal)(said)


def examples(most: int) -> int:
    """Return the number of random examples of a property: *most* in the long run, a twelfth in the normal one."""
    return most if LONG else -(-most // 12)


SIMULATED_RUNS = _amount(
    "SIMULATED_RUNS",
    3,
    2_000,
    "seeds that the simulator tries, of the producer and of transactions each (or --sim-runs)",
)
COMPACTED_LOGS = _amount(
    "COMPACTED_LOGS", 2, 2_000, "random logs that are compacted while a model checks their readers"
)
LOAD_RECORDS = _amount("LOAD_RECORDS", 10_000, 500_000, "records under restarts and kills of a real cluster")
RESTARTS = _amount(
    "RESTARTS",
    1,
    3,
    "nodes of a real cluster of three that are restarted, or killed under transactions, in turn under load",
)
LEADER_MOVES = _amount("LEADER_MOVES", 2, 10, "how often all leaders of a real cluster are moved under load")
WORKER_LIVES = _amount("WORKER_LIVES", 2, 20, "how often a process that writes transactions is killed")
LEADER_KILLS = _amount(
    "LEADER_KILLS",
    1,
    10,
    "leaders of a real cluster that are killed, under load, over PLAINTEXT and over SASL_SSL each (--matrix: 4)",
)
LOST_ENDS = _amount(
    "LOST_ENDS", 0, 3, "ends of transactions that a real Kafka has to lose, in each way to write and to end"
)
EXPLORED_STATES = _amount(
    "EXPLORED_STATES", 45, 100_000, "states of a small world of exactly-once drivers, in each setting"
)
RANDOM_WALKS = _amount("RANDOM_WALKS", 1, 10, "walks through a larger world of exactly-once drivers, in each setting")
MANY_SINKS = _amount(
    "MANY_SINKS", 60, 500, "sinks with a client id of their own that one process writes to, one after another"
)
MATRIX = _amount(
    "MATRIX",
    "some",
    "some",
    "full: every cell of the matrix instead of a choice (or --matrix)",
)
MATRIX_MB = _amount("MATRIX_MB", 2, 20, "MB that each cell of the matrix writes (--matrix: 100)")
MATRIX_SOAK_MB = _amount(
    "MATRIX_SOAK_MB", 0, 2_000, "MB written over SASL_SSL while the memory of the process is watched (--matrix: 2000)"
)
FAULT_RECORDS = _amount(
    "FAULT_RECORDS", 4_000, 100_000, "records under each fault of the network or of the embedded broker's process"
)
BROKER_FAULT_RECORDS = _amount(
    "BROKER_FAULT_RECORDS", 500, 5_000, "records under each fault that the embedded broker is asked for"
)
KILLS_UNDER_LOAD = _amount("KILLS_UNDER_LOAD", 2, 20, "kills of the embedded broker's process under load")
PAUSES = _amount("PAUSES", "2x1.5", "8x3", "how often the broker pauses, x for how many seconds")
REUSE_RECORDS = _amount("REUSE_RECORDS", 10_000, 100_000, "rows sent in little memory while batches expire")
RECREATIONS = _amount("RECREATIONS", 5, 50, "how often a topic is deleted and made again")
PAGE_TOPICS = _amount("PAGE_TOPICS", 100, 1_000, "topics on a page that a browser keeps live")
INTERRUPTS = _amount("INTERRUPTS", 2, 20, "programs that Ctrl-C hits, with a with block and without")
SIGNAL_SECONDS = _amount("SIGNAL_SECONDS", 0.5, 5.0, "seconds of real signals, hundreds in each of them")
INTERRUPT_POINTS = _amount(
    "INTERRUPT_POINTS",
    "some",
    "some",
    "all: an interrupt and a signal handler at every line of the calls",
)
POWER_FAILURES = _amount("POWER_FAILURES", 2, 10, "power failures behind acknowledgements")
LITTLE_MEMORY = _amount(
    "LITTLE_MEMORY",
    "2000x1,30,200",
    "20000x1,30,200",
    "records sent in large batches and little memory, x the numbers of partitions they go to",
)
MESSAGE_EXAMPLES = _amount(
    "MESSAGE_EXAMPLES", 1, 50, "messages of each kind and version that are written and read back"
)
FUZZ_EPISODES = _amount("FUZZ_EPISODES", 35, 5_000, "episodes of hostile answers")
DAMAGE_APART = _amount("DAMAGE_APART", 72, 1, "bytes between two damaged places of a message")
IDENTITY_MB = _amount(
    "IDENTITY_MB", 1, 100, "MB that Spark writes for each way to authenticate, twice, through renewals"
)
READER_CASES = _amount("READER_CASES", 70, 1_000, "inputs that each reader of others' bytes gets at least")
READER_MINUTES = _amount(
    "READER_MINUTES", 0.0, 5.0, "minutes that each reader of others' bytes is attacked (with --timeout=0 where many)"
)
FUZZ_REQUESTS = _amount(
    "FUZZ_REQUESTS", 1_700, 200_000, "requests that nobody sane sends, through decoder and handlers"
)
HOSTILE_FRAMES = _amount(
    "HOSTILE_FRAMES", 700, 50_000, "frames of random bytes to a running broker (with --timeout=0 where they are many)"
)
BROKER_KILLS = _amount("BROKER_KILLS", 2, 20, "kills of an embedded broker in the middle of what it does")
HISTORY_SECONDS = _amount(
    "HISTORY_SECONDS", 2.0, 120.0, "seconds of trouble in which histories of clients are recorded and judged"
)
LOG_PARTITIONS = _amount("LOG_PARTITIONS", 200, 2_000, "logs that a start opens")
LOG_MIB = _amount("LOG_MIB", 32, 256, "size of the one large log that a start opens, MiB")
DRIVER_LIVES = _amount(
    "DRIVER_LIVES", 4, 30, "drivers of exactly-once batches that are killed or frozen, for each protocol"
)
DRIVER_LIVES_ON_KAFKA = _amount("DRIVER_LIVES", 4, 30, "the same on a real Kafka")
LIVES_AT_A_POINT = _amount(
    "LIVES_AT_A_POINT",
    0,
    1,
    "drivers that are killed, and that are frozen, at each single point, instead of two at one point",
)
TASKS = _amount("TASKS", 20, 20, "tasks of every other run of a batch; the other runs have one")
INTERRUPTIONS = _amount(
    "INTERRUPTIONS",
    0,
    1,
    "kills of the broker (normal run: one, at one point) and of coordinators of a real cluster at every "
    "point; with it nodes are stopped under transactions",
)
ID_BATCHES = _amount("ID_BATCHES", 10, 50, "batches after which the ids that brokers keep are counted")
EXECUTOR_KILLS = _amount("EXECUTOR_KILLS", 0, 3, "executors that are killed on a Spark cluster of two workers")
PIPELINE_RUNS = _amount(
    "PIPELINE_RUNS",
    0,
    3,
    "runs of a Declarative Pipeline that writes exactly once, and with them every way to write over Spark Connect",
)
STOPS = _amount(
    "STOPS",
    1,
    10,
    "interrupts of each way to write, of a program; in the long run of a notebook and over Spark Connect, too",
)
SPARK_KILLS = _amount("SPARK_KILLS", 0, 10, "kills of the whole of Spark while it writes exactly once in four ways")
BENCH_SIZES = _amount("BENCH_SIZES", 2, 4, "sizes of each growth that the benchmarks of growth are tried with")
SCALE_TASKS = _amount(
    "SCALE_TASKS", 1000, 10_000, "tasks of the batch that is counted in memory; a tenth as many workers and brokers"
)
JAVA_NODES = _amount(
    "JAVA_NODES",
    "",
    "1,3",
    'nodes of the clusters that Kafka\'s Java clients are tried on, as "1,3"; empty: one number for each test',
)
VERIFY_ROWS = _amount(
    "VERIFY_ROWS", 100_000, 1_000_000, "rows that kafkalite verify compares while its memory is measured"
)
AVRO_BATCHES = _amount(
    "AVRO_BATCHES",
    14,
    2_000,
    "batches of rows of random types that are written as Avro and compared with fastavro's bytes",
)
PROTOBUF_BATCHES = _amount(
    "PROTOBUF_BATCHES",
    14,
    2_000,
    "batches of random messages that are written as Protobuf and compared with the bytes of Google's library",
)
JUDGED_CASES = _amount("JUDGED_CASES", 50, 20_000, "random cases of each kind that Kafka's Java client judges as well")
JSON_FRAMES = _amount(
    "JSON_FRAMES", 2, 300, "tables of random types that are written as JSON and compared with to_json's bytes"
)


def main() -> None:
    """Print the table of all amounts."""
    rows = [("variable", "normal", "--long", "meaning"), *_TABLE]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        start = "  ".join((text or "–").ljust(width) for text, width in zip(row, widths, strict=False)) + "  "
        print(textwrap.fill(row[3], 120, initial_indent=start, subsequent_indent=" " * len(start)))


if __name__ == "__main__":
    main()

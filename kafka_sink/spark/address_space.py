"""The address space of a Python worker, which ``spark.executor.pyspark.memory`` limits (RLIMIT_AS).

Each worker may have this setting divided by ``spark.executor.cores``. Address space is more than memory: libraries are
mapped whole, threads reserve their stacks. Without the check an import or numpy fails in one of many places.
"""

from __future__ import annotations

import resource
from math import ceil
from typing import Final

from kafka_sink.common.errors import SinkWriteError
from kafka_sink.spark.errors import told
from kafka_sink.spark.producer_spec import ProducerSpec

LIMIT: Final = "spark.executor.pyspark.memory"

#: Beside buffer.memory, MiB: without the first no write succeeds; with the second all do. Between them it depends on
#: what the allocators of pyarrow and of the C library reserve, which is not less the smaller the limit is.
NEEDED_MIB: Final = 320
ADVISED_MIB: Final = 608

_MIB: Final = 1 << 20


def buffer_mib(producer: ProducerSpec) -> int:
    """``buffer.memory``, rounded up to MiB."""
    return ceil(producer.here().buffer_memory_bytes / _MIB)


def _limit_mib() -> int | None:
    """The limit of this process; None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft // _MIB


def require_address_space(producer: ProducerSpec) -> None:
    """:raises SinkWriteError: if this worker cannot have the address space that a write needs."""
    limit = _limit_mib()
    if limit is None:
        return
    buffer = buffer_mib(producer)
    if limit < NEEDED_MIB + buffer:
        text = (
            f"this Python worker may have {limit} MiB of address space, and a write needs {NEEDED_MIB + buffer} MiB at "
            f"least; set {LIMIT}, which is divided by spark.executor.cores, to {ADVISED_MIB + buffer}m for each core, "
            "or not at all"
        )
        raise told(SinkWriteError(text, option=LIMIT, is_permanent=True))


def advice_on(error: BaseException) -> str:
    """What to do about *error* if it comes from the limit of this process's address space; otherwise nothing."""
    limit = _limit_mib()
    if limit is None or not (isinstance(error, MemoryError) or "can't start new thread" in str(error)):
        return ""
    return f" (this Python worker may have {limit} MiB of address space: raise {LIMIT} or lower kafka.buffer.memory)"

"""The rows of the last call for each sink, in this process.

Two calls of :func:`kafka_sink.foreach_batch` with one name in one micro-batch look like a batch that Spark runs again:
the second one would be skipped as committed. Spark runs a batch again only in another run of its query; within one run,
a repetition has the same rows. Used on the driver, by the threads that write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_sink.common.bounded import Latest
from kafka_sink.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_sink.spark.write_spec import ExactlyOnce, WriteSpec


class _Call(NamedTuple):
    run: str
    version: int
    df: DataFrame


#: Each holds a DataFrame, so those of sinks that have not written for long are forgotten.
_MOST: Final = 50
#: By cluster, name and progress topic.
_last: Final[Latest[tuple[tuple[str, ...], str, str], _Call]] = Latest(_MOST)


def note_call(df: DataFrame, spec: WriteSpec, sink: ExactlyOnce, run: str, version: int) -> None:
    """*df* was written as *version* in this *run* of a query, or skipped because *version* was committed: by another
    call, if this one has other rows than the first call for *version* in this run.

    A skipped call counts as well: whoever restarts a query after the error finds the batch committed in both calls.

    :raises ConfigError: if it has other rows.
    """
    key = _key(spec, sink)
    last = _last.get(key)
    if last is None or (last.run, last.version) != (run, version):
        _last.put(key, _Call(run, version, df))
        return
    if df.sameSemantics(last.df):
        return
    missing = "" if version == 0 else ", with option allowMissingProgress=true in its first batch"
    raise ConfigError(
        f"app_id {sink.name!r} was used twice in batch {version}, for different rows: the first call has committed the "
        f"batch, and the rows of this one were not written. Give this call an app_id of its own{missing}, and start "
        "the query again: it runs the batch again, skips what is committed and writes these rows"
    )


def _key(spec: WriteSpec, sink: ExactlyOnce) -> tuple[tuple[str, ...], str, str]:
    return spec.producer.bootstrap_servers, sink.name, sink.progress_topic

"""The progress of a stream per batch, for the metrics of the user's own program.

Batches are committed in another process than the user's, so the metrics are read from the file of the option reportPath
at each progress event of Spark, on the thread of the event. Errors are logged and never affect the query.
"""

from __future__ import annotations

import json
import logging
import pickle
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryManager
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from kafka_sink.common.bounded import parsed_json
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.files import replace_text
from kafka_sink.common.metrics import Metric
from kafka_sink.common.threads import start_thread
from kafka_sink.reports.writes import SinkProgress, SourceLag, StreamFigures, Tail
from kafka_sink.spark.internals import running_query
from kafka_sink.spark.streaming.stopping import refuse_continuous

if TYPE_CHECKING:
    from kafka_sink.http.local_server import MetricsServer

_log = logging.getLogger(__name__)


class ProgressListener(StreamingQueryListener):
    """See :func:`progress_listener`."""

    def __init__(
        self,
        report_path: str | Path,
        callback: Callable[[SinkProgress], None] | None,
        prometheus_file: str | Path | None,
        tags: Mapping[str, str],
        query_name: str | None = None,
    ) -> None:
        self._report = Path(report_path)
        self._callback = callback
        self._file = None if prometheus_file is None else Path(prometheus_file)
        self._query_name = query_name
        self._figures = StreamFigures(*tags.items())
        self._server: MetricsServer | None = None
        self._lock = threading.Lock()
        # Existing lines were already reported by an earlier listener.
        self._tail = Tail(self._report, skips_existing=True)

    def __getstate__(self) -> NoReturn:
        # Spark Connect of Spark 3.5 sends a listener to the server, where its reports would not reach the program.
        raise pickle.PicklingError(
            "a progress_listener cannot be added over Spark Connect before Spark 4.0, which runs listeners in the "
            "program that adds them; call the listener's read_new() from time to time instead"
        )

    def serve(self, host: str, port: int) -> None:
        """Serve the metrics at :attr:`url` until :meth:`close`. :raises ConfigError: if the port is in use."""
        # Imported here, because other programs start faster without it.
        from kafka_sink.http.local_server import MetricsServer

        self._server = MetricsServer(host, port, self._metrics)

    @property
    def url(self) -> str | None:
        """The address of the metrics; None if they are not served."""
        return None if self._server is None else self._server.url

    def close(self) -> None:
        """Stop serving the metrics."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Called by Spark within ``start()``. A query cannot be stopped before this method returns, so another thread
        stops it if necessary."""
        start_thread("look-at-trigger", lambda: self._stop_if_continuous(str(event.id)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Called by Spark after each batch."""
        try:
            self._note_source(event.progress)
        except Exception:
            _log.exception("could not note the lag of the source in %s", self._report)
        self.read_new()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Called by Spark from time to time while there is no data."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Called by Spark at the end of a query."""
        self.read_new()

    def read_new(self) -> list[SinkProgress]:
        """Process the new lines of the report and return the committed batches; can also be called without Spark's
        events."""
        with self._lock:
            batches: list[SinkProgress] = []
            has_news = False
            try:
                for line in self._tail.read():
                    has_news = True
                    self._figures.add(line)
                    if isinstance(line, SinkProgress) and not line.is_failed:
                        batches.append(line)
                if has_news and self._file is not None:
                    # Imported here, because other programs start faster without it.
                    from kafka_sink.common.exposition import TEXT, rendered

                    replace_text(self._file, rendered(self._figures.metrics(), TEXT)[0])
                if self._callback is not None:
                    for progress in batches:
                        self._callback(progress)
            except Exception:
                _log.exception("could not pass on the progress in %s", self._report)
                return []
            return batches

    def _metrics(self) -> list[Metric]:
        with self._lock:
            return list(self._figures.metrics())

    def _note_source(self, progress: StreamingQueryProgress) -> None:
        """Append the lag of the source to the report, where the pages of kafkalite ui read it."""
        lag = lag_of(progress.json)
        # Without a write there is no report to which the lag belongs.
        if lag is None or not self._report.exists():
            return
        # The report belongs to the query with the name, or to the session's only query.
        is_alone = self._query_name is None and len(_streams_with(str(progress.id)).active) == 1
        if is_alone or (self._query_name is not None and progress.name == self._query_name):
            with self._report.open("ab", buffering=0) as file:
                file.write(f"{json.dumps(SourceLag(progress.batchId, lag).as_report())}\n".encode())

    def _stop_if_continuous(self, query_id: str) -> None:
        query = _streams_with(query_id).get(query_id)
        if query is not None:
            try:
                refuse_continuous(query)
            except KafkaError as error:
                _log.error("ROWS WERE BEING LOST: %s", error)


def _streams_with(query_id: str) -> StreamingQueryManager:
    """The queries of the session that runs *query_id*; the listener's thread may have another active session."""
    session = SparkSession.active()
    running = running_query(session, query_id)
    return session.streams if running is None else StreamingQueryManager(running.sparkSession().streams())


def lag_of(progress: str) -> int | None:
    """The number of rows that sources have not read yet, from their end offsets and latest offsets in Spark's
    *progress* (JSON); None if no source has offsets by topic and partition, as Kafka's does.

    Source: Spark, Structured Streaming and Kafka Integration Guide; ``StreamingQueryProgress.sources``.
    """
    try:
        lags = [lag for source in parsed_json(progress)["sources"] if (lag := _lag_of(source)) is not None]
    except (ValueError, TypeError, KeyError):
        return None
    return sum(lags) if lags else None


def _lag_of(source: Any) -> int | None:
    try:
        return sum(
            max(int(offset) - int(source["endOffset"].get(topic, {}).get(partition, 0)), 0)
            for topic, offsets in source["latestOffset"].items()
            for partition, offset in offsets.items()
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def progress_listener(
    report_path: str | Path,
    *,
    callback: Callable[[SinkProgress], None] | None = None,
    prometheus_file: str | Path | None = None,
    tags: Mapping[str, str] | None = None,
    query_name: str | None = None,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
) -> ProgressListener:
    """A listener for ``spark.streams.addListener`` that reports every batch committed by the sink of one query.

    :param report_path: the file of the query's option ``reportPath``; each query needs its own file. The query's driver
        and this program must be on the same machine.
    :param callback: called with each batch, in order, soon after its commit.
    :param prometheus_file: replaced after each batch, for node_exporter's textfile collector, with
        ``kafka_sink_rows_total``, ``kafka_sink_ack_seconds{quantile="0.99"}`` and so on.
    :param tags: labels of all these metrics, for example ``{"query": "orders"}``.
    :param query_name: the name of the query (``queryName``), whose source's lag is then added to the report; needed if
        the session has several queries.
    :param metrics_port: serve the same metrics at ``http://HOST:PORT/metrics``; 0 = any free port, see the listener's
        ``url``. It is served until the listener's ``close()`` or the end of the program.
    :param metrics_host: the address to listen on. Beyond loopback, any client that can connect can read the metrics.
    :raises ConfigError: if the port is in use.
    """
    listener = ProgressListener(report_path, callback, prometheus_file, tags or {}, query_name)
    if metrics_port is not None:
        listener.serve(metrics_host, metrics_port)
    return listener

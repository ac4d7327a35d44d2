"""How far a write has come: what an exception that ends it has to say of the rows.

Used on the driver, by the thread that writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_sink.common.errors import KafkaError
from kafka_sink.exactly_once.model import IN_ORDER
from kafka_sink.spark.driver.job_failures import is_cancelled, summary_of
from kafka_sink.spark.errors import CancelledWriteError

if TYPE_CHECKING:
    from pyspark import Accumulator


@dataclass
class WriteCourse:
    """A write to *topic* (None: rows name theirs) of *version* (None: at least once), which an application numbers
    unless *is_of_query*. Tasks that have ended have added their rows to *counted*. *is_deciding* from the moment when
    the batch may be committed."""

    topic: str | None
    version: int | None
    counted: Accumulator[int] | None
    is_of_query: bool
    is_deciding: bool = False

    def what_stays(self) -> str:
        """What an end at this moment leaves in the topic, and what to do, in one sentence."""
        if self.version is None:
            ended = "" if self.counted is None else f"{self.counted.value:,} rows of tasks that had ended and "
            place = "their topics" if self.topic is None else f"topic {self.topic}"
            return (
                f"{ended}the rows of other tasks that were acknowledged before stay in {place}, and a repeated write "
                "writes them again"
            )
        if not self.is_deciding:
            again = "write it again" if self.is_of_query else IN_ORDER
            return f"no row of version {self.version} became visible; {again}"
        again = "write it again, which writes it once" if self.is_of_query else IN_ORDER
        return f"version {self.version} was about to be committed and is in Kafka as a whole or not at all; {again}"

    def ended_by(self, error: BaseException) -> BaseException:
        """*error* with what stays, or the error to raise in its place if the Spark job was cancelled."""
        if isinstance(error, Exception) and is_cancelled(error):
            return CancelledWriteError(f"the write was cancelled ({summary_of(error)}): {self.what_stays()}")
        if isinstance(error, KafkaError):
            if self.version is not None and not self.is_of_query:
                error.add_note(f"kafkalite: if version {self.version} is not committed, {IN_ORDER}")
            return error
        if error.args:
            error.add_note(f"kafkalite: {self.what_stays()}")
        else:
            error.args = (f"the write was stopped: {self.what_stays()}",)
        return error

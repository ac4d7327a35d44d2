"""The query of a thread is found while other queries of the application end."""

from __future__ import annotations

from typing import Any

from kafka_sink.spark.internals import running_query


class Java:
    """An object of the JVM: its methods return *values*."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, lambda value=value: value)


class Session(Java):
    def equals(self, other: object) -> bool:
        return self is other


def test_a_query_that_ends_meanwhile_hides_no_other() -> None:
    running: dict[str, Any] = {}
    own = Session(sharedState=Java(activeStreamingQueries=running))
    mine = Java(lastExecution=Java(sparkSession=own))
    # Py4J requests the value of each key, and the JVM has removed the first one by then.
    running |= {"ended": None, "begins": Java(lastExecution=None), "mine": mine}
    spark = type("Classic", (), {"_jsparkSession": own})()
    assert running_query(spark, None) is mine, "else the batch is one of 'an application', and its query is refused"

"""Two versions of kafkalite on one write: a driver's values are refused by workers of another version."""

from __future__ import annotations

import pickle
import re

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.version import VERSION
from kafka_sink.exactly_once.model import BatchNumbering
from kafka_sink.spark import one_version, writers
from kafka_sink.spark.driver.before_write import task_options
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.prepared_write import PreparedWrite, Reporting, TaskOptions
from kafka_sink.spark.writers import KafkaliteBatchWriter, KafkaliteStreamWriter

TASK = task_options(parse_options({"kafka.bootstrap.servers": "h:1", "topic": "t"}))
PREPARED = PreparedWrite(TASK, Reporting(None, "t", "h:1", ()), BatchNumbering.OF_A_QUERY, None)


@pytest.mark.parametrize("value", [TASK, KafkaliteBatchWriter(PREPARED), KafkaliteStreamWriter(PREPARED)])
def test_same_version_gets_same_values(value: TaskOptions | KafkaliteBatchWriter | KafkaliteStreamWriter) -> None:
    found = pickle.loads(pickle.dumps(value))
    assert (type(found), found.__dict__) == (type(value), value.__dict__)


@pytest.mark.behaviour("Versions", "Driver and worker of two versions: the write fails with a sentence that names both")
@pytest.mark.parametrize("value", [TASK, KafkaliteBatchWriter(PREPARED), KafkaliteStreamWriter(PREPARED)])
def test_other_version_is_refused_with_both_named(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(value)
    monkeypatch.setattr(one_version, "VERSION", "7.8.9")
    # A name that the worker's version lacks is not what the user reads.
    monkeypatch.delattr(writers, "KafkaliteBatchWriter")
    expected = f"the driver has kafkalite {VERSION}, and a Python worker has 7.8.9 (imported from "
    with pytest.raises(ConfigError, match=re.escape(expected)):
        pickle.loads(pickled)

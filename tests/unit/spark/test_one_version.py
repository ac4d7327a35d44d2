"""Two versions of kafkalite on one write: a driver's values are refused by workers of another version."""

from __future__ import annotations

import pickle
import re

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.version import VERSION
from kafka_sink.exactly_once.model import BatchNumbering
from kafka_sink.spark import one_version, writers
from kafka_sink.spark.prepared_write import FAIL, PreparedWrite, Reporting, RowRules, TaskOptions
from kafka_sink.spark.writers import KafkaliteBatchWriter, KafkaliteStreamWriter

TASK = TaskOptions(RowRules("t", (), FAIL, None, None), None, None, False, {"bootstrap.servers": "h:1"})
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

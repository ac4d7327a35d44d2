"""Two versions of kafkalite in one write: workers of another version refuse the driver's values."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.version import VERSION
from kafka_sink.spark import data_source, versions
from kafka_sink.spark.data_source import KafkaliteBatchWriter, KafkaliteStreamWriter
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.write_spec import WriteSpec

SPEC = parse_options({"kafka.bootstrap.servers": "h:1", "topic": "t"}).spec


@pytest.mark.parametrize("value", [SPEC, KafkaliteBatchWriter(SPEC), KafkaliteStreamWriter(SPEC)])
def test_same_version_gets_same_values(value: WriteSpec | KafkaliteBatchWriter | KafkaliteStreamWriter) -> None:
    found = pickle.loads(pickle.dumps(value))
    assert (type(found), found.__dict__) == (type(value), value.__dict__)


def test_a_task_gets_the_spec_of_the_task_before_it() -> None:
    pickled = pickle.dumps(SPEC)
    assert pickle.loads(pickled) is pickle.loads(pickled)
    other = pickle.loads(pickle.dumps(replace(SPEC, topic="other")))
    assert other.topic == "other"
    writer = pickle.dumps(KafkaliteBatchWriter(SPEC))
    assert pickle.loads(writer) is not pickle.loads(writer), "a writer has a plan of its own"


@pytest.mark.behaviour("Versions", "Driver and worker of two versions: the write fails with a sentence that names both")
@pytest.mark.parametrize("value", [SPEC, KafkaliteBatchWriter(SPEC), KafkaliteStreamWriter(SPEC)])
def test_other_version_is_refused_with_both_named(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(value)
    monkeypatch.setattr(versions, "VERSION", "7.8.9")
    # The error is about the versions, and not about a name that the worker's version lacks.
    monkeypatch.delattr(data_source, "KafkaliteBatchWriter")
    expected = f"the driver has kafkalite {VERSION}, and a Python worker has 7.8.9 (imported from "
    with pytest.raises(ConfigError, match=re.escape(expected)):
        pickle.loads(pickled)

"""Two versions of kafkalite on one write: a driver's values are refused by workers of another version."""

from __future__ import annotations

import pickle
import re

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.version import VERSION
from kafka_sink.spark import one_version, writers
from kafka_sink.spark.options import parse_options, write_spec
from kafka_sink.spark.write_spec import WriteSpec
from kafka_sink.spark.writers import KafkaliteBatchWriter, KafkaliteStreamWriter

SPEC = write_spec(parse_options({"kafka.bootstrap.servers": "h:1", "topic": "t"}))


@pytest.mark.parametrize("value", [SPEC, KafkaliteBatchWriter(SPEC), KafkaliteStreamWriter(SPEC)])
def test_same_version_gets_same_values(value: WriteSpec | KafkaliteBatchWriter | KafkaliteStreamWriter) -> None:
    found = pickle.loads(pickle.dumps(value))
    assert (type(found), found.__dict__) == (type(value), value.__dict__)


@pytest.mark.behaviour("Versions", "Driver and worker of two versions: the write fails with a sentence that names both")
@pytest.mark.parametrize("value", [SPEC, KafkaliteBatchWriter(SPEC), KafkaliteStreamWriter(SPEC)])
def test_other_version_is_refused_with_both_named(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(value)
    monkeypatch.setattr(one_version, "VERSION", "7.8.9")
    # A name that the worker's version lacks is not what the user reads.
    monkeypatch.delattr(writers, "KafkaliteBatchWriter")
    expected = f"the driver has kafkalite {VERSION}, and a Python worker has 7.8.9 (imported from "
    with pytest.raises(ConfigError, match=re.escape(expected)):
        pickle.loads(pickled)

"""Two plans of one batch number: comparison of their rows by the metadata of Spark's checkpoint."""

from __future__ import annotations

import json

import pytest

from kafka_sink.spark.streaming import checkpoint
from kafka_sink.spark.streaming.checkpoint import OffsetLogError, planned_offsets
from tests.support.cases import with_each

V1 = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d}\n%s'
FILE = '{"path":"file:///in/%s","timestamp":%d,"batchId":%d}'


class Files(dict[str, str]):
    """A checkpoint in memory."""

    def names(self, folder: str) -> list[str]:
        return [path.split("/")[1] for path in self if path.startswith(f"{folder}/")]

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        if path not in self:
            raise FileNotFoundError(path)
        data = self[path].encode()
        return data[-most:], len(data) <= most


def kafka(*ends: str, planned_ms: int = 17) -> Files:
    return Files({f"offsets/{version}": V1 % (planned_ms, end) for version, end in enumerate(ends)})


def digest(files: Files) -> str:
    found = planned_offsets(files)
    assert found.version == max(map(int, files.names("offsets")))
    assert not found.unknown
    return found.digest


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "The same offsets are the same rows, whenever they were planned",
)
def test_same_offsets_have_same_digest_whenever_planned() -> None:
    planned = digest(kafka('{"t":{"0":5,"1":7}}', '{"t":{"0":9,"1":7}}'))
    assert len(planned) == 16
    assert planned == digest(kafka('{"t":{"0":5,"1":7}}', '{"t":{"1":7,"0":9}}', planned_ms=99))


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "Another end, another beginning or another source are other rows",
)
@with_each("ends", [("1", "3"), ("0", "2"), ("1\n4", "2\n4"), ("1", "2", "2"), ("-", "2"), ("1", "-"), ("1", '"2"')])
def test_other_end_beginning_or_source_has_another_digest(ends: tuple[str, ...]) -> None:
    assert digest(kafka(*ends)) != digest(kafka("1", "2"))


def test_the_entries_name_their_sources_in_version_2() -> None:
    one = Files({f"offsets/{n}": f"v1\n{{}}\n{n}\n-" for n in (0, 1)})
    two = Files({f"offsets/{n}": f"v2\n{{}}\n1:-\n0:{n}" for n in (0, 1)})
    assert digest(one) == digest(two)


def test_a_batch_may_be_asked_for_by_its_number() -> None:
    files = kafka("1", "2", "3")
    assert planned_offsets(files, 1).digest == digest(kafka("1", "2"))
    with pytest.raises(FileNotFoundError):
        planned_offsets(files, 3)


def of_files(*logs: str) -> Files:
    """A query of files, each of whose batches has one entry of the source's log."""
    files = kafka(*(json.dumps({"logOffset": number}) for number in range(len(logs))))
    return Files({**files, **{f"sources/0/{number}": f"v1\n{log}" for number, log in enumerate(logs)}})


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows", "Other files under the same offset are other rows"
)
def test_other_files_under_the_same_offset_are_other_rows() -> None:
    first = FILE % ("a", 1, 0)
    planned = digest(of_files(first, FILE % ("b", 2, 1)))
    assert planned == digest(of_files(first, FILE % ("b", 2, 1)))
    for others in (FILE % ("c", 2, 1), FILE % ("b", 3, 1), f"{FILE % ('b', 2, 1)}\n{FILE % ('c', 2, 1)}"):
        assert planned != digest(of_files(first, others))


def test_files_are_found_in_an_entry_that_holds_all_before_it() -> None:
    files = of_files(FILE % ("a", 1, 0), FILE % ("b", 2, 1))
    planned = digest(files)
    files["sources/0/1.compact"] = f"v1\n{FILE % ('a', 1, 0)}\n{FILE % ('b', 2, 1)}"
    del files["sources/0/1"]
    assert digest(files) == planned


def test_only_the_end_of_a_long_file_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    files = of_files(FILE % ("a", 1, 0), FILE % ("b", 2, 1))
    planned = digest(files)
    del files["sources/0/1"]
    long = "\n".join(FILE % (f"a{number}", 1, 0) for number in range(100))
    files["sources/0/1.compact"] = f"v1\n{long}\n{FILE % ('b', 2, 1)}"
    monkeypatch.setattr(checkpoint, "MOST_BYTES", 1000)
    assert digest(files) == planned
    files["sources/0/1.compact"] = "v1\n" + "\n".join(FILE % (f"b{number}", 2, 1) for number in range(100))
    with pytest.raises(OffsetLogError, match="more than 1000 bytes for one batch"):
        planned_offsets(files)


def test_failed_start_leaves_a_file_entry_that_counts() -> None:
    files = of_files(FILE % ("a", 1, 0), FILE % ("b", 2, 1), FILE % ("c", 3, 2))
    files["offsets/1"] = files.pop("offsets/2")
    planned = digest(files)
    files["sources/0/1"] = f"v1\n{FILE % ('d', 2, 1)}"
    assert digest(files) != planned


@with_each(
    ("files", "text"),
    [
        (Files(), "its offset log is empty"),
        (Files({"offsets/.0.crc": "", "offsets/x.tmp": ""}), "its offset log is empty"),
        (Files({"offsets/0": "v3\n{}\n1"}), "entry of batch 0 in its offset log has another format: 'v3'"),
        (Files({"offsets/0": 'v1\n{}\n{"logOffset":99}'}), "the file log of its source 0 has 100 entries"),
        (Files({"offsets/0": 'v1\n{}\n{"logOffset":0}', "sources/0/0": "v7"}), "sources/0/0 has another format"),
    ],
)
def test_unknown_offset_log_content_is_an_error_that_says_why(files: Files, text: str) -> None:
    with pytest.raises(OffsetLogError, match=text):
        planned_offsets(files)

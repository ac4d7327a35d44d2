"""What is mutated, the tests that must notice it, and the mutants that change nothing."""

from __future__ import annotations

from typing import Final, NamedTuple


class Target(NamedTuple):
    """The modules of *sources*, files and folders of ``kafka_sink``, are mutated, in these *names* (empty: everywhere).
    The *tests*, those first that notice most, must notice it."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    names: frozenset[str] = frozenset()


def _unit(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{package}/test_{name}.py" for name in names)


_OF_RECORDS: Final = ("tests/unit/records", "tests/unit/columns", "tests/golden/test_records_golden.py")

TARGETS: Final = {
    "situation": Target(("exactly_once/situation.py",), _unit("exactly_once", "situation")),
    "description": Target(
        ("exactly_once/transactions.py",),
        _unit("exactly_once", "situation", "decision"),
        frozenset({"COMPLETING_MS", "NO_RECORD_MS", "_RECORD_MS", "record_of", "TransactionDescription"}),
    ),
    "progress": Target(
        ("exactly_once/progress.py",),
        _unit("exactly_once", "progress", "same_rows", "decision", "manifest"),
        # Without the documents of groups, which are not decided on.
        frozenset(
            [
                "_FIRST_DENSE",
                "_BITS",
                "_GROUP_BYTES",
                "_SHIFTS",
                "_METADATA_LIMIT",
                "_FIRST_READ",
                "_MOST_PARTS",
                "_LAST_MOMENT_S",
                "_LEAST_ENTRY",
                "_LEAST_END",
                "encode_lists",
                "_dense",
                "_undense",
                "decode_lists",
                "_transactions_of_process",
                "latest_batch",
                "_FirstPart",
                "ProgressStore",
            ]
        ),
    ),
    "writers": Target(("exactly_once/writing.py",), _unit("exactly_once", "writing")),
    "columns": Target(("columns",), ("tests/unit/columns", "tests/unit/records/test_vectorized.py")),
    "encoding": Target(
        tuple(f"records/{name}.py" for name in ("batch", "layout", "reference", "vectorized")), _OF_RECORDS
    ),
    "decoding": Target(
        tuple(f"records/{name}.py" for name in ("reader", "spans", "compacted", "message_sets", "control")), _OF_RECORDS
    ),
    "validation": Target(("records/validation.py", "records/compression.py"), _OF_RECORDS),
    "batching": Target(
        ("producer/batching",),
        _unit(
            "producer",
            *("producer_batch", "batch_drain", "accumulator", "column_append", "buffer_pool", "batch_split"),
        ),
    ),
    "partitioners": Target(
        ("producer/plugins/built_in_partitioner.py", "producer/plugins/partitioner.py"),
        (*_unit("producer", "built_in_partitioner", "partitioner", "murmur2"), "tests/unit/producer"),
    ),
    "log": Target(("broker/log",), ("tests/unit/broker/log",)),
    "bounded": Target(("common/bounded.py",), _unit("common", "bounded", "latest")),
}

#: Mutants that change nothing, by the target and a part of their text, with the reason.
EQUIVALENT: Final[dict[tuple[str, str], str]] = {
    ("bounded", "without the element _"): "a type",
    ("situation", "element LogTransaction"): "a type",
    ("situation", "element TopicPartition"): "a type",
    ("situation", ": 0 -> 1"): "the time-out before the fence, and the partitions before a look, which nothing reads",
    ("columns", "binary_column:30: 1 -> 2"): "whether little data is copied whole or only its end",
    ("columns", "binary_column:30: 14 -> 15"): "whether little data is copied whole or only its end",
    ("columns", "binary_column:186: Lt -> LtE"): "whether little data is copied whole or only its end",
    ("columns", "binary_column:87: without offsets_buffer is None"): "pyarrow refuses an array of rows without offsets",
    ("columns", "binary_column:91: buffer is None -> never"): "pyarrow refuses an array of bytes without data",
    ("columns", "without validity is not None"): "pyarrow counts no nulls where there is no bitmap of them",
    ("columns", "binary_column:98: null_mask is not None -> always"): "numpy takes None for False: all lengths stay",
    ("columns", "binary_column:139: self.null_mask is None -> never"): "numpy counts nothing in None",
    ("columns", "binary_column:148: LtE -> Lt"): "all lengths are equal: the first of them, or those of the rows",
    ("columns", "fixed and len(indices) <= len(self) -> never"): "all lengths are equal: whether they are copied",
    ("columns", "binary_column:188: at -> always"): "adds 0",
    ("columns", "binary_column:191: LtE -> Lt"): "what reads windows near the end reads all",
    ("columns", "not rows or int(starts.max()) <= last -> never"): "what reads windows near the end reads all",
    ("columns", "without int(starts.max()) <= last"): "what reads windows near the end reads all",
    ("columns", "binary_column:198: Gt -> GtE"): "the padded copy has the last whole window too",
    ("columns", "gather:37:"): "how much of freed memory glibc keeps, for speed",
    ("columns", "gather:43: 1 -> 2"): "a larger table, of whose numbers from 8192 on none is looked up",
    ("columns", "gather:43: 13 -> 14"): "a larger table, of whose numbers from 8192 on none is looked up",
    ("columns", ": 63 -> 64"): "a shift of 64 bits with a sign by 63 or more leaves the sign, in Python and in numpy",
    ("columns", ": low < 0 -> always"): "a number that is not negative stays as it is",
    ("columns", "gather:59: 0 -> 1"): "a number that is not negative stays as it is",
    ("columns", "gather:59: Lt -> LtE"): "a number that is not negative stays as it is",
    ("columns", "gather:104: 0 -> 1"): "a bound that is 0 takes one byte, which is the least size either way",
    ("columns", "gather:104: Lt -> LtE"): "a bound that is 0 takes one byte, which is the least size either way",
    ("columns", "low >= 0 and max_size <= 2 -> never"): "small varints are computed in place of looked up",
    ("columns", "gather:105: 0 -> 1"): "small varints are computed in place of looked up",
    ("columns", "gather:105: GtE -> Gt"): "small varints are computed in place of looked up",
    ("columns", "gather:105: LtE -> Lt"): "small varints are computed in place of looked up",
    ("columns", "len(words) == 1 -> never"): "the loop over the words makes the same field of the only one",
    ("columns", "gather:175: is_fixed -> never"): "the mask of each row's length is that of the length of all",
    ("columns", "gather:178: start -> always"): "subtracts 0",
    ("columns", "gather:219: 0 -> 1"): "at first there is no view that could have room",
    ("columns", "gather:223: 0 -> 1"): "a column is no list of fields, whatever room there is",
    ("columns", "not (isinstance(field.word, int) and field.word == 0) -> always"): "writes zeros over zeros",
    ("columns", "nearest < _WORD_BYTES -> always"): "a shift by 64 or more yields zeros",
    ("columns", "gather:248: Lt -> LtE"): "a shift by 64 or more yields zeros",
    ("columns", "farthest > _WORD_BYTES -> always"): "zeros of what ends in the lower half",
    ("columns", "gather:250: Gt -> GtE"): "zeros of what ends in the lower half",
    ("columns", "isinstance(left, int) and isinstance(right, int) -> "): "numpy takes numbers too",
    ("columns", "gather:259: without isinstance"): "numpy takes numbers beside arrays",
    ("columns", "gather:268: without isinstance"): "numpy takes numbers beside arrays",
    ("columns", "isinstance(left, int) and left == 0 -> never"): "bits of which none is set change nothing",
    ("columns", "gather:279: isinstance(position, int) -> always"): "numpy shifts by an array like by a number",
    ("columns", "gather:280: isinstance(word, int) -> always"): "no bit of a word of an array is beyond the mask",
    ("columns", "isinstance(position, int) -> never"): "numpy 2 shifts by its numbers; numpy 1 fails",
    ("columns", "isinstance(word, int) -> never"): "numpy 2 shifts a number like an array; numpy 1 fails",
    ("columns", "gather:290: 0 -> 1"): "a shift by 0 in one direction or the other, of whole bytes",
    ("columns", "gather:290: GtE -> Gt"): "a shift by 0 in one direction or the other",
    ("columns", "column.min_length <= INLINE_BYTES -> always"): "looks for short rows where there are none",
    ("columns", "record_columns:56: array.null_count -> always"): "looks for null rows where there are none",
    ("columns", "len(structs) == 0 -> never"): "the join of no headers is empty too",
    ("columns", "record_columns:69: False -> True"): "rows that all are empty and at 0 are contiguous",
    ("columns", "not missing.any() -> never"): "looks for rows with what is missing where nothing is",
    ("columns", "varint:37: LShift -> RShift"): "no varint is looked up",
    ("columns", "0 <= value < _SMALL_LIMIT -> never"): "a small varint is computed in place of looked up",
    ("columns", "varint:43: 0 -> 1"): "a small varint is computed in place of looked up",
    ("columns", "varint:43: LtE -> Lt"): "a small varint is computed in place of looked up",
    ("columns", "varint:48: 0 -> 1"): "a small varint is computed in place of looked up",
    ("columns", "varint:48: LtE -> Lt"): "a small varint is computed in place of looked up",
    ("columns", "(byte := data[position]) < 128 -> never"): "a number of one byte is read like any other",
    ("encoding", "batch:131: 0 -> 1"): "the CRC's place, which is written over when the CRC is known",
    ("encoding", "entries -> always"): "no headers have no entries, however they are encoded",
    ("encoding", "isinstance(sizes, int) -> always"): "a copy of the array",
    ("encoding", "highest <= _UINT8_MAX -> never"): "wider numbers have the same order; sorting takes longer",
    ("encoding", "highest <= _UINT16_MAX -> never"): "wider numbers have the same order; sorting takes longer",
    ("encoding", "vectorized:102: LtE -> Lt"): "wider numbers have the same order; sorting takes longer",
    ("encoding", "isinstance(values, int) -> never"): "the same length for all rows, as an array instead of a number",
    ("encoding", "vectorized:134: 24 -> 25"): "both encoders write the same bytes, and 24 is a matter of speed",
    ("encoding", "vectorized:166: Lt -> LtE"): "both encoders write the same bytes",
    ("encoding", "count < _FEW_RECORDS -> always"): "both encoders write the same bytes",
    ("encoding", "self.keys.count(None) == count -> never"): "a column of nulls has the bytes of no column; speed",
    ("encoding", "not self.headers -> never"): "headers that are 0 for all rows have the bytes of no headers; speed",
    ("encoding", "None in cells -> always"): "a mask without a null",
    ("encoding", "vectorized:206: True -> False"): "rows that are contiguous are found without this hint, too; speed",
    ("decoding", "spans:19: without the element"): "a type",
    ("decoding", "spans:21: without the element"): "a type",
    ("decoding", "spans:26: 4096 -> 4097"): "how many places are kept at a time, which only costs memory",
    ("decoding", "spans:27: 8 -> 9"): "from how many records on they are passed over together; speed",
    ("decoding", "spans:49: 0 -> 1"): "read only with a part of a record, for which it is set",
    ("decoding", "spans:51: Lt -> LtE"): "none is left to pass over",
    ("decoding", "without index < first"): "none is left to pass over",
    ("decoding", "min(first, count) - index)) -> never"): "records are passed over one by one; speed",
    (
        "decoding",
        "spans:74: GtE -> Gt",
    ): "the least record has one byte more, with its length, and is not there either way",
    ("decoding", "(more := data[position + 1]) < 128 -> never"): "the function reads lengths of two bytes, too; speed",
    ("decoding", "spans:87: 0 -> 1"): "any number below the least length ends the run",
    ("decoding", "spans:87: 1 -> 2"): "any number below the least length ends the run",
    ("decoding", "spans:87: Gt -> GtE"): "any number below the least length ends the run",
    ("decoding", "size > 0 -> always"): "any number below the least length ends the run",
    ("decoding", "spans:101: 0 -> 1"): "read only with a part of a record, for which it is set",
    ("decoding", "spans:102: 0 -> 1"): "read only with a part of a record, for which it is set",
    ("decoding", "self._held >= self._needed -> always"): "the parts are joined, and found to be too few; speed",
    ("decoding", "spans:148: Add -> Sub"): "records are passed over one by one; speed",
    ("decoding", "spans:149: BitAnd -> BitOr"): "records are passed over one by one; speed",
    ("decoding", "spans:149: Gt -> GtE"): "127 is a negative length, which the next condition refuses",
    ("decoding", "stride <= LEAST_BYTES -> always"): "records are passed over one by one; speed",
    ("decoding", "spans:152: 0 -> 1"): "the first record has the length of the first record",
    ("decoding", "spans:153: Lt -> LtE"): "at the most there is nothing to count, or it is cut off below",
    ("decoding", "count < most -> never"): "records are passed over one by one; speed",
    ("decoding", "spans:155: Add -> Sub"): "fewer or more lengths are compared at once, each with the first one; speed",
    ("decoding", "spans:155: Mult -> FloorDiv"): "fewer lengths are compared at once; speed",
    ("decoding", "spans:158: Lt -> LtE"): "fewer records are passed over together; speed",
    ("decoding", "same < step -> always"): "fewer records are passed over together; speed",
    ("decoding", "spans:160: 8 -> 9"): "how many lengths are compared at once; speed",
    ("decoding", "spans:161: Gt -> GtE"): "eight records are passed over together; speed",
    ("decoding", "count > _FEW ->"): "few records are passed over together, or many one by one; speed",
    ("decoding", "compacted:68: 1 -> 2"): "a start below each delta of 64 bits",
    ("decoding", "compacted:68: 63 -> 64"): "a start below each delta of 64 bits",
    (
        "decoding",
        "without header.compression is CompressionType.LZ4",
    ): "no checksum makes other codecs' data lz4 frames",
    ("decoding", "message_sets:174: 0 -> 1"): "a frame so short gets its checksum at its end",
    ("decoding", "message_sets:174: Gt -> GtE"): "a frame so short gets its checksum at its end",
    ("decoding", "reader:103: Gt -> GtE"): "the same number",
    ("decoding", "position + 1 == end and (not data[position]) -> never"): "the way of any number of headers; speed",
    ("decoding", "reader:207: 128 -> 129"): "any number from 128 on has the length read as a whole",
    ("decoding", "position < end -> never"): "the length is read as a whole; speed",
    ("decoding", "size < 128 -> never"): "the length is read as a whole; speed",
}

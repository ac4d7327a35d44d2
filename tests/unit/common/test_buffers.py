"""Sizes are counted in bytes whatever the view's item size."""

from __future__ import annotations

import array

from kafka_sink.common.buffers import total_size


def test_total_size_of_all_kinds_of_buffers() -> None:
    assert total_size([b"abc", bytearray(2), memoryview(b"defg")[1:]]) == 8


def test_total_size_counts_bytes_not_items() -> None:
    assert total_size([memoryview(array.array("q", [1, 2]))]) == 16


def test_total_size_of_a_generator_and_of_nothing() -> None:
    assert total_size(bytes(size) for size in (1, 2)) == 3
    assert total_size([]) == 0

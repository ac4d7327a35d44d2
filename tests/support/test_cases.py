from __future__ import annotations

import pytest

from tests.support.cases import with_each


@pytest.mark.parametrize("broken", [None, 1, 4])
def test_cases_after_a_skipped_one_are_tried(broken: int | None) -> None:
    tried: list[int] = []

    @with_each("case", [1, 2, 3, 4])
    def run(case: int) -> None:
        tried.append(case)
        if case in (2, 3):
            pytest.skip("not here")
        assert case != broken

    with pytest.raises(pytest.skip.Exception if broken is None else AssertionError) as caught:
        run()
    assert tried == [1, 2, 3, 4]
    assert broken or str(caught.value) == "2 of 4 cases: not here"

"""MemToolAgent's number of recalled runs, worked by hand."""

from __future__ import annotations

import pytest

from langgraph_toolmem.papers.memtoolagent import dynamic_n, first_peak


@pytest.mark.parametrize(
    ("similarities", "expected"),
    [
        # 21 places around the fall: both 11 and 12 have a slope of (.1 - .9) * 55 / 770; the first of the two counts
        ([0.9] * 12 + [0.1] * 20, 11),
        # five places around each, since the list is short: the slopes are -.16, -.24, -.24, -.16
        ([0.9] * 4 + [0.1] * 4, 3),
        ([0.5] * 40, 5),
        ([0.9, 0.1], 5),
        ([], 5),
    ],
    ids=["a long list", "a short list", "no fall", "too short", "nothing"],
)
def test_the_list_is_cut_where_it_falls_fastest(similarities: list[float], expected: int) -> None:
    assert dynamic_n(similarities, most=50) == expected


def test_there_are_at_most_so_many() -> None:
    assert dynamic_n([0.9] * 12 + [0.1] * 20, most=4) == 4


@pytest.mark.parametrize(
    ("heights", "place"),
    [
        ([0, 1, 0, 3, 0], 1),
        ([0.0, 0.1, 0.0, 3, 0], 3),  # the first rises by less than the least prominence
        ([2, 3, 2.9, 5, 0], 3),  # to the right of the first nothing is lower by so much before it rises again
        ([0, 2, 2, 2, 0], 2),
        ([0, 1, 2], None),
        ([3, 2, 1], None),
        ([], None),
    ],
)
def test_the_first_peak_that_stands_out(heights: list[float], place: int | None) -> None:
    assert first_peak(heights, least_prominence=0.5) == place

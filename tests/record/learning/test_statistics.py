"""The numbers of a tensor, against those of its elements one by one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from jobrecord.learning import statistics  # noqa: E402
from jobrecord.learning.rows import Row  # noqa: E402


def columns(values: Any, divisor: Any = None, *, later: bool = True) -> dict[str, Any]:
    row = Row("t", "gradient", values).summarize(divisor, later=later).sample()
    Row.fetch([row])
    return row.columns()


@pytest.mark.parametrize("later", [False, True])
def test_vector_of_statistics(later: bool) -> None:
    found = columns(torch.tensor([0, -2, 3, 0, math.nan, math.inf]), later=later)

    assert [found[one] for one in ("count", "nan", "inf", "zero")] == [6, 1, 1, 2]
    assert [found[one] for one in ("sum", "l1", "l2", "min", "max")] == [1, 5, 3.606, -2, 3]
    assert (found["hist_first"], found["hist"], found["positive"]) == (2, [2], 0.5)


def test_vector_of_the_histogram() -> None:
    found = columns(torch.tensor([0.75, 1.0, 1.5, 2.0, 0.001]))

    assert found["hist_first"] == -9
    assert found["hist"] == [1, *[0] * 8, 1, 2, 1]


@pytest.mark.parametrize(
    ("count", "stride", "sampled"),
    [(0, 1, 0), (1, 1, 1), (65_536, 1, 65_536), (65_537, 3, 21_846), (200_000, 5, 40_000)],
)
def test_vector_of_the_sample(count: int, stride: int, sampled: int) -> None:
    elements = torch.arange(count)
    assert statistics.stride(count) == stride
    assert statistics.sample(elements).tolist() == [*range(0, count, stride)]
    assert len(range(0, count, stride)) == sampled


def plain(values: list[float]) -> dict[str, float]:
    """Reference without PyTorch, in exact sums."""
    finite = [one for one in values if math.isfinite(one)]
    return {
        "nan": sum(map(math.isnan, values)),
        "inf": sum(map(math.isinf, values)),
        "zero": values.count(0),
        "sum": math.fsum(finite),
        "l1": math.fsum(map(abs, finite)),
        "l2": math.hypot(*finite),
        "min": min(finite, default=math.nan),
        "max": max(finite, default=math.nan),
    }


TENSORS = {
    "normal": torch.randn(1000, generator=torch.Generator().manual_seed(0)),
    "huge": torch.tensor([3e38, -2e38, 1e38]),
    "tiny": torch.tensor([1e-30, -3e-30, 0.0, 1e-25]),
    "subnormal": torch.tensor([1e-44, 3e-44]),
    "infinite": torch.tensor([math.inf, -math.inf, 2.0]),
    "nothing finite": torch.tensor([math.nan, math.inf]),
    "zeros": torch.zeros(5),
    "half": torch.tensor([65_504.0, -65_504.0, 1e-7]).half(),
    "bfloat16": torch.tensor([1e38, -1e38, 3.0]).bfloat16(),
    "float64": torch.tensor([1e300, -1e200, 1e-300], dtype=torch.float64),
    "transposed": torch.arange(12.0).reshape(3, 4).T,
    "expanded": torch.tensor([2.0]).expand(3, 4),
}


@pytest.mark.parametrize("name", TENSORS)
def test_numbers_are_those_of_the_finite_elements(name: str) -> None:
    tensor = TENSORS[name]
    wanted = plain(tensor.double().reshape(-1).tolist())

    found = columns(tensor)

    for column, value in wanted.items():
        if math.isnan(value):
            assert found[column] is None
        else:
            assert found[column] == pytest.approx(value, rel=6e-4, abs=1e-45), column


@pytest.mark.parametrize("name", TENSORS)
def test_bins_hold_the_finite_elements_that_are_not_zero(name: str) -> None:
    values = [one for one in TENSORS[name].double().reshape(-1).tolist() if one and math.isfinite(one)]
    bins = Counter(min(max(math.frexp(one)[1], -40), 23) for one in values)

    found = columns(TENSORS[name])

    counts = {found["hist_first"] + place: one for place, one in enumerate(found["hist"]) if one}
    assert counts == bins
    share = sum(one > 0 for one in values) / len(values) if values else None
    assert found["positive"] == (None if share is None else pytest.approx(share, rel=1e-3))


def test_large_tensors_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    tensor[7], tensor[300] = 0, math.nan
    whole = columns(tensor)
    monkeypatch.setattr(statistics, "_CHUNK", 64)
    assert columns(tensor) == whole
    assert columns(tensor.nan_to_num()) != whole


def test_a_dense_tensor_is_not_copied() -> None:
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert statistics.flat(images).data_ptr() == images.data_ptr()
    assert statistics.flat(images.permute(1, 0, 3, 2)).data_ptr() == images.data_ptr()


def test_a_divisor_counts_before_anything_is_added() -> None:
    scaled = columns(torch.tensor([3.0, 4.0]) * 65_536, torch.tensor(65_536.0))
    assert scaled == columns(torch.tensor([3.0, 4.0]))
    assert scaled["l2"] == 5


def test_the_ratio_of_an_update() -> None:
    weight, moved = torch.tensor([3.0, 4.0]), torch.tensor([0.03, 0.04])
    for before, wanted in ((weight, 0.01), (weight * 0, None)):
        row = Row("t", "update", weight)
        row.add("ratio", torch.linalg.vector_norm(moved), torch.linalg.vector_norm(before))
        Row.fetch([row])
        assert row.columns()["ratio"] == wanted


@pytest.mark.parametrize(("size", "factor", "most"), [(200_000, 1, 0.01), (4_000_000, 1, 0.007)])
def test_a_sample_stands_for_the_whole(size: int, factor: int, most: float) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(size, generator=generator)
    moved = torch.randn(size, generator=generator) * factor * 1e-3
    whole = (moved.norm() / weight.norm()).item()
    part = (statistics.sample(moved).norm() / statistics.sample(weight).norm()).item()
    assert part == pytest.approx(whole, rel=most)

"""Statistics of a tensor, computed on its device; `fetched` brings many of them to the host at once."""

from __future__ import annotations

from math import inf, isfinite, sqrt
from typing import Any

import torch

#: Elements of which a sample is taken, and of which statistics are computed at a time, so that copies stay small.
SAMPLE, _CHUNK = 65_536, 1 << 22
#: Exponents of the histogram: magnitudes in [2**(e-1), 2**e).
LOWEST, HIGHEST = -40, 23
#: Where a number has its exponent: as a whole number, its bits, and what it is too high by for ``frexp``.
_EXPONENTS: dict[Any, tuple[Any, int, int, int]] = {
    torch.float32: (torch.int32, 23, 255, 126),
    torch.float64: (torch.int64, 52, 2047, 1022),
}
#: What `summary` and `exact` return.
SUMMARY = ("nan", "inf", "zero", "sum", "l1", "l2", "min", "max")
#: Magnitudes below which squares lose digits in float32.
_SMALL = 1e-17


def local(tensor: Any) -> Any:
    """What this rank holds of a tensor, apart from the graph."""
    held = tensor.detach()
    return held.to_local() if hasattr(held, "to_local") else held


def is_dense(tensor: Any) -> bool:
    """Whether all elements are there."""
    return tensor.layout == torch.strided and not tensor.is_nested


def flat(tensor: Any) -> Any:
    """All elements in one axis, in the order of memory, so that a dense tensor is not copied."""
    axes = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    ordered = tensor.permute(axes).reshape(-1)
    return torch.view_as_real(ordered.resolve_conj()).reshape(-1) if ordered.is_complex() else ordered


def stride(count: int) -> int:
    """How far elements of the sample are apart; odd, so that it meets all columns of a matrix."""
    apart = -(-count // SAMPLE)
    return max(1, apart + (apart % 2 == 0))


def sample(elements: Any) -> Any:
    """Some elements, evenly spread, in float32 or wider."""
    return _wide(elements[:: stride(elements.numel())])


def summary(elements: Any, divisor: Any = None) -> Any:
    """``SUMMARY`` of elements, none of which is taken for NaN or infinite: `is_doubtful` says whether one may be."""
    return _joined([_quick(_wide(part, divisor)) for part in elements.split(_CHUNK)])


def exact(elements: Any, divisor: Any = None) -> Any:
    """``SUMMARY`` of elements, over the finite ones."""
    return _joined([_careful(_wide(part, divisor)) for part in elements.split(_CHUNK)])


def is_doubtful(values: list[float], count: int) -> bool:
    """Whether a `summary` may hold elements that are not finite, or magnitudes whose squares are not."""
    l1, l2 = values[SUMMARY.index("l1")], values[SUMMARY.index("l2")]
    return not isfinite(l2) or (l1 > 0 and l2 < _SMALL * sqrt(count))


def histogram(taken: Any) -> Any:
    """How many elements of a sample are positive, and how many lie in each bin; none of those that are not finite."""
    whole, shift, mask, bias = _EXPONENTS[taken.dtype]
    exponents = (taken.contiguous().view(whole) >> shift) & mask
    if taken.device.type == "cpu":
        counts = torch.bincount(exponents, minlength=mask + 1)
    else:
        # The other call waits for the device.
        counts = torch.zeros(mask + 1, dtype=torch.int64, device=taken.device)
        counts.scatter_add_(0, exponents.long(), torch.ones_like(exponents, dtype=torch.int64))
    # The lowest bin has what is below it, too, down to numbers without an exponent.
    low, high = bias + LOWEST + 1, bias + HIGHEST
    lowest = torch.count_nonzero(taken) - counts[low:].sum()
    positive = torch.count_nonzero(taken > 0) - torch.count_nonzero(taken == inf)
    highest = counts[high:mask].sum()
    first, below, above = (one.reshape(1) for one in (positive, lowest, highest))
    return torch.cat([first, below, counts[low:high], above]).double()


def fetched(vectors: list[Any]) -> list[list[float]]:
    """The numbers of vectors, with one copy from each device."""
    places: dict[Any, list[int]] = {}
    for place, vector in enumerate(vectors):
        places.setdefault(vector.device, []).append(place)
    found: list[list[float]] = [[] for _ in vectors]
    for of_device in places.values():
        numbers = torch.cat([vectors[place].double() for place in of_device]).tolist()
        begin = 0
        for place in of_device:
            found[place] = numbers[begin : (begin := begin + vectors[place].numel())]
    return found


def _wide(elements: Any, divisor: Any = None) -> Any:
    elements = elements.to(torch.promote_types(elements.dtype, torch.float32))
    return elements if divisor is None else elements / divisor


def _quick(part: Any) -> Any:
    low, high = torch.aminmax(part)
    zero = part.numel() - torch.count_nonzero(part)
    l1, l2 = (torch.linalg.vector_norm(part, order) for order in (1, 2))
    none = torch.zeros_like(low)
    return torch.stack([one.double() for one in (none, none, zero, part.sum(), l1, l2, low, high)])


def _careful(part: Any) -> Any:
    nan, infinite = part.isnan().sum(), part.isinf().sum()
    low = part.nan_to_num(inf, inf, inf).amin().double()
    high = part.nan_to_num(-inf, -inf, -inf).amax().double()
    known = part.nan_to_num(0.0, 0.0, 0.0)
    # Sums of what is at most 1 neither overflow nor vanish.
    most = torch.maximum(high, -low)
    most = torch.where(most > 0, most, 1.0)
    known = known / most.to(known.dtype)
    l1, l2 = (torch.linalg.vector_norm(known, order).double() * most for order in (1, 2))
    zero = part.numel() - torch.count_nonzero(part)
    return torch.stack(
        [nan.double(), infinite.double(), zero.double(), known.sum().double() * most, l1, l2, low, high]
    )


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    every = torch.stack(parts)
    norm = torch.linalg.vector_norm(every[:, 5]).reshape(1)
    return torch.cat(
        [every[:, :5].sum(0), norm, every[:, 6].amin().reshape(1), every[:, 7].amax().reshape(1)]
    )

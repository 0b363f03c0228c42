"""Names of kernels, short enough to be read."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_INNERMOST = re.compile(r"<[^<>]*>|\([^()]*\)|\{[^{}]*\}")
#: Return type and namespaces of most kernels of PyTorch.
_NOISE = re.compile(r"^void |\(anonymous namespace\)::|\bat::native::")
#: What a general kernel does: ``MulFunctor<``, ``sum_functor<``; else ``tanh_kernel_cuda(``, ``cutlass_80_tensorop_…``.
_FUNCTOR = re.compile(r"\w*functor\w*(?=<)", re.IGNORECASE)
_FUNCTION = re.compile(r"(?!gpu_kernel_impl)\b\w+_kernel_(?:cuda|impl)(?=[(<])|\bcutlass_\w+")

#: Characters of the place in which two names differ.
_PIECE = 16


def short_name(name: str) -> str:
    """``elementwise_kernel<MulFunctor>``: without return type, arguments, and most of those of templates."""
    if "::" not in name and "<" not in name:
        return name
    outer = _NOISE.sub("", name)
    while outer != (plain := _INNERMOST.sub("", outer)):
        outer = plain
    # A name that is cut has brackets without a partner.
    kernel = re.split(r"[<({]", outer, maxsplit=1)[0].rpartition(" ")[2].strip(":")
    does = [*_FUNCTOR.findall(name)[-1:], *_FUNCTION.findall(name)]
    function = next((one for one in does if one != kernel), "")
    return (f"{kernel}<{function}>" if function else kernel) or name


def short_names(names: Sequence[str]) -> dict[str, str]:
    """``short_name`` of each; of those that it makes equal, with the place from which on they differ."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        alike[short_name(name)].append(name)
    return {
        name: short + piece for short, same in alike.items() for name, piece in _differences(same).items()
    }


def _differences(names: Sequence[str]) -> dict[str, str]:
    """A piece of each name, long enough that all pieces differ; empty of a single one."""
    if len(names) == 1:
        return {names[0]: ""}
    letters = enumerate(zip(*names, strict=False))
    begin = next((i for i, some in letters if len(set(some)) > 1), min(map(len, names)))
    while begin and (names[0][begin - 1].isalnum() or names[0][begin - 1] == "_"):
        begin -= 1
    size = _PIECE
    while len({name[begin : begin + size] for name in names}) < len(names):
        size *= 2
    return {name: f" …{name[begin : begin + size]}{'…' * (len(name) > begin + size)}" for name in names}

"""Names of kernels, short enough to be read."""

from __future__ import annotations

import re

_INNERMOST = re.compile(r"<[^<>]*>|\([^()]*\)|\{[^{}]*\}")
#: Return type and namespaces of most kernels of PyTorch.
_NOISE = re.compile(r"^void |\(anonymous namespace\)::|\bat::native::")
#: What a general kernel does: ``MulFunctor<``, ``sum_functor<``; else ``tanh_kernel_cuda(``, ``cutlass_80_tensorop_…``.
_FUNCTOR = re.compile(r"\w*functor\w*(?=<)", re.IGNORECASE)
_FUNCTION = re.compile(r"(?!gpu_kernel_impl)\b\w+_kernel_(?:cuda|impl)(?=[(<])|\bcutlass_\w+")


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

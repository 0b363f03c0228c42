"""What the name of an event of a trace says about it."""

from __future__ import annotations

import re
from itertools import repeat
from operator import contains
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, CodeArray

COMPUTE, COMMUNICATION, COPY = range(3)

_COPIES = (
    "Memcpy", "Memset", "hipMemcpy", "hipMemset", "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBuffer",
    "MEMORY_COPY_", "dma",
)  # fmt: skip
#: In names in lower case; some begin with another one.
_COMMUNICATION_BEGIN = "hccl"
_COMMUNICATION = (
    "nccl", "rccl", "msccl", "xccl", "oneccl", "deep_ep::", "nvshmem", "cross_device_reduce",
    "one_shot_all_reduce", "two_shot_all_reduce", "multimem_all_reduce",
)  # fmt: skip
LOADER = re.compile(r"enumerate\(Data(?:Loader|Pipe)\)#")
BLOCKING = re.compile(
    r"(?:(?:cuda|hip)(?:Device|Stream|Event)Synchronize|cu(?:Ctx|Stream|Event)Synchronize"
    r"|(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol)?|hipMemcpyWithStream|hipMemcpy(?:DtoH|HtoD)"
    r"|urEventWait|urQueueFinish|piEventsWait|piQueueFinish"
    r"|ze(?:Event|Fence|CommandList)HostSynchronize|zeCommandQueueSynchronize)\Z"
)
ALLOCATION = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|FreeHost|HostFree|MallocHost|HostMalloc|MallocManaged)"
    r"|cuMem(?:Alloc|Free|Create|Map|Unmap|Release|AddressReserve)"
)
STEP = re.compile(r"ProfilerStep\s*#\s*\d{1,15}\Z")
PARAM_COMMS = "record_param_comms"

#: A copy from or to memory of the host that blocks, by the copy itself.
_PAGEABLE = ("Pageable",)
_TENSOR_BEGIN = "bmm_"
_TENSOR = (
    "884", "1688", "16816", "hmma", "xmma_", "tensorop", "gmma", "nvjet", "flash_fwd", "flash_bwd", "fmha",
    "_MI4x", "_MI16x", "_MI32x", "mfma", "wmma", "attn_fwd",
)  # fmt: skip
_NO_TENSOR = (
    "sgemm", "dgemm", "cgemm", "zgemm", "scudnn", "_engine<float", "_engine<double", "gemv", "fft2d",
    "convolve_common_engine_float",
)  # fmt: skip


def matching(names: Sequence[str], pattern: re.Pattern[str], *used: CodeArray) -> BoolArray:
    """(names,) which names a pattern matches from their beginning, of those at the positions in use."""
    matches, own = _used(names, *used)
    matches[matches] = np.fromiter(map(bool, map(pattern.match, own)), np.bool_, len(own))
    return matches


def classes(names: Sequence[str], used: CodeArray) -> CodeArray:
    """(names,) class of a kernel of each name in use."""
    is_used, own = _used(names, used)
    small = [*map(str.lower, own)]
    found = np.where(
        _begin_with(small, _COMMUNICATION_BEGIN) | _have(small, _COMMUNICATION), COMMUNICATION, COMPUTE
    )
    kinds = np.full(len(names), COMPUTE, np.int32)
    kinds[is_used] = np.where(_begin_with(own, _COPIES), COPY, found)
    return kinds


def are_pageable(names: Sequence[str], used: CodeArray) -> BoolArray:
    """(names,) which names in use are of copies from or to memory of the host that block."""
    matches, own = _used(names, used)
    matches[matches] = _have(own, _PAGEABLE)
    return matches


def tensor_cores(names: Sequence[str]) -> tuple[BoolArray, BoolArray]:
    """(n,) whether kernels of these names use tensor cores, and whether they do not; neither if the name does not tell."""
    uses = _begin_with(names, _TENSOR_BEGIN) | _have(names, _TENSOR)
    return uses, ~uses & _have(names, _NO_TENSOR)


def _used(names: Sequence[str], *used: CodeArray) -> tuple[BoolArray, Sequence[str]]:
    """(names,) which names are at the positions in use, and these."""
    is_used = np.zeros(len(names), np.bool_)
    for codes in used:
        is_used[codes] = True
    return is_used, names if is_used.all() else [names[one] for one in np.flatnonzero(is_used).tolist()]


def _begin_with(names: Sequence[str], words: str | tuple[str, ...]) -> BoolArray:
    return np.fromiter(map(str.startswith, names, repeat(words)), np.bool_, len(names))


def _have(names: Sequence[str], words: Sequence[str]) -> BoolArray:
    """(n,) which names have one of the words: a name may be that of a single event, and most words are in none."""
    text = "\n".join(names)
    found = np.zeros(len(names), np.bool_)
    for word in words:
        if word in text:
            found |= np.fromiter(map(contains, names, repeat(word)), np.bool_, len(names))
    return found

"""What the name of an event of a trace says about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, CodeArray

COMPUTE, COMMUNICATION, COPY = range(3)

_COPY = re.compile(r"(?:hip)?Mem(?:cpy|set)|__amd_rocclr_(?:copy|fill)Buffer|MEMORY_COPY_|dma")
_COMMUNICATION = re.compile(
    r"hccl|.*(?:nccl|rccl|msccl|xccl|oneccl|deep_ep::|nvshmem|cross_device_reduce"
    r"|(?:one|two)_shot_all_reduce|multimem_all_reduce)",
    re.IGNORECASE | re.DOTALL,
)
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
#: A copy from or to memory of the host that blocks, by the copy itself.
PAGEABLE = re.compile(r".*Pageable", re.DOTALL)
STEP = re.compile(r"ProfilerStep\s*#\s*\d{1,15}\Z")
PARAM_COMMS = "record_param_comms"

_TENSOR = re.compile(
    r".*(?:[hsi]?(?:884|1688|16816)|hmma|xmma_|tensorop|gmma|nvjet|flash_(?:fwd|bwd)|fmha|_MI(?:4|16|32)x|mfma|wmma|attn_fwd)"
    r"|bmm_",
    re.DOTALL,
)
_NO_TENSOR = re.compile(
    r".*(?:[sdcz]gemm|scudnn|_engine<(?:float|double)|gemv|fft2d|convolve_common_engine_float)", re.DOTALL
)


def matching(names: Sequence[str], pattern: re.Pattern[str], *used: CodeArray) -> BoolArray:
    """(names,) which names a pattern matches from their beginning, of those at the positions in use."""
    matches = np.zeros(len(names), np.bool_)
    for codes in used:
        matches[codes] = True
    some = np.flatnonzero(matches)
    own = names if len(some) == len(names) else [names[one] for one in some.tolist()]
    matches[some] = np.fromiter(map(bool, map(pattern.match, own)), np.bool_, len(own))
    return matches


def classes(names: Sequence[str], used: CodeArray) -> CodeArray:
    """(names,) class of a kernel of each name in use."""
    found = np.where(matching(names, _COMMUNICATION, used), COMMUNICATION, COMPUTE)
    return np.where(matching(names, _COPY, used), COPY, found).astype(np.int32)


def uses_tensor_cores(name: str) -> bool | None:
    """Whether a kernel of this name uses tensor cores; None if the name does not tell."""
    if _TENSOR.match(name):
        return True
    return False if _NO_TENSOR.match(name) else None

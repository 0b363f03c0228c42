"""NoTensorCores: matrix kernels run without tensor cores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import HowMuch, Reason, ReasonKind
from jobrules.rule import percent
from jobrules.rules.traces.shares import ProfiledGPU, ShareRule
from jobrules.text import escape_name
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact
    from jobrules.model.captures import DeviceCapture

#: CUDA devices of this generation or later have tensor cores, and so do AMD's of these names.
_FIRST_WITH, _FIRST_WITH_TF32 = 7, 8
_AMD = re.compile(r"\bMI\d", re.IGNORECASE)
#: Share of computing that has to be told by its kernels' names.
_MIN_TOLD = 0.2

_NO_PROPERTIES = Reason(kind=ReasonKind.NOT_RECORDED, what="the model of the GPU in the trace")
_WITHOUT = Reason(kind=ReasonKind.NOT_APPLICABLE, what="the profiled GPUs have no tensor cores")
_NOT_TOLD = Reason(
    kind=ReasonKind.OTHER,
    what=f"kernels for less than {100 * _MIN_TOLD:g}% of computing have names that show whether they use tensor cores",
)


@dataclass(frozen=True, kw_only=True)
class NoTensorCores(ShareRule):
    """Matrix kernels run without tensor cores.

    What it checks
        The share of computing in kernels that, by their names, multiply matrices without tensor cores, if those with
        tensor cores have less than half as much.

    Why it matters
        Tensor cores multiply matrices several times faster, in half or TF32 precision.

    What to do
        * Train in mixed precision: `torch.autocast`.
        * On Ampere GPUs or later, at least allow TF32: `torch.backends.cuda.matmul.allow_tf32 = True`.

    Details
        Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that. Only names of
        kernels are known. GPUs before Volta (compute capability 7.0) have no tensor cores.
    """

    title: ClassVar[str] = "Matrix kernels run without tensor cores"
    section: ClassVar[str] = "kernels"
    whole: ClassVar[str] = "of computing"
    late_by: ClassVar[str] = "computing"

    threshold: float = percent(20.0, "computing without tensor cores, from which it is a finding")
    warning_threshold: float = percent(50.0, "the same, from which it is a warning")

    def counted_ns(self, device: DeviceCapture) -> int:
        """Kernels that multiply matrices without tensor cores."""
        return device.no_tensor_core_ns

    def whole_ns(self, gpu: ProfiledGPU) -> int:
        """All computing kernels."""
        return gpu.sum(lambda device: device.compute_total_ns)

    def missing(self, gpu: ProfiledGPU) -> Reason | None:
        """Some GPUs have no tensor cores, and many names of kernels say nothing."""
        majors = {capture.compute_major for capture in gpu.captures} - {None}
        amd = any(_AMD.search(device.name) for device in gpu.devices)
        if not majors and not amd:
            return _NO_PROPERTIES
        if not amd and max(major or 0 for major in majors) < _FIRST_WITH:
            return _WITHOUT
        return None if self.part_ns(gpu) + _with(gpu) >= _MIN_TOLD * self.whole_ns(gpu) else _NOT_TOLD

    def counts(self, part: float, gpus: Sequence[ProfiledGPU]) -> bool:
        """With tensor cores in use, what remains may be meant so."""
        return part >= self.threshold and 2 * sum(map(_with, gpus)) < sum(map(self.part_ns, gpus))

    def advice(self, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """GPUs before Ampere have no TF32."""
        majors = [major for gpu in gpus for one in gpu.captures if (major := one.compute_major)]
        advice = self.documentation().advice
        return advice[:1] if majors and max(majors) < _FIRST_WITH_TF32 else advice

    def sentence(self, part: float, gpus: Sequence[ProfiledGPU]) -> str:
        """With the model of the GPU."""
        models = {device.name for gpu in gpus for device in gpu.devices} - {""}
        on = f" on {escape_name(models.pop())}" if len(models) == 1 else ""
        return f"{in_percent(part)} of computing runs in matrix kernels without tensor cores{on}"

    def finding_title(self, part: float, gpus: Sequence[ProfiledGPU]) -> str:
        """The fact with its number."""
        return self.sentence(part, gpus)

    def facts(self, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
        """The share with tensor cores."""
        part = 100 * sum(map(_with, gpus)) / sum(map(self.whole_ns, gpus))
        return (HowMuch("Computing with tensor cores", part, "%"),)


def _with(gpu: ProfiledGPU) -> int:
    return gpu.sum(lambda device: device.tensor_core_ns)

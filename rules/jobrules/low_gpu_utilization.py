"""LowGPUUtilization: a GPU is busy for only part of the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.boxplot import quartiles
from jobrules.job import Metric
from jobrules.result import Finding, Measure, RuleResult, Status
from jobrules.rule import Rule, patience_reason, percent, samples, severity_of
from jobrules.windows import Windows, judged, trailing_quantiles
from jobrules.words import between, count, listed, share
from jobrules.words import percent as in_percent

if TYPE_CHECKING:
    from jobrules.job import FloatArray, IntArray, Job


@dataclass(frozen=True, kw_only=True)
class LowGPUUtilization(Rule):
    """A GPU is busy for only part of the time.

    What it checks
        Looks at the last ``window`` samples of every GPU once a minute, after ``patience`` samples.
        Low: their 95th percentile is below ``threshold_p95``. Fluctuating: the 95th percentile
        reaches ``threshold_p95`` while the 5th is below ``threshold_p5``.

    Why it matters
        An idle GPU costs what a busy one costs, and is usually the dearest part of the machine.

    What to do
        Find what the GPU waits for: data loading, synchronisation, checkpoints. If it waits for
        nothing, raise the batch size or take a machine with fewer or smaller GPUs.
    """

    title: ClassVar[str] = "GPU utilisation is low or fluctuates"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_USE,)
    section: ClassVar[str] = "gpu-use"

    threshold_p95: float = percent(70.0, "a window whose 95th percentile is below is low")
    threshold_p5: float = percent(
        10.0, "a window that reaches threshold_p95 with its 5th below this fluctuates"
    )
    window: int = samples(500, "samples of one GPU that are judged together")
    patience: int = samples(1000, "samples of one GPU that are seen before it is judged")

    def check(self, job: Job) -> RuleResult:
        """Counts are of windows of one GPU: eight low GPUs in one minute count eight."""
        grid = Windows.of(job)
        details: dict[str, Any] = {}
        seen_per_series: dict[str, int] = {}
        hits: list[IntArray] = []
        evaluated = low = fluctuating = 0
        for panel in job.panels_of(Metric.GPU_USE):
            for column, gpu in enumerate(panel.devices):
                time_us, values = panel.series(column)
                seen_per_series[f"{panel.node}/{gpu}"] = len(values)
                seen = grid.seen(time_us)
                at = judged(seen, self.patience)
                ends = seen[1:][at]
                q5, q95 = trailing_quantiles(values, ends, self.window, (0.05, 0.95)).T
                is_low = q95 < self.threshold_p95
                swings = ~is_low & (q5 < self.threshold_p5)
                hit = np.flatnonzero(is_low | swings)
                evaluated += len(at)
                low += int(is_low.sum())
                fluctuating += int(swings.sum())
                if len(hit):
                    hits.append(at[hit])
                    last = hit[-1]
                    details.setdefault(panel.node, {})[gpu] = {
                        "gpu_max": float(values[: ends[last]].max()),
                        "gpu_95": float(q95[last]),
                        "gpu_5": float(q5[last]),
                        **quartiles(values[: ends[last]]),
                        "low": int(is_low.sum()),
                        "fluctuating": int(swings.sum()),
                        "unused": bool(values.max() <= 0),
                        "window_end": int(grid.starts_us[at[last]] + grid.width_us),
                        "window_used": int(min(self.window, ends[last])),
                        "job": _whole_job(values),
                    }
        violating = low + fluctuating
        most = max(seen_per_series.values())
        facts: dict[str, Any] = {
            "datapoints": most,
            "datapoints_per_series": seen_per_series,
            "counted": "one-minute windows of a GPU",
        }
        if not evaluated:
            return self.not_evaluated(patience_reason(most, self.patience), **facts)
        facts |= {
            "triggered": violating,
            "violations": violating,
            "evaluated": evaluated,
            "violating": violating,
            "measure": Measure(
                value=round(100 * violating / evaluated, 1),
                limits=(0.0,),
                scale=100.0,
                unit="% of windows",
                limit_text="triggers on any",
            ),
        }
        if not violating:
            headline = "Every GPU stayed busy in every window"
            return RuleResult(
                rule=self.name, status=Status.PASSED, headline=headline, details=details, **facts
            )
        starts = grid.starts_us[np.concatenate(hits)]
        first_us, last_us = int(starts.min()), int(starts.max())
        details["last_timestamp"] = last_us
        end_us = last_us + grid.width_us
        finding = self._finding(
            details, len(seen_per_series), (low, fluctuating, evaluated), first_us, end_us
        )
        return RuleResult(
            rule=self.name,
            status=Status.TRIGGERED,
            headline=finding.title,
            findings=(finding,),
            details=details | {"low": low, "fluctuating": fluctuating},
            first_us=first_us,
            last_us=end_us,
            **facts,
        )

    def _finding(
        self,
        details: dict[str, Any],
        gpu_count: int,
        windows: tuple[int, int, int],
        first_us: int,
        end_us: int,
    ) -> Finding:
        low, fluctuating, evaluated = windows
        part = (low + fluctuating) / evaluated
        kind = "low" if not fluctuating else "fluctuating" if not low else "low or fluctuating"
        gpus = [
            f"{node} {gpu}" for node, found in details.items() if isinstance(found, dict) for gpu in found
        ]
        which = "All GPUs" if len(gpus) == gpu_count > 1 else listed(gpus)
        p95, p5 = in_percent(self.threshold_p95), in_percent(self.threshold_p5)
        told = [
            *([f"{count(low, 'window')} with p95 below {p95}"] if low else []),
            *(
                [f"{count(fluctuating, 'window')} with p95 above {p95} and p5 below {p5}"]
                if fluctuating
                else []
            ),
        ]
        return Finding(
            key="low-gpu-utilization",
            severity=severity_of(part),
            title=f"GPU use was {kind} in {share(part)} of the windows judged",
            evidence=f"{which}, {between(first_us, end_us)}. {'; '.join(told)}.",
            advice=self.documentation().advice,
            rules=(self.name,),
            section=self.section,
            share=part,
            share_of="of windows",
            start_us=first_us,
            end_us=end_us,
        )


def _whole_job(values: FloatArray) -> dict[str, float]:
    return {"gpu_max": float(values.max()), "n": len(values), **quartiles(values)}

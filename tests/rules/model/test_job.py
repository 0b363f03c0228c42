from __future__ import annotations

from jobrules.model import Job, JobInMemory, Metric
from tests.copies import replace
from tests.jobs import make_job, make_panel


def test_a_value_is_computed_once_for_each_job() -> None:
    calls: list[Job] = []

    def of(job: Job) -> int:
        calls.append(job)
        return len(calls)

    job = make_job(gpu=[1.0])

    assert [job.once(of), job.once(of)] == [1, 1]
    assert replace(job, name="other").once(of) == 2


def test_sensors_that_are_read_rarely_do_not_slow_the_sampling_interval() -> None:
    rare = [
        Metric.GPU_TEMPERATURE,
        Metric.GPU_CLOCK,
        Metric.HOST_MEMORY_USED,
        Metric.CPU_PRESSURE,
        Metric.FREE_SPACE,
    ]
    job = JobInMemory(
        name="",
        panels=(
            make_panel(Metric.GPU_UTILIZATION, [1.0] * 600),
            make_panel(Metric.CPU_UTILIZATION, [1.0] * 600),
            *(make_panel(metric, [1.0] * 60, interval_s=5.0) for metric in rare),
        ),
    )

    assert job.interval_us == 500_000
    assert JobInMemory(name="").interval_us == 0


def test_instances_of_a_divided_gpu_are_gpus_and_it_is_none() -> None:
    board = make_panel(Metric.GPU_POWER, [[100.0, 100.0]] * 3)
    instances = make_panel(Metric.GPU_MEMORY_USED, [[1.0, 1.0, 1.0]] * 3)
    job = JobInMemory(name="", panels=(replace(instances, devices=("gpu0-mig1", "gpu0-mig3", "gpu1")), board))

    assert job.facts[0].gpus == {"gpu0-mig1", "gpu0-mig3", "gpu1"}

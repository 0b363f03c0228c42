"""Two clocks at one moment, however busy the machine is."""

from __future__ import annotations

from jobrecord.clocks import read_both


def test_a_pause_between_two_readings_is_no_step_of_the_clock() -> None:
    moment = 0.0
    pauses = iter([0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0])

    def clock(base: float) -> float:
        nonlocal moment
        moment += next(pauses)
        return base + moment

    steady, wall = read_both(lambda: clock(0.0), lambda: clock(1_700_000_000.0))

    assert wall - steady == 1_700_000_000.0

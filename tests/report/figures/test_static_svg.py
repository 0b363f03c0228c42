"""The static drawings say the same as the live ones."""

from __future__ import annotations

from jobreport.figures.static_svg import static_ring
from tests.report.sections import examples


def test_wedges_cover_the_ring_and_a_whole_is_closed() -> None:
    assert [w.key for w in static_ring(examples.gpu_job().phases.phases)] == ["before", "loop", "after"]
    assert "A" in static_ring(examples.cpu_job().phases.phases)[0].path
    assert static_ring(examples.single_sample().phases.phases) == ()

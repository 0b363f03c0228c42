"""The table of the parts of a time."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from jobreport.comparison import runs as compared
from jobreport.page.sections.captures import idle_time, profiled_time
from jobrules import RULES
from jobrules.analyses import goodput
from jobrules.model.time_parts import TIME_PARTS, Role
from jobrules.rules.traces.shares import CaptureRule
from jobrules.verdict import profiled
from jobrules.verdict.accounting import UNEXPLAINED

#: Fills of each role.
FAMILIES: dict[Role, set[str]] = {
    "used": {"u", "u2", "u3", "u4"},
    "lost": {"l", *(f"l{i}" for i in range(2, 12))},
    "outside": {"n1", "n2", "f2", "f3"},
    "unknown": {"x"},
}


def test_the_color_of_a_part_is_of_its_role() -> None:
    assert [key for key, one in TIME_PARTS.items() if one.fill not in FAMILIES[one.role]] == []


def test_a_name_is_that_of_one_color() -> None:
    """But the phases of the job: start-up is outside of training, and GPU time that is lost in it is lost."""
    shown = {(one.of_device, one.fill) for one in TIME_PARTS.values()}
    assert len(shown) == len({label for label, _ in shown}) == len(TIME_PARTS)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(goodput.PARTS, id="goodput"),
        pytest.param(compared.PARTS, id="profiled time of a comparison"),
        pytest.param(
            (
                "computing",
                *{rule.part for rule in RULES if issubclass(rule, CaptureRule) and rule.part},
                *profiled._OTHERS,
            ),
            id="profiled time",
        ),
        # Transfers are known where waiting is.
        pytest.param([key for key in profiled_time.PARTS if key != "communication"], id="devices"),
        pytest.param(
            ("used", "start-up", "wind-down", "cpu-bottleneck", "data-loading", *UNEXPLAINED, "other-causes"),
            id="GPUs",
        ),
        pytest.param(("used", *(f"core-{key}" for key in UNEXPLAINED)), id="cores"),
        pytest.param(("before", "loop", "after"), id="phases"),
    ],
)
def test_no_two_parts_of_one_bar_look_alike(keys: Collection[str]) -> None:
    assert len({TIME_PARTS[key].fill for key in keys}) == len(keys)


def test_causes_of_idle_time_differ_unless_they_are_not_known() -> None:
    fills = [one.fill for one in idle_time.CAUSES.values() if one.role != "unknown"]
    assert len(set(fills)) == len(fills)

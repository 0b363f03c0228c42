"""What the sections on traces of PyTorch's profiler say and draw."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from jobreport import pipeline
from jobreport.document import Report, from_json, to_json
from jobreport.options import Options
from jobreport.page import sections
from jobreport.page.figures import theme
from jobreport.page.figures.captures import profiled_steps as drawings
from jobreport.page.figures.models import GlyphRenderer, Plot, Quad
from jobreport.page.figures.rank_times import RankTimes, Shades, heat_map
from jobreport.page.sections.captures.kernel_names import short_name, short_names
from jobreport.page.sections.captures.kernels import kernel_sums, operator_sums
from jobreport.page.sections.captures.parts import captures_of, devices_of, odd_first
from jobreport.page.sections.captures.profiled_time import PARTS, parts_of
from jobreport.page.sections.outline import OF_CAPTURES
from jobrules.captures.across import joined
from jobrules.captures.own_times import own_times
from jobrules.model.captures import IDLE_CAUSES, AcrossRanks, Capture, CaptureStep, HostPart
from jobrules.model.time_parts import named
from tests.copies import replace
from tests.kineto import Recording, capture
from tests.paths import SAMPLES
from tests.report.page.sections import example_captures, examples
from tests.report.page.sections.html import Page
from tests.report.page.sections.jobs_with_defects import rows

FOUR, ACROSS = example_captures.ranks()
ANCHORS = sorted(OF_CAPTURES)


def report(*captures: Capture, across: AcrossRanks | None = None) -> Report:
    made = replace(examples.empty_job(), captures=captures)
    return replace(made, across_ranks=across) if across else made


def html(made: Report, anchor: str) -> str:
    found: str = getattr(sections, anchor.replace("-", "_"))(made).html
    return found


def text(made: Report, anchor: str) -> str:
    return Page.of(html(made, anchor)).text.replace("\u00a0", " ")


OF_FOUR = report(*FOUR, across=ACROSS)
ALONE = report(example_captures.alone())


def of_host() -> Report:
    """A trace without GPU activity."""
    trace = Recording(0)
    trace.operator("aten::mm", 0, 10)
    with TemporaryDirectory() as folder:
        return report(capture(Path(folder), trace))


def incomplete(which: Capture) -> Capture:
    return replace(which, devices=(replace(which.devices[0], complete=False),))


def shown(anchor: str, made: Callable[[], Report]) -> Callable[[], sections.Fragment]:
    return lambda: getattr(sections, anchor.replace("-", "_"))(made())


WITHOUT_NAMES = replace(FOUR[1], operators=(), marks=(), devices=(replace(FOUR[1].devices[0], kernels=()),))
JOBS = tuple(replace(FOUR[i], world_size=size) for i, size in ((0, 8), (1, 16)))
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "profiled time of four": shown("profiled-time", lambda: OF_FOUR),
    **{f"{anchor} of the host": shown(anchor, of_host) for anchor in ANCHORS},
    "profiled time of several jobs": shown(
        "profiled-time", lambda: report(*JOBS, replace(FOUR[2], devices=()))
    ),
    "head of several jobs": shown("head", lambda: report(*JOBS, replace(FOUR[2], devices=()))),
    "profiled time with missing events": shown("profiled-time", lambda: report(incomplete(FOUR[0]))),
    "idle time with missing events": shown("idle-time", lambda: report(incomplete(FOUR[0]))),
    "idle time with missing events of one": shown("idle-time", lambda: report(FOUR[0], incomplete(FOUR[1]))),
    "communication of one rank": shown(
        "communication",
        lambda: report(FOUR[0], across=replace(ACROSS, ranks=(0,), reason="one_rank", waiting=())),
    ),
    "kernels named on one of two": shown("kernels", lambda: report(FOUR[0], WITHOUT_NAMES)),
    "steps of one": shown("profiled-steps", lambda: ALONE),
}


def ms(cell: str) -> float:
    return float(cell.replace(",", ""))


def quads(plot: Plot) -> list[Any]:
    return [one for one in plot.renderers if isinstance(one, GlyphRenderer) and isinstance(one.glyph, Quad)]


# --- numbers


def test_the_parts_of_each_rank_are_those_of_the_model_and_add_up() -> None:
    found = rows(OF_FOUR, "profiled-time", "Profiled time of each device in parts")

    assert [row["Device"] for row in found] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    for row, device in zip(found, devices_of(OF_FOUR), strict=True):
        parts = {
            part: ms(row[f"{named(part).title} (ms)"]) for part in PARTS if f"{named(part).title} (ms)" in row
        }
        assert parts == pytest.approx(
            {k: v / 1e6 for k, v in parts_of(device.device).items() if k in parts}, abs=0.006
        )
        assert sum(parts.values()) == pytest.approx(ms(row["Profiled (ms)"]), abs=0.05)
        assert sum(parts_of(device.device).values()) == device.device.window_ns
        shares = [ms(value) for name, value in row.items() if name.endswith("(%)") and "usy" not in name]
        assert sum(shares) == pytest.approx(100, abs=0.4)


def test_the_causes_of_idle_time_are_those_of_the_model() -> None:
    for row, device in zip(
        rows(OF_FOUR, "idle-time", "Idle time of each device by cause"), devices_of(OF_FOUR), strict=True
    ):
        times = [ms(value) for name, value in row.items() if name.endswith(" (ms)")]
        causes = [ns / 1e6 for cause in IDLE_CAUSES if (ns := device.device.idle_by_cause_ns[cause])]
        assert times == pytest.approx([device.device.idle_ns / 1e6, *causes], abs=0.006)


def test_what_the_host_did_is_summed_over_captures() -> None:
    parts = (HostPart(name="", time_ns=3_000_000), HostPart(name="aten::item", time_ns=1_500_000))
    two = report(*(replace(one, host_parts=parts[i:]) for i, one in enumerate(FOUR[:2])))

    found = rows(two, "idle-time", "What the host did while devices waited for a launch")

    assert [tuple(row.values())[:2] for row in found] == [
        ("outside any operator (Python)", "3.000"),
        ("aten::item", "3.000"),
    ]


def test_own_time_is_the_step_without_waiting() -> None:
    own = own_times(FOUR)
    found = rows(OF_FOUR, "profiled-steps", "Own time of each rank in each step")

    for row, one, times in zip(found, FOUR, own.ns, strict=True):
        waiting = [step.exposed_waiting_ns or 0 for step in one.devices[0].steps]
        truth = [step.host_ns - ns for step, ns in zip(one.step_times, waiting, strict=True)]
        assert times.tolist() == truth
        assert [ms(row[f"Step {number}"]) for number in example_captures.STEPS] == pytest.approx(
            [ns / 1e6 for ns in truth], abs=0.006
        )
    assert {row["Longest on"] for row in rows(OF_FOUR, "profiled-steps", "Steps over all ranks")} == {
        "rank 2"
    }


def test_kernels_are_summed_over_ranks() -> None:
    found = {one.first.name: one for one in kernel_sums(devices_of(OF_FOUR))}
    printed = rows(OF_FOUR, "kernels", "Kernels by time")

    assert found["sm90_gemm"].calls == 12
    assert found["sm90_gemm"].total_ns == 3 * 8_000_000 + 3 * (4000 + 4100 + 4200) * 1000
    assert found["sm90_gemm"].median_ns is None
    (gemm,) = (row for row in printed if row["Kernel"] == "sm90_gemm")
    assert (gemm["Calls"], ms(gemm["Total (ms)"])) == ("12", 60.9)
    assert "Median (ms)" not in gemm
    assert "Median (ms)" in rows(ALONE, "kernels", "Kernels by time")[0]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("volta_sgemm_128x64_tn", "volta_sgemm_128x64_tn"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
            "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int, float)",
            "vectorized_elementwise_kernel<MulFunctor>",
        ),
        (
            "void at::native::(anonymous namespace)::elementwise_kernel<128, at::native::gpu_kernel_impl<at::native::"
            "tanh_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lam…",
            "elementwise_kernel<tanh_kernel_cuda>",
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 7>(T)",
            "internal::gemvx::kernel",
        ),
        ("<" * 512, "<" * 512),
    ],
)
def test_names_of_kernels_are_short_enough_to_be_read(name: str, short: str) -> None:
    assert short_name(name) == short


def test_names_of_different_kernels_stay_different() -> None:
    fill = "void at::native::vectorized_elementwise_kernel<{}, at::native::FillFunctor<{}>, Array<char*, 1>>(int)"
    names = [fill.format(4, "float"), fill.format(8, "float"), fill.format(4, "c10::Half"), "gemm"]

    short = short_names([*names, names[0]])

    assert list(short) == names
    assert len({*short.values()}) == len(names)
    assert short["gemm"] == "gemm"
    assert all(
        one.startswith("vectorized_elementwise_kernel<FillFunctor> …") for one in list(short.values())[:3]
    )


def test_operators_are_summed_over_ranks_and_steps_are_none() -> None:
    found = operator_sums([one for capture in FOUR for one in capture.operators])

    (mm,) = (one for one in found if one.name == "aten::mm")
    assert (mm.calls, mm.self_ns, mm.device_self_ns) == (12, 1_200_000, 60_900_000)
    marks = rows(OF_FOUR, "kernels", "Marks by time")
    assert [(row["Mark"], row["Calls"]) for row in marks] == [("## backward ##", "12")]


# --- drawings


def test_every_rank_and_step_is_a_cell_of_its_shade() -> None:
    times = np.array([[1.0, 2.0, np.nan], [3.0, 11.0, 0.0]])
    ends = np.full(3, 1.0)
    found = RankTimes(
        names=["rank 0", "rank 1"],
        steps=["5", "6", "7"],
        what="Time",
        unit="ms",
        digits=2,
        times=times,
        shortest=ends,
        median=ends,
        longest=ends,
    )
    figure = heat_map(found, Shades(low=-1.0, high=9.0))

    cells = {
        (rank, step): renderer.glyph.fill_color
        for renderer in quads(figure.live)[:-1]
        for rank, step in zip(
            renderer.data_source.data["rank"], renderer.data_source.data["step"], strict=True
        )
    }
    colors = theme.light()
    assert cells == {
        ("rank 0", "5"): colors["h1"],
        ("rank 0", "6"): colors["h2"],
        ("rank 1", "5"): colors["h3"],
        ("rank 1", "6"): colors["h9"],
        ("rank 1", "7"): colors["h0"],
    }
    assert len(figure.drawing.areas) == 1


def luminance(color: str) -> float:
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def rows_of_shades(made: str, ranks: int) -> np.ndarray:
    """(ranks,) mean luminance of the row of each rank in the static heat map."""
    colors = theme.light()
    cells: list[list[float]] = [[] for _ in range(ranks)]
    for style, path in re.findall(r'<path class="(h\d)" d="([^"]+)"', made):
        for top in re.findall(r"M[\d.]+ ([\d.]+)H", path):
            cells[int(float(top) / 100 * ranks)].append(luminance(colors[style]))
    return np.array([np.mean(row) for row in cells])


@pytest.mark.parametrize("ranks", [4, 16, 64, 1024])
def test_a_late_rank_stands_out_of_noise(ranks: int) -> None:
    """Steps of 56 ms with noise of 1 ms; one rank takes 30% longer. The first two steps take all ranks ten times as long."""
    late, noise = ranks // 2, np.random.default_rng(ranks)
    times = noise.normal(56e6, 1e6, (ranks, 24)).astype(np.int64)
    times[late] = times[late] * 13 // 10
    times[:, :2] *= 10
    ends = np.arange(1, 25) * 10**9
    captures = [
        replace(
            FOUR[0],
            rank=rank,
            file=f"r{rank}",
            devices=(),
            step_lines=None,
            step_times=tuple(
                CaptureStep(number=number, start_ns=end - ns, end_ns=end)
                for number, (end, ns) in enumerate(zip(ends.tolist(), of_rank, strict=True))
            ),
        )
        for rank, of_rank in enumerate(times.tolist())
    ]
    kept, across = joined(captures, ())
    made = report(*kept, across=across)

    names = [row["Rank"] for row in rows(made, "profiled-steps", "Time of each rank in each step")]
    drawn = rows_of_shades(html(made, "profiled-steps"), len(names))

    of_late = drawn[names.index(f"rank {late}")]
    others = np.delete(drawn, names.index(f"rank {late}"))
    assert others.mean() - of_late > 0.7
    assert others.min() - of_late > 10 * np.ptp(others)


def test_the_slowest_step_is_drawn_with_all_its_events() -> None:
    lines = example_captures.alone().step_lines
    assert lines is not None

    drawn = quads(drawings.one_step(lines).live)

    events = sum(int(np.sum(one.data_source.data["events"])) for one in drawn)
    assert events == sum(lane.events for lane in lines.lanes)
    assert drawings.lane_names(lines) == ["data loading", "marks", "launches", "stream 7", "stream 20"]


# --- many ranks


@pytest.fixture(scope="module")
def many() -> Report:
    """1,024 ranks, of which 700 is late."""
    usual, late = FOUR[0], FOUR[example_captures.LATE]
    captures = [
        replace(late if rank == 700 else usual, rank=rank, file=f"r{rank}", step_lines=None)
        for rank in range(1024)
    ]
    of_late = ACROSS.waiting[example_captures.LATE]
    waiting = tuple(replace(of_late if rank == 700 else ACROSS.waiting[0], rank=rank) for rank in range(1024))
    kept, across = joined(captures, ())
    assert across is not None
    return report(*kept, across=replace(ACROSS, ranks=across.ranks, waiting=waiting, steps=across.steps))


@pytest.mark.slow
def test_a_job_of_1024_ranks_names_the_odd_one_first_and_stays_small(many: Report) -> None:
    made = {anchor: html(many, anchor) for anchor in ANCHORS}

    # The scripts of a live page take 1.2 MB, of 2 MB.
    assert sum(map(len, made.values())) < 600_000
    for anchor, table in (
        ("profiled-time", "Profiled time of each device in parts"),
        ("communication", "Waiting between ranks"),
        ("profiled-steps", "Own time of each rank in each step"),
    ):
        found = rows(many, anchor, table)
        assert len(found) == 32
        assert next(iter(found[0].values())) == "rank 700"
        assert "992 " in text(many, anchor)


def test_the_data_of_1024_ranks_stay_small_and_have_the_parts_of_each(many: Report) -> None:
    written = to_json(many)

    assert len(written) < 3_000_000
    found = {one.rank: one for one in from_json(written).captures or ()}
    for one in found.values():
        (device,) = one.devices
        assert (one.steps, sum(device.idle_by_cause_ns.values())) == (3, device.idle_ns)
    stepped = [rank for rank, one in found.items() if one.step_times and one.devices[0].steps]
    assert len(stepped) == 64
    assert 700 in stepped
    assert {rank for rank, one in found.items() if one.devices[0].kernels} > {700}
    assert len([one for one in found.values() if one.memory]) == 64
    assert len([one for one in found.values() if one.memory and one.memory[0].allocated]) == 4


def test_steps_over_all_ranks_are_exact_where_few_ranks_have_times(many: Report) -> None:
    printed = rows(many, "profiled-steps", "Steps over all ranks")

    usual = {step.number: step.host_ns for step in FOUR[0].step_times}
    assert [row["Step"] for row in printed] == ["10", "11", "12"]
    for row, waited in zip(printed, FOUR[0].devices[0].steps, strict=True):
        own = (usual[waited.number] - (waited.exposed_waiting_ns or 0)) / 1e6
        assert (ms(row["Shortest (ms)"]), ms(row["Median (ms)"])) == (own, own)
        assert (row["Ranks"], row["Longest on"], ms(row["Longest (ms)"])) == ("1,024", "rank 700", 19)
    assert "192 steps of 64 of 1,024" in text(many, "profiled-steps")


def test_rows_farthest_from_the_median_come_first() -> None:
    values = [(50.0, 10.0)] * 70 + [(50.0, 90.0), (45.0, 10.0)]

    assert odd_first(values)[:3] == [70, 71, 0]
    assert odd_first(values[:64]) == list(range(64))


# --- names


def test_captures_of_one_rank_and_of_none_have_names_of_their_own() -> None:
    first, second = (replace(FOUR[1], file=name) for name in ("a.json", "b.json"))
    copy = replace(FOUR[1], file="c.json", copy_of="a.json")
    unknown = replace(example_captures.alone(), file="x" * 90)

    names = [row.name for row in captures_of(report(second, unknown, copy, first, FOUR[0]))]

    assert names[:3] == ["rank 0", "rank 1 (1)", "rank 1 (2)"]
    assert len(names) == 4
    assert len(names[3]) < 41
    assert "Left out: 1 file" in text(report(first, copy), "profiled-time")


def test_files_of_similar_names_are_cut_to_different_ones() -> None:
    files = [f"resnet50-workers{name}/worker0.pt.trace.json.gz" for name in ("0-a", "0-b", "4-a", "4-b")]
    made = report(*(replace(example_captures.alone(), file=file) for file in files))

    figure = Page.of(html(made, "profiled-time"))
    labels = [piece for piece in figure.pieces if piece.startswith("…")]

    assert [label[:5] for label in labels] == ["…0-a/", "…0-b/", "…4-a/", "…4-b/"]


def test_long_names_are_cut_to_different_ones() -> None:
    files = [f"{'a' * 60}{i}{'b' * 60}" for i in range(3)]

    names = {
        row.name
        for row in captures_of(report(*(replace(example_captures.alone(), file=file) for file in files)))
    }

    assert len(names) == 3


# --- what is missing


def test_a_step_without_events_is_not_drawn() -> None:
    lines = example_captures.alone().step_lines
    assert lines is not None
    empty = replace(example_captures.alone(), step_lines=replace(lines, bars=b"", lanes=()))

    assert "Slowest step" in text(ALONE, "profiled-steps")
    assert "Slowest step" not in text(report(empty), "profiled-steps")


@pytest.mark.slow
def test_a_page_without_traces_does_not_have_the_sections(tmp_path: Path) -> None:
    (sample,) = (path for path in SAMPLES if path.name == "cpu-only")

    pipeline.make_report(sample, tmp_path / "out", Options(static=True))
    page = (tmp_path / "out/report.html").read_text()

    assert 'id="close-ups"' in page
    assert not [anchor for anchor in ANCHORS if re.search(rf'(id="|href="#){anchor}"', page)]

from __future__ import annotations

import numpy as np
import pytest

from jobrules.causes.code_lines import NOWHERE, Rows, leading_line, places_of, sampled_lines
from tests.copies import replace
from tests.jobs import make_job
from tests.stacks import FORKED, Stack, make_stacks, plain

LOOP = ("train.py:90 <module>", "train.py:30 main")
FETCH = (
    "library:torch/utils/data/dataloader.py:700 __next__",
    "library:torch/utils/data/_utils/fetch.py:54 fetch",
)


@pytest.mark.parametrize(
    ("kind", "stack", "place"),
    [
        ("main", LOOP, "train.py:30 main"),
        ("main", (*LOOP, "library:torch/nn/modules/module.py:9 _call_impl"), "train.py:30 main → torch.nn.modules.module._call_impl"),
        # Own code that a library calls is the line, and that library is no call.
        ("main", (*LOOP, *FETCH, "data.py:41 load"), "data.py:41 load"),
        ("main", (*LOOP, *FETCH, "data.py:41 load", "library:PIL/Image.py:3 open", "python:io.py:5 read"), "data.py:41 load → PIL.Image.open"),
        # What only calls tells less than what it calls.
        ("main", (*LOOP, *FETCH), "train.py:30 main → torch.utils.data.dataloader.__next__"),
        ("main", (*LOOP, FETCH[0], "python:multiprocessing/queues.py:9 get", "python:selectors.py:4 select"), "train.py:30 main → torch.utils.data.dataloader.__next__"),
        ("main", (*LOOP, "python:queue.py:180 Queue.get", "python:threading.py:3 Condition.wait"), "train.py:30 main → queue.Queue.get"),
        ("main", (*LOOP, *FETCH, "library:torchvision/io/__init__.py:2 read_image"), "train.py:30 main → torchvision.io.read_image"),
        ("main", ("library:lib/cli.py:3 main", "library:lib/run.py:5 run"), "lib/cli.py:3 main → lib.run.run"),
        ("loader", (*FORKED, "python:multiprocessing/queues.py:100 get"), ""),
        ("loader", (*FORKED, FETCH[1], "data.py:41 load"), "data.py:41 load"),
        ("loader", (*FORKED, FETCH[1], "library:torchvision/datasets/folder.py:245 get", "library:PIL/Image.py:3 open"), "torchvision/datasets/folder.py:245 get → PIL.Image.open"),
    ],
)  # fmt: skip
def test_the_innermost_own_line_counts_with_what_it_called(kind: str, stack: Stack, place: str) -> None:
    stacks = replace(make_stacks([(0, stack)]), kind=kind)
    places, of_node = places_of(stacks)
    found = places[of_node[stacks.stack[0]]]
    assert (plain(found) if found != NOWHERE else "") == place


SLOW, OTHER = (*LOOP, "train.py:84 collate"), (*LOOP, "train.py:50 step")


@pytest.mark.parametrize(
    ("inside", "outside", "named"),
    [
        ((700, 300), (90, 910), True),
        ((49, 0), (0, 100), False),
        ((50, 0), (0, 0), True),
        # More than half, but perhaps by chance; and clearly more than half.
        ((30, 25), (0, 100), False),
        ((600, 400), (0, 100), True),
        # As often at other times.
        ((900, 100), (500, 500), False),
        ((900, 100), (449, 551), True),
    ],
)
def test_a_line_explains_a_time_with_most_of_its_samples_and_few_of_the_others(
    inside: tuple[int, int], outside: tuple[int, int], named: bool
) -> None:
    def rows(slow: int, other: int) -> list[Rows]:
        stacks = make_stacks(enumerate([SLOW] * slow + [OTHER] * other))
        job = replace(make_job(gpu=[50.0] * 4), stacks=(stacks,))
        return [(one, np.ones(len(one.count), np.bool_)) for one in sampled_lines(job)]

    found = leading_line(rows(*inside), rows(*outside) if sum(outside) else [])
    assert (found is not None) is named
    if found:
        assert (found.inside, found.of_inside) == (inside[0], sum(inside))
        assert (found.outside, found.of_outside) == (outside[0], sum(outside))


@pytest.mark.parametrize(("parts", "named"), [((30, 30, 30, 10), "data.py decode"), ((30, 10, 10, 50), "")])
def test_a_function_is_named_whose_lines_share_the_time(parts: tuple[int, ...], named: str) -> None:
    lines = [(*LOOP, f"data.py:{60 + i} decode") for i in range(3)] + [OTHER]
    stacks = make_stacks(enumerate(line for line, n in zip(lines, parts, strict=True) for _ in range(n)))
    (one,) = sampled_lines(replace(make_job(gpu=[50.0] * 4), stacks=(stacks,)))
    found = leading_line([(one, np.ones(len(one.count), np.bool_))], [])
    assert (plain(found.place) if found else "") == named

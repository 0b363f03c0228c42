from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobreport.errors import NothingReadableError
from jobreport.readers import event_files
from jobreport.readers.base import Found
from jobreport.readers.event_files import CutError, Records
from jobreport.readers.listing import listing
from jobreport.readers.registry import read_directory
from jobreport.readers.tally import Tally, UnusableError
from jobreport.readers.tensorboard.reader import TensorBoard
from jobrules.model.learning import EVALUATION, TRAINING, Scalars
from tests.event_writer import (
    START_S,
    event,
    event_file,
    field,
    masked,
    record,
    scalar,
    scalar_file,
    tensor,
    tensor_value,
)
from tests.paths import CORPUS, needs_corpus

NAME = "events.out.tfevents.1741514400.gpu-box.example.org.123.0"
FOLDER = CORPUS / "more" / "tensorboard"
LOSS = {step: 1 / (step + 1) for step in range(5)}
PLAIN = {"scalars": ""}


def read(directory: Path, files: dict[str, bytes] | bytes) -> Found:
    for name, content in (files if isinstance(files, dict) else {NAME: files}).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return of_directory(directory)


def of_directory(directory: Path) -> Found:
    reader = TensorBoard()
    files = listing(directory, Tally())
    assert all(reader.matches_name(file) for file in files)
    return reader.read(files)


def series(found: Found) -> dict[tuple[str, str], Scalars]:
    assert len(found.learning) <= 1
    return {(one.mode, one.name): one for learning in found.learning for one in learning.scalars}


def values(found: Found, name: str = "loss", mode: str = TRAINING) -> dict[int, float]:
    one = series(found)[mode, name]
    return dict(zip(one.step.tolist(), one.value.round(6).tolist(), strict=True))


def counts(found: Found) -> dict[str, int]:
    return {remark.code: remark.count for remark in found.quality.remarks}


def test_a_number_with_its_steps_and_times(tmp_path: Path) -> None:
    found = read(tmp_path, scalar_file("loss", {0: 2.5, 100: math.nan, 200: -math.inf}))

    (learning,) = found.learning
    assert (learning.node, learning.sources) == ("gpu-box.example.org", ("TensorBoard",))
    (one,) = learning.scalars
    assert (one.name, one.logged_as, one.mode, one.source, one.rank) == (
        *("loss", "loss", TRAINING),
        *("TensorBoard", 0),
    )
    np.testing.assert_array_equal(one.step, [0, 100, 200])
    np.testing.assert_array_equal(one.value, [2.5, math.nan, -math.inf])
    np.testing.assert_array_equal(one.time_us, (START_S + one.step) * 1e6)
    assert (found.quality.files, found.quality.rows, counts(found)) == (1, 3, {})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (scalar("x", 0.25), 0.25),
        (scalar("x" * 150, 0.25), 0.25),
        (field(2, 0.25) + field(1, b"x"), 0.25),
        (tensor_value("x", tensor(np.float32(0.25)), PLAIN), 0.25),
        (tensor_value("x", tensor(np.float64(0.1)), PLAIN), 0.1),
        (tensor_value("x", tensor(np.float32(0.25), as_5=struct.pack("<f", 0.25)), PLAIN), 0.25),
        (tensor_value("x", tensor(np.float64(0.1), as_6=struct.pack("<d", 0.1)), PLAIN), 0.1),
        (tensor_value("x", tensor(np.int32(-7)), PLAIN), -7),
        (tensor_value("x", tensor(np.int32(-7), as_7=b"\xf9" + b"\xff" * 8 + b"\x01"), PLAIN), -7),
        (tensor_value("x", tensor(np.int64(1 << 40), as_10=b"\x80\x80\x80\x80\x80\x20"), PLAIN), 1 << 40),
        (tensor_value("x", tensor(np.float16(0.25)), PLAIN), 0.25),
        (tensor_value("x", tensor(np.float16(0.25), as_13=b"\x80\x68"), PLAIN), 0.25),
        # Not scalars: without a plugin, of another one, with axes, damaged, a histogram, an image.
        (tensor_value("x", tensor(np.float32(0.25))), None),
        (tensor_value("x", tensor(np.float32(0.25)), {"images": ""}), None),
        (tensor_value("x", tensor(np.zeros(1, "f4")), PLAIN), None),
        (tensor_value("x", field(1, 1) + field(4, b"\0"), PLAIN), None),
        (
            tensor_value(
                "x", field(1, 1) + field(2, field(2, field(1, 0)) + field(2, field(1, 1 << 63))), PLAIN
            ),
            None,
        ),
        (tensor_value("x", field(1, 7) + field(8, b"text"), PLAIN), None),
        (field(1, b"x") + field(5, field(1, 0.5, "<d")), None),
        (field(1, b"x") + field(4, b"png" * 10_000), None),
    ],
)
def test_each_form_of_a_value(tmp_path: Path, value: bytes, expected: float | None) -> None:
    found = read(tmp_path, event_file(event(3, value), event(4, scalar("loss", 1))))

    others = [one for (_, name), one in series(found).items() if name != "loss"]
    assert [(one.step.tolist(), one.value.tolist()) for one in others] == (
        [] if expected is None else [([3], [expected])]
    )
    assert counts(found) == ({"tensorboard.other": 1} if expected is None else {})
    assert values(found) == {4: 1}


def test_only_the_first_value_of_a_name_says_that_tensors_are_scalars(tmp_path: Path) -> None:
    one, other = tensor(np.float32(1)), tensor(np.float32(2))
    found = read(
        tmp_path,
        event_file(event(1, tensor_value("loss", one, PLAIN)), event(2, tensor_value("loss", other))),
    )

    assert values(found) == {1: 1, 2: 2}


# Which values are those of the training


def test_a_later_file_replaces_the_steps_that_it_has_again(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "b.tfevents": scalar_file("loss", {0: 10, 1: 11, 2: 12, 3: 13})
            + record(event(9, scalar("lr", 1))),
            "a.tfevents": scalar_file("loss", {2: 22, 3: 23, 4: 24}, second=100),
        },
    )

    assert values(found) == {0: 10, 1: 11, 2: 22, 3: 23, 4: 24}
    # Of another number, it has none.
    assert values(found, "lr") == {9: 1}
    assert counts(found) == {"tensorboard.again": 2}


def test_a_writer_that_says_that_it_begins_again_replaces_all_numbers(tmp_path: Path) -> None:
    messages = [event(step, scalar("loss", step), scalar("lr", step)) for step in range(4)]
    again = [event(2, begins=True, second=50), event(2, scalar("loss", 20), second=51)]
    in_one, in_two = tmp_path / "one", tmp_path / "two"
    found = read(in_one, event_file(*messages, *again))
    of_two = read(in_two, {"a.tfevents": event_file(*messages), "b.tfevents": event_file(*again, second=49)})

    for one in (found, of_two):
        assert values(one) == {0: 0, 1: 1, 2: 20}
        assert values(one, "lr") == {0: 0, 1: 1}
        assert counts(one) == {"tensorboard.again": 4}


def test_the_newest_run_counts_and_what_it_continues(tmp_path: Path) -> None:
    first = scalar_file("loss", {0: 1, 10: 2}) + record(event(10, scalar("only_first", 1)))
    whole = {"version_0/a.tfevents": first, "version_1/a.tfevents": scalar_file("loss", {0: 3, 10: 4}, 100)}
    found = read(tmp_path / "again", whole)

    assert values(found) == {0: 3, 10: 4}
    assert len(series(found)) == 1
    assert counts(found) == {"tensorboard.other_run": 3}

    rest = scalar_file("loss", {10: 5, 20: 6}, 200)
    found = read(tmp_path / "continued", whole | {"version_2/a.tfevents": rest})
    assert values(found) == {0: 3, 10: 5, 20: 6}
    assert counts(found) == {"tensorboard.other_run": 3, "tensorboard.again": 1}


def test_folders_side_by_side_at_one_time_are_one_run(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"losses/a.tfevents": scalar_file("loss", LOSS), "rates/a.tfevents": scalar_file("lr", LOSS, 0.5)},
    )

    assert set(series(found)) == {(TRAINING, "loss"), (TRAINING, "lr")}
    assert not counts(found)


@pytest.mark.parametrize(
    ("folder", "mode", "name"),
    [
        ("", TRAINING, "loss"),
        ("logs/train/", TRAINING, "loss"),
        ("logs/validation/", EVALUATION, "loss"),
        ("test/", EVALUATION, "loss"),
        # ``add_scalars`` below the file of all others.
        ("runs/Loss_val/", EVALUATION, "loss"),
        ("runs/Loss_train/", TRAINING, "loss"),
        ("runs/rates_encoder/", TRAINING, "rates_encoder/loss"),
        ("runs/a/b/", TRAINING, "a/b/loss"),
    ],
)
def test_folders_give_mode_and_name(tmp_path: Path, folder: str, mode: str, name: str) -> None:
    files = {f"{folder}{NAME}": scalar_file("loss", LOSS)}
    found = read(tmp_path, files | {f"runs/{NAME}": scalar_file("lr", LOSS)} if "runs/" in folder else files)

    assert (mode, name) in series(found)
    assert not counts(found)


def test_steps_that_begin_again_are_counted_on(tmp_path: Path) -> None:
    steps = [0, 100, 200, 0, 100, 200]
    messages = [event(step, scalar("loss", i), second=i) for i, step in enumerate(steps)]
    found = read(tmp_path, event_file(*messages))

    assert values(found) == {0: 0, 100: 1, 200: 2, 300: 3, 400: 4, 500: 5}
    assert counts(found) == {"learning.counted_on": 1}


def test_a_step_may_be_there_twice_and_late(tmp_path: Path) -> None:
    messages = [event(step, scalar("loss", i)) for i, step in enumerate([1, 1, 3, 2])]
    (one,) = series(read(tmp_path, event_file(*messages))).values()

    assert (one.step.tolist(), one.value.tolist()) == ([1, 1, 2, 3], [0, 1, 3, 2])


def test_values_without_steps_are_numbered(tmp_path: Path) -> None:
    found = read(tmp_path, event_file(*(event(0, scalar("loss", i), second=i) for i in range(3))))

    assert values(found) == {0: 0, 1: 1, 2: 2}
    assert counts(found) == {"tensorboard.no_steps": 1}


# Damage


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "file.empty"),
        (b"not an event file at all", "events.unknown"),
        (b"\x18\0", "events.cut"),
        (event_file(), "tensorboard.none"),
        (event_file(event(1, field(1, b"x"))), "tensorboard.none"),
    ],
)
def test_a_file_without_scalars_has_a_remark(tmp_path: Path, content: bytes, expected: str) -> None:
    found = read(tmp_path, content)

    assert not found.learning
    assert counts(found)[expected] == 1


def test_without_any_scalar_a_sentence_says_why(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(event_file())

    with pytest.raises(NothingReadableError, match="an event file of TensorBoard without scalars"):
        read_directory(tmp_path)


def test_files_of_the_profiler_are_no_noise(tmp_path: Path) -> None:
    found = read(tmp_path, {f"{NAME}.profile-empty": event_file(), NAME: scalar_file("loss", LOSS)})

    assert (found.quality.files, counts(found)) == (1, {})


def test_a_file_cut_at_any_byte_gives_what_is_before_it(tmp_path: Path) -> None:
    whole = scalar_file("loss", LOSS)
    ends = np.cumsum([len(event_file()), *(len(record(event(i, scalar("loss", 1)))) for i in LOSS)])
    for cut in range(len(whole)):
        found = read(tmp_path, whole[:cut])
        complete = int((ends <= cut).sum()) - 1
        assert sum(map(len, series(found).values())) == max(0, complete)
        if complete > 0:
            assert list(values(found)) == list(range(complete))
        assert counts(found) == (
            {"file.empty": 1}
            if cut == 0
            else {"tensorboard.none": 1}
            if cut == ends[0]
            else {"events.cut": 1}
            if cut not in ends
            else {}
        )


def test_a_wrong_byte_ends_the_file_at_its_record(tmp_path: Path) -> None:
    whole = scalar_file("loss", LOSS)
    size = len(record(event(0, scalar("loss", 1))))
    begin = len(event_file())
    for at in range(begin, len(whole)):
        found = read(tmp_path, whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        good = (at - begin) // size
        assert sum(map(len, series(found).values())) == good, at
        assert counts(found) == {"events.damaged": 1}


def test_a_record_that_is_no_event_is_counted(tmp_path: Path) -> None:
    found = read(tmp_path, event_file(b"\x0f\xff", event(1, scalar("loss", 2)), b"\x09abc"))

    assert values(found) == {1: 2}
    assert counts(found) == {"events.unreadable": 2}


def test_impossible_times_and_steps_are_counted(tmp_path: Path) -> None:
    messages = [event(1, scalar("loss", 1), second=second) for second in (math.nan, math.inf, 1e300, -1e300)]
    found = read(
        tmp_path, event_file(*messages, event(-1, scalar("loss", 1)), event(10**16, scalar("loss", 1)))
    )

    (one,) = series(found).values()
    assert one.time_us.tolist() == [0] * 4
    assert counts(found) == {"tensorboard.time": 4, "tensorboard.step": 2}


def test_names_are_made_printable_and_limited(tmp_path: Path) -> None:
    tags = [b"a\n<script>", b"\xff", b"\xfe", b"x" * 2000]
    values = [field(1, tag) + field(2, 1.0) for tag in tags]
    many = [field(1, str(number).encode()) + field(2, 1.0) for number in range(10_001)]
    messages = [event(1, *values), *(event(2, *many[at : at + 100]) for at in range(0, len(many), 100))]
    found = read(tmp_path, event_file(*messages))

    assert len(series(found)) == 10_000
    assert all(name.isprintable() for _, name in series(found))
    assert counts(found) == {"tensorboard.names": 5}


@pytest.mark.parametrize("size", [1 << 20, 1 << 40, (1 << 64) - 1])
def test_a_record_that_is_larger_than_its_file_is_cut(tmp_path: Path, size: int) -> None:
    head = struct.pack("<Q", size)
    found = read(tmp_path, scalar_file("loss", LOSS) + head + masked(head) + b"x")

    assert len(values(found)) == len(LOSS)
    assert counts(found) == {"events.cut": 1}


def test_a_compressed_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = gzip.compress(scalar_file("loss", LOSS), mtime=0)

    assert len(values(read(tmp_path / "whole", {f"{NAME}.gz": packed}))) == len(LOSS)
    found = read(tmp_path / "cut", {f"{NAME}.gz": packed[:-9]})
    assert counts(found) == {"file.cut": 1}
    assert 0 < len(values(found)) <= len(LOSS)
    found = read(tmp_path / "damaged", {f"{NAME}.gz": packed[:30] + b"\xff" + packed[31:]})
    assert set(counts(found)) & {"file.cut", "events.cut", "events.damaged", "events.unknown"}


def test_compressed_zeros_do_not_become_any_size(tmp_path: Path) -> None:
    head = struct.pack("<Q", 1 << 50)
    packed = gzip.compress(scalar_file("loss", LOSS) + head + masked(head) + bytes(1 << 20))

    assert counts(read(tmp_path, {f"{NAME}.gz": packed})) == {"file.unpacked": 1}


@pytest.mark.parametrize(
    "message",
    [
        # Values, notes, and fields by the thousand, in which nothing is said.
        event(1, *[b""] * 5000),
        event(1, field(9, field(1, field(1, b"a") + b"\x08\x01" * 5000))),
        event(1, b"".join(field(9, field(1, field(1, bytes([n])))) for n in range(20))),
        b"\x08" + b"\xff" * 11,
        b"\x0b" * 9,
    ],
)
def test_messages_made_to_cost_are_counted(tmp_path: Path, message: bytes) -> None:
    found = read(tmp_path, event_file(message, event(1, scalar("loss", 1))))

    assert counts(found) == {"events.unreadable": 1}
    assert values(found) == {1: 1}


# The module that reads events


def test_checksums_are_those_of_the_algorithm() -> None:
    messages = [b"123456789", b"", b"\0" * 32, b"\xff" * 32, b"a"]
    found = event_files.checksums(messages)

    # RFC 3720 names the checksums of zeros and of ones, all descriptions that of the digits.
    unmasked = [
        ((int(one) - 0xA282EAD8 & 0xFFFFFFFF) >> 17 | (int(one) - 0xA282EAD8) << 15) & 0xFFFFFFFF
        for one in found
    ]
    assert unmasked[:4] == [0xE3069283, 0, 0x8A9136AA, 0x62A8AB43]
    assert [struct.pack("<I", one) for one in found] == list(map(masked, messages))


def test_the_short_way_to_a_scalar_is_the_long_one() -> None:
    for tag in ("", "loss", "x" * 118, "x" * 119, "x" * 200):
        for step in (0, 1, 127, 128, 1 << 40):
            message = event(step, scalar(tag, 0.1))
            short = event_files.scalar(message)
            assert short == event_files.event(message) if len(tag) < 119 else short is None
    assert event_files.scalar(event(1, scalar("a", 1), scalar("b", 2))) is None
    assert event_files.scalar(event(1, field(1, b"a") + field(3, b"b") + field(2, 1.0))) is None


def test_of_a_large_record_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(record(b"a" * 100) + record(b"b" * 5) + record(b"c" * 100)[:-1])
    records = Records(path, 10)
    left = iter(records)

    assert (next(left), records.size, bytes(records.whole())) == (b"a" * 10, 100, b"a" * 100)
    assert (next(left), records.size) == (b"b" * 5, 5)
    with pytest.raises(CutError):
        next(left)
    path.write_bytes(b"x" * 12)
    with pytest.raises(UnusableError):
        next(iter(Records(path, 10)))


# Files of others


@needs_corpus
def test_keras_writes_a_value_a_batch(tmp_path: Path) -> None:
    name = "validation-keras-kwt1.tfevents"
    content = (FOLDER / name).read_bytes()
    found = read(tmp_path / "whole", {name: content})

    (one,) = series(found).values()
    assert (one.name, len(one), int(one.step[0]), int(one.time_us[0])) == (
        "accuracy",
        2608,
        72,
        1_614_214_754_959_226,
    )
    assert (np.diff(one.step) >= 0).all()
    assert (np.diff(one.time_us) > 0).all()
    assert not counts(found)
    cut = read(tmp_path / "cut", {name: content[:-5]})
    assert cut.quality.rows == 2607
    assert counts(cut) == {"events.cut": 1}


@needs_corpus
def test_yolo_writes_an_epoch_at_one_moment(tmp_path: Path) -> None:
    name = "yolov5-oneepoch.tfevents"
    found = read(tmp_path, {name: (FOLDER / name).read_bytes()})

    assert len(series(found)) == 13
    assert values(found, "val/box_loss") == {0: 0.073441}
    assert not counts(found)


@needs_corpus
def test_the_file_of_the_profiler_is_no_noise(tmp_path: Path) -> None:
    (path,) = (CORPUS / "sagemaker-fixtures").rglob("*.profile-empty")
    found = read(tmp_path, {path.name: path.read_bytes()})

    assert not found.learning
    assert not counts(found)


def test_what_summary_writer_writes_is_read_as_tensorboard_reads_it(tmp_path: Path) -> None:
    writers: Any = pytest.importorskip("torch.utils.tensorboard", reason="TensorBoard is not installed")
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for begin, purge in ((0, None), (40, 40)):
        with writers.SummaryWriter(tmp_path, purge_step=purge) as writer:
            for step in range(begin, begin + 60):
                writer.add_scalar("loss", begin + 1 / (1 + step), step)
                writer.add_scalar("new", step, step, new_style=True)
                writer.add_scalar("double", step / 3, step, double_precision=True)
            writer.add_histogram("weights", np.arange(10.0), 0)
            writer.add_text("text", "a", 0)
    expected = accumulators.EventAccumulator(str(tmp_path), {"scalars": 0, "tensors": 0}).Reload()

    found = of_directory(tmp_path)
    assert values(found) == pytest.approx({one.step: one.value for one in expected.Scalars("loss")}, abs=1e-6)
    assert set(values(found, "new")) == set(range(100))
    assert counts(found)["tensorboard.again"] > 0

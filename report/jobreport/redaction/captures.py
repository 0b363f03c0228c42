"""Placeholders for the names in traces of PyTorch's profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobrules.model.captures import AcrossRanks, Capture, DeviceCapture, Kernels

    #: The placeholder of a name of a kind.
    Placeholder = Callable[[str, str], str]


def names_in(captures: Sequence[Capture], across: AcrossRanks | None) -> Iterator[tuple[str, str]]:
    """Every name, with its kind."""
    for one in captures:
        yield "capture", one.file
        if one.host:
            yield "node", one.host
        operators = (row.name for row in (*one.operators, *one.marks))
        parts = (row.name for row in one.host_parts)
        yield from (("operator", name) for some in (operators, parts, one.loader_names) for name in some)
        if one.step_lines:
            yield from (("kernel", name) for name in one.step_lines.names)
            yield from (("stream", lane.name) for lane in one.step_lines.lanes)
        yield from (("model", device.name) for device in one.devices)
        for kernels in (row for device in one.devices for row in device.kernels):
            yield "kernel", kernels.name
            yield from (("operator", name) for name in kernels.operators)
    if across:
        groups = [*(table.group for table in across.collectives), across.skew.group if across.skew else ""]
        yield from (("group", group) for group in groups if group)
        yield from (("type", table.dtype) for table in across.collectives)


def renamed(captures: Sequence[Capture], placeholder: Placeholder) -> tuple[Capture, ...]:
    """The captures with placeholders."""
    return tuple(
        replace(
            one,
            file=placeholder("capture", one.file),
            copy_of=placeholder("capture", one.copy_of),
            host=placeholder("node", one.host),
            operators=tuple(replace(row, name=placeholder("operator", row.name)) for row in one.operators),
            marks=tuple(replace(row, name=placeholder("operator", row.name)) for row in one.marks),
            host_parts=tuple(replace(row, name=placeholder("operator", row.name)) for row in one.host_parts),
            loader_names=tuple(placeholder("operator", name) for name in one.loader_names),
            devices=tuple(_device(device, placeholder) for device in one.devices),
            step_lines=one.step_lines
            and replace(
                one.step_lines,
                names=tuple(placeholder("kernel", name) for name in one.step_lines.names),
                lanes=tuple(
                    replace(lane, name=placeholder("stream", lane.name)) for lane in one.step_lines.lanes
                ),
            ),
        )
        for one in captures
    )


def renamed_across(across: AcrossRanks, placeholder: Placeholder) -> AcrossRanks:
    """What the ranks say together, with placeholders."""
    return replace(
        across,
        alone=tuple(placeholder("capture", file) for file in across.alone),
        collectives=tuple(
            replace(table, group=placeholder("group", table.group), dtype=placeholder("type", table.dtype))
            for table in across.collectives
        ),
        skew=across.skew and replace(across.skew, group=placeholder("group", across.skew.group)),
    )


def _device(device: DeviceCapture, placeholder: Placeholder) -> DeviceCapture:
    kernels = tuple(_kernels(row, placeholder) for row in device.kernels)
    return replace(device, name=placeholder("model", device.name), kernels=kernels)


def _kernels(row: Kernels, placeholder: Placeholder) -> Kernels:
    operators = tuple(placeholder("operator", name) for name in row.operators)
    return replace(row, name=placeholder("kernel", row.name), operators=operators)

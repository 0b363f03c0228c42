"""Frames with fixed columns, also where there is nothing to put into them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import pandas as pd

    from jobrules.model import CodeArray, IntArray

#: The names of the columns of a frame, and the type of each.
Columns: TypeAlias = "Mapping[str, str]"
UTC_TIME, DURATION = "datetime64[us, UTC]", "timedelta64[us]"


class Clock:
    """From microseconds to what pandas shows; without a date of the job there are no times, and all count from its start."""

    def __init__(self, start_us: int, *, has_date: bool) -> None:
        self.start_us, self.has_date = start_us, has_date

    @property
    def name(self) -> str:
        """``utc`` or ``elapsed``."""
        return "utc" if self.has_date else "elapsed"

    def times(self, us: IntArray) -> pd.DatetimeIndex:
        """Times of the epoch."""
        import pandas as pd  # noqa: PLC0415 - a second

        known = us.view("datetime64[us]") if self.has_date else np.full(len(us), "NaT", "datetime64[us]")
        return pd.DatetimeIndex(known).tz_localize("UTC")

    def since_start(self, us: IntArray) -> Any:
        """Times since the start of the job."""
        return us.view("datetime64[us]") - np.datetime64(self.start_us, "us")

    def moments(self, us: Iterable[int | None]) -> pd.DatetimeIndex:
        """As ``times``, of few of which some may be unknown."""
        nat = np.iinfo(np.int64).min
        return self.times(np.array([nat if one is None else one for one in us], np.int64))


def frame(columns: Columns, found: Mapping[str, Any] | None = None, **attrs: Any) -> pd.DataFrame:
    """A frame of these columns, empty without any that were found; ``attrs`` go to ``DataFrame.attrs``."""
    import pandas as pd  # noqa: PLC0415 - a second

    made: dict[Hashable, Any] = {}
    for name, kind in columns.items():
        values = found[name] if found else ()
        is_ready = str(getattr(values, "dtype", "")) == kind
        made[name] = values if is_ready else pd.Series(values, dtype=kind)
    result = pd.DataFrame(made, copy=False)
    result.attrs.update(**attrs)
    return result


def of_rows(columns: Columns, rows: Iterable[Sequence[Any]], **attrs: Any) -> pd.DataFrame:
    """A frame of rows, each with its values in the order of the columns."""
    rows = [*rows]
    found = dict(zip(columns, zip(*rows, strict=True), strict=True)) if rows else None
    return frame(columns, found, **attrs)


def coded(code: CodeArray | IntArray, names: Sequence[str]) -> pd.Categorical[str]:
    """A category from places among names, each of which is there once."""
    import pandas as pd  # noqa: PLC0415 - a second

    return pd.Categorical.from_codes(code, categories=pd.Index(list(names), dtype="str"))


def timedelta(us: float) -> pd.Timedelta:
    """A length of time."""
    import pandas as pd  # noqa: PLC0415 - a second

    return pd.Timedelta(round(us), "us")


def or_missing(numbers: IntArray) -> Any:
    """Numbers of which -1 is none."""
    import pandas as pd  # noqa: PLC0415 - a second

    return pd.arrays.IntegerArray(np.maximum(numbers, 0), numbers < 0)

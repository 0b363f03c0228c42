"""What a user chose of a report: the options of ``make-report``, for the command, the function, and the readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from jobreport.files import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from jobreport.cost.prices import Pricing
    from jobreport.settings import Settings

#: A run of a log with several: its number, from 1, or all; None for the newest.
Choice: TypeAlias = int | Literal["all"] | None


class Options(Struct, frozen=True, kw_only=True):
    """Each as the option of this name; ``settings`` and ``pricing`` hold what several options say."""

    #: Files to write, as keys of ``FILES``; ``report.json`` is always written.
    formats: Collection[str] = DEFAULT
    static: bool = False
    force: bool = False
    strict: bool = False
    redact: bool = False
    #: Severity from which on a finding is a failure in ``junit.xml``; None for that of a warning.
    fail_on: str | None = None
    timezone: str | None = None
    columns: str | None = None
    date_order: str | None = None
    run: Choice = None
    #: What has a canonical name, such as ``loss``, by the name under which it was logged.
    scalar: Mapping[str, str] = {}
    #: Of a watch: seconds after which the page loads its successor; 0 for the last report.
    refresh_s: float | None = None
    #: Rules and thresholds; by default all of jobreport's with theirs.
    settings: Settings | None = None
    pricing: Pricing | None = None
    #: Of object storage: settings, where copies are kept, and bytes that are copied at most.
    storage_option: Mapping[str, str] = {}
    cache: Path | None = None
    max_download: int = 20 << 30

    @property
    def of_input(self) -> tuple[str, ...]:
        """The options of a command line that read the input in the same way."""
        given = {
            "timezone": self.timezone,
            "columns": self.columns,
            "date-order": self.date_order,
            "run": self.run,
        }
        found = [f"--{option} {value}" for option, value in given.items() if value is not None]
        return (*found, *(f"--scalar {name}={logged}" for name, logged in self.scalar.items()))

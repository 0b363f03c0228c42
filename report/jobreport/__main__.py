"""``make-report``, also as ``python -m jobreport``."""

from __future__ import annotations

import sys

from jobreport import cli


def main() -> None:
    """Run ``make-report``, or ``make-report trace``."""
    if sys.argv[1:2] == ["trace"]:
        from jobreport import trace_cli  # noqa: PLC0415 - a command of its own

        del sys.argv[1]
        trace_cli.main()
    cli.main()


if __name__ == "__main__":
    main()

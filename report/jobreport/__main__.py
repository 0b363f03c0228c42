"""``python -m jobreport`` is ``make-report``."""

from jobreport.cli import main

main()

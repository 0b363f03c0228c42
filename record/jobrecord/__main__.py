"""``python -m jobrecord``: the command ``record-job``."""

import sys

from jobrecord.command import main

sys.exit(main())

"""Program of the sampler's process.

Run by its path, not with ``-m``, which would search the job's working directory for modules first.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    if sys.path[0] == str(here):
        del sys.path[0]
    sys.path.insert(0, str(here.parent))

    from jobrecord.sampler import main

    main()

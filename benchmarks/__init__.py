"""How fast the package is beside its peers: ``python -m benchmarks`` measures all in one run.

The peers are an extra: ``pip install -e '.[bench]'``. One that is not installed is left out, and the table says so.
"""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else torch's profiler, which counts memory, announces every start

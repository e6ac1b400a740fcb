"""How often a thread has waited: what tells slow storage from a core that another process has taken.

A clock shows the same for both. The kernel counts them apart: a thread that waits gives up its core by itself.
"""

from __future__ import annotations

import itertools
import sys

if sys.platform == "linux":
    import resource

    def wait_count() -> int:
        """How often the calling thread has given up its core to wait for something: storage, a lock, a socket."""
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

else:
    _calls = itertools.count()

    def wait_count() -> int:
        """Another number at each call: this system does not tell, so the thread may have waited."""
        return next(_calls)

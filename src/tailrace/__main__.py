"""`python -m tailrace` is `tailrace`."""

from __future__ import annotations

import sys

from tailrace.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

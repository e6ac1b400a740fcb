"""The counted server with one call more: `python -m tests.speed.one_call_more HOME MODULE CLASS METHOD`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from bench.counts.served import serve

if __name__ == "__main__":
    home, module, class_name, method = sys.argv[1:]
    owner = getattr(import_module(module), class_name)
    original = getattr(owner, method)

    def with_a_frame_more(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    setattr(owner, method, with_a_frame_more)
    sys.exit(serve(home))

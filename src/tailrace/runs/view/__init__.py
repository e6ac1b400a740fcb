"""One view of a run: a log, read once for every surface that shows it."""

from tailrace.runs.view.run_view import RunView

__all__ = ["RunView"]

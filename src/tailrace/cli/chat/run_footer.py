"""What a run cost, in one line: `openrouter/minimax-m2.7 · 2 tries · 3.4 s · 1,204 in, 88 out`."""

from __future__ import annotations

from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.events import RunFinished
from tailrace.messages import Usage
from tailrace.runs.view import changes
from tailrace.runs.view.changes import Change


class RunFooter:
    """Collects it from the changes of the run's view."""

    def __init__(self) -> None:
        self._began_at = 0.0
        self._model = ""  # that answered last
        self._tries = 0
        self._answers = 0

    def note(self, change: Change) -> None:
        match change:
            case changes.RunBegan(started=started):
                self._began_at = started.at
            case changes.ForkBegan():
                self._answers = 0  # those before it are another run's
            case changes.AttemptBegan(asked=asked):
                self._tries += 1
                self._model = f"{asked.provider}/{asked.model}" if asked.provider else asked.model
            case changes.MessageJoined(message=message) if message.role == "assistant":
                self._answers += 1
            case _:
                pass

    def line(self, finished: RunFinished) -> str:
        """Empty where no model was called. The number of tries is told where one of them failed."""
        if not self._tries:
            return ""
        calls = max(1, self._answers)
        parts = [sanitized_line(self._model, 100)]
        parts += [f"{calls} calls"] if calls > 1 else []
        parts += [f"{self._tries} tries"] if self._tries > calls else []
        parts += [f"{max(0.0, finished.at - self._began_at):.1f} s"]
        usage, about = finished.usage, "~" if finished.usage.estimated_tokens else ""
        parts += [f"{about}{usage.input_tokens:,} in, {about}{usage.output_tokens:,} out"] if usage != Usage() else []
        return " · ".join(parts)

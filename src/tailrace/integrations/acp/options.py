"""What a user chooses for a session in the editor: the mode of approvals, and the model.

Pure. Both are config options of the protocol; the mode is a session mode too, for editors that know only those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acp.schema import SessionConfigOptionSelect, SessionConfigSelectOption, SessionMode, SessionModeState

from tailrace.config.load import Config

YOLO: Final = "yolo"
MODE: Final = "mode"  # ids of the options
MODEL: Final = "model"
_MODES: Final = {
    "ask": ("Ask", "Dangerous actions are asked about first."),
    "deny": ("Deny", "Dangerous actions are refused (approvals.mode: deny)."),
    YOLO: ("Yolo", "Approves without asking. What is never allowed stays forbidden."),
}


def mode_ids(config: Config) -> list[str]:
    """The modes that a session can have, the configured one first."""
    return [YOLO] if config.yolo else [config.approvals.mode, YOLO]


def mode_state(config: Config, current: str) -> SessionModeState:
    modes = [SessionMode(id=mode, name=_MODES[mode][0], description=_MODES[mode][1]) for mode in mode_ids(config)]
    return SessionModeState(current_mode_id=current, available_modes=modes)


def config_options(
    config: Config, mode: str, model: str, models: Sequence[tuple[str, str]]
) -> list[SessionConfigOptionSelect]:
    """`models` are pairs of a provider and one of its models."""
    names = dict.fromkeys([model, *(f"{provider}/{name}" for provider, name in models)])
    return [
        SessionConfigOptionSelect(
            type="select",
            id=MODE,
            name="Approvals",
            category="mode",
            current_value=mode,
            options=[
                SessionConfigSelectOption(value=each, name=_MODES[each][0], description=_MODES[each][1])
                for each in mode_ids(config)
            ],
        ),
        SessionConfigOptionSelect(
            type="select",
            id=MODEL,
            name="Model",
            category="model",
            current_value=model,
            options=[SessionConfigSelectOption(value=name, name=name) for name in names],
        ),
    ]

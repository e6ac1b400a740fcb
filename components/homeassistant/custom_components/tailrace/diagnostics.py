"""What may be attached to a report: no key, and nothing that was said."""

from __future__ import annotations

from typing import Any

from homeassistant.components.diagnostics import async_redact_data
from homeassistant.const import CONF_API_KEY
from homeassistant.core import HomeAssistant

from .assistant import TailraceEntry
from .const import CONF_INSTRUCTIONS


async def async_get_config_entry_diagnostics(_hass: HomeAssistant, entry: TailraceEntry) -> dict[str, Any]:
    assistant = entry.runtime_data
    available = assistant.availability.last_update_success
    failure = None if available else assistant.availability.last_exception  # it stays there after the next success
    return {
        "data": async_redact_data(dict(entry.data), {CONF_API_KEY}),
        "options": async_redact_data(dict(entry.options), {CONF_INSTRUCTIONS}),
        "available": available,
        "failure": str(failure) if failure else None,
        "sessions": len(assistant.talks.by_key),
        "unheard_runs": sorted(assistant.talks.unheard),
        "open_questions": sum(talk.open_question is not None for talk in assistant.talks.by_key.values()),
    }

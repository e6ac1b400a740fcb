"""Names and defaults of the integration. Knows neither Home Assistant nor the server."""

from __future__ import annotations

from typing import Final

DOMAIN: Final = "tailrace"

CONF_MODEL: Final = "model"
CONF_INSTRUCTIONS: Final = "instructions"
CONF_SESSION_MINUTES: Final = "session_minutes"
CONF_ANSWER_SECONDS: Final = "answer_seconds"
CONF_RECONNECT_SECONDS: Final = "reconnect_seconds"

DEFAULT_URL: Final = "http://127.0.0.1:8642"
DEFAULT_MODEL: Final = ""  # what the server's configuration says
DEFAULT_INSTRUCTIONS: Final = (
    "You are heard through a voice assistant of Home Assistant. "
    "Answer in the language of the question, briefly, in plain sentences without Markdown."
)
DEFAULT_SESSION_MINUTES: Final = 30
DEFAULT_ANSWER_SECONDS: Final = 240  # Assist itself gives up after 300
DEFAULT_RECONNECT_SECONDS: Final = 30

"""The tracer provider of the host program, found without an import of OpenTelemetry where none is used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tailrace.config.load import Config
from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

TRACER_PROVIDER_VARIABLE = "OTEL_PYTHON_TRACER_PROVIDER"  # OpenTelemetry's own


def tracer_provider_of(config: Config) -> TracerProvider | None:
    """The tracer provider of this process; None where none is set. Imports nothing then: code that sets one has
    imported OpenTelemetry, or names it in the environment. Raises `ConfigError` for one that is not there."""
    asked_for = config.environment.get(TRACER_PROVIDER_VARIABLE)
    if "opentelemetry.trace" not in sys.modules and not asked_for:
        return None
    try:
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
    except Exception as exc:  # the API loads it by its name: an entry point, foreign code
        raise ConfigError(f"no tracer provider {asked_for!r}: {exc}", key=TRACER_PROVIDER_VARIABLE) from exc
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return provider

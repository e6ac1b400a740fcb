"""The registry of dialects: a new one is a folder beside this module and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tailrace.messages import Dialect
from tailrace.wire.anthropic.dialect import AnthropicDialect
from tailrace.wire.chat.dialect import ChatDialect
from tailrace.wire.dialect import WireDialect
from tailrace.wire.responses.dialect import ResponsesDialect

CHAT = ChatDialect()
RESPONSES = ResponsesDialect()
ANTHROPIC = AnthropicDialect()
DIALECTS: Mapping[Dialect, WireDialect] = MappingProxyType(
    {dialect.name: dialect for dialect in (CHAT, RESPONSES, ANTHROPIC)}
)

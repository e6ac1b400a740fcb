"""pydantic-ai on DBOS: an agent with the DBOS capability, its text in a DBOS stream."""

from __future__ import annotations

from typing import ClassVar

from proof.streams.products.dbos import Dbos


class PydanticAi(Dbos):
    name = "pydantic-ai-dbos"
    page = "https://ai.pydantic.dev/durable_execution/dbos"
    setup = "PostgreSQL, DBOSDurability with an event_stream_handler that writes a DBOS stream, timeout 3"
    packages = ("pydantic-ai-slim[dbos,openai]==2.66.0", "fastapi==0.163.0", "uvicorn==0.54.0")
    program = "pydantic_ai_server.py"
    lacks: ClassVar = {"servers": Dbos.lacks["servers"]}

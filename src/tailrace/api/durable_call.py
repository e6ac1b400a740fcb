"""`tailrace.llm_call`: one durable model call, for a step of an engine that people have already.

An entry point, like `api`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tailrace.app.llm_calls import LlmCalls, open_llm_calls
from tailrace.config.load import Config, load
from tailrace.errors import LlmCallError
from tailrace.messages import JsonObject

__all__ = ["LlmCallError", "LlmCalls", "llm_call", "open_llm_calls"]


async def llm_call(
    *,
    idempotency_key: str,
    config: Config | None = None,
    on_run: Callable[[str], object] | None = None,
    stop_on_cancel: Callable[[], bool] = lambda: False,
    stream: bool = True,
    **params: Any,
) -> JsonObject:
    """One model call as a run of the journal, at most once per key: the parameters and the output are those of the
    `llm_call` step of a sequence.

    ```python
    output = await tailrace.llm_call(prompt="Name a river.", idempotency_key=f"{workflow_id}/{step_id}")
    print(output["message"]["content"])
    ```

    Executed again with the same key, after a crash or by another process, it returns the recorded answer or goes on
    with the call: see `LlmCalls.llm_call`. Without a `config` it is read as `tailrace` reads it. Opens the journal for
    each call; `open_llm_calls` keeps it open. Raises `LlmCallError`, `ConfigError`, `JournalError`."""
    async with open_llm_calls(config if config is not None else load(os.environ)) as calls:
        return await calls.llm_call(
            idempotency_key=idempotency_key, on_run=on_run, stop_on_cancel=stop_on_cancel, stream=stream, **params
        )

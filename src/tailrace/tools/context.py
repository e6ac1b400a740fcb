"""What a function that is a tool may know of the run that calls it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Generic, TypeVar, cast

from tailrace.ports import ToolContext

D = TypeVar("D")
_DEPS: ContextVar[object] = ContextVar("DEPS", default=None)  # of the run that is begun


@contextmanager
def given(deps: object) -> Generator[None, None, None]:
    """Within the block runs begin with these."""
    token = _DEPS.set(deps)
    try:
        yield
    finally:
        _DEPS.reset(token)


def given_deps() -> object:
    return _DEPS.get()


class Context(Generic[D]):
    """A parameter `ctx: Context[Deps]` of a tool: the model does not see it. `deps` is what the run was given
    (`agent.run("…", deps=Deps(…))`); `progress` shows a line while the tool runs."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    @property
    def deps(self) -> D:
        return cast("D", given_deps())

    @property
    def directory(self) -> Path:
        return self._context.directory

    @property
    def roots(self) -> tuple[Path, ...]:
        return self._context.roots

    def progress(self, text: str) -> None:
        self._context.progress(text)

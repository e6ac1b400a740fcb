"""`/v1/models`: the agent, and every model that a configured provider lists.

One list that the clients of both OpenAI and Anthropic understand: each entry has the fields of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from aiohttp import web

from tailrace.app.models import AGENT, LOCAL, named, unaliased
from tailrace.config.load import Config
from tailrace.config.presets import PRESETS
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY
from tailrace.server.http.route import Route, json_response


class Model(msgspec.Struct, frozen=True):
    """`created` is the epoch: providers do not tell when a model was made."""

    id: str
    owned_by: str
    display_name: str
    object: Literal["model"] = "model"
    type: Literal["model"] = "model"
    created: int = 0
    created_at: str = "1970-01-01T00:00:00Z"


class ModelList(msgspec.Struct, frozen=True):
    data: tuple[Model, ...]
    first_id: str
    last_id: str
    object: Literal["list"] = "list"
    has_more: bool = False


AGENT_MODEL: Final = Model(AGENT, "tailrace", "Tailrace agent")


def _raw(provider: str, name: str) -> Model:
    return Model(f"{provider}/{name}", provider, name)


def raw_model(config: Config, model_id: str) -> Model:
    """Any model of a known provider. Raises `ApiError` 404 for anything else."""
    choice = named(config, model_id)
    if choice.provider != LOCAL and choice.provider not in config.providers and choice.provider not in PRESETS:
        raise ApiError(404, f"no such model: {model_id[:200]!r}", code="model_not_found", param="model")
    return _raw(choice.provider, choice.name)


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    app = pipeline.app

    async def show_all(request: web.Request) -> web.Response:
        raw = [_raw(provider, name) for provider, name in await app.catalogue.models()]
        caller = request[IDENTITY]
        listed = (AGENT_MODEL, *raw) if caller.may("runs") else tuple(raw)  # the agent needs that scope
        models = tuple(model for model in listed if caller.may_use(model.id))
        return json_response(ModelList(models, models[0].id if models else "", models[-1].id if models else ""))

    async def show(request: web.Request) -> web.Response:
        model_id = request.match_info["id"]
        if AGENT not in (model_id, unaliased(app.config, model_id)):
            model = raw_model(app.config, model_id)
            request[IDENTITY].require_model(model.id)
            return json_response(model)
        request[IDENTITY].require("runs", f"the model {AGENT!r}, which is the agent,")
        return json_response(AGENT_MODEL)

    return (
        Route("GET", "/v1/models", show_all, "models", "The models that this key may use.", answer=ModelList),
        Route("GET", "/v1/models/{id:.+}", show, "models", "One model by its name.", answer=Model, errors=(404,)),
    )

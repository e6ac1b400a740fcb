"""Requests of clients, parsed: mistakes are named by their place, and what only one dialect has is found in order."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.wire.anthropic.client_request import parse_client_request as parse_messages
from tailrace.wire.client_request import InvalidRequest, first_unsupported_param
from tailrace.wire.responses.client_request import parse_client_request as parse_responses


@pytest.mark.parametrize("kind", [{}, [], 5])
def test_an_item_whose_type_is_no_text_is_the_clients_mistake(kind: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_responses({"model": "m", "input": [{"role": "user", "content": "hi"}, {"type": kind}]})
    assert caught.value.param == "input[1]"


def test_the_first_unsupported_field_is_the_first_that_the_client_wrote() -> None:
    config = dict.fromkeys(("zeta", "alpha", "mid", "omega"), 1)
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}], "output_config": config}
    asked = parse_messages(body)
    assert asked.dialect_only_fields == tuple(f"output_config.{name}" for name in config)
    assert first_unsupported_param(asked, "chat") == "output_config.zeta"

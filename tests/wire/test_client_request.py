"""Requests of clients, parsed: mistakes are named by their place, and what only one dialect has is found in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.wire.anthropic.client_request import parse_client_request as parse_messages
from tailrace.wire.chat.client_request import parse_client_request as parse_chat
from tailrace.wire.client_request import InvalidRequest
from tailrace.wire.dialects import ANTHROPIC, CHAT
from tailrace.wire.responses.client_request import parse_client_request as parse_responses

MESSAGE: dict[str, Any] = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("kind", [{}, [], 5])
def test_an_item_whose_type_is_no_text_is_the_clients_mistake(kind: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_responses({"model": "m", "input": [{"role": "user", "content": "hi"}, {"type": kind}]})
    assert caught.value.param == "input[1]"


def test_the_fields_beyond_are_named_in_the_order_in_which_the_client_wrote_them() -> None:
    config = dict.fromkeys(("zeta", "alpha", "task_budget", "omega"), 1)
    asked = parse_messages({**MESSAGE, "output_config": config, "speed": "fast"})
    assert asked.optional_fields == ("output_config.zeta", "output_config.alpha", "output_config.omega")
    assert CHAT.first_unsupported_param(asked) == "speed"
    assert CHAT.ignored_params(asked) == asked.optional_fields
    assert ANTHROPIC.ignored_params(asked) == ()


def test_K132_an_id_that_is_too_long_for_another_api_is_hashed_and_still_tells_users_apart() -> None:
    users = [json.dumps({"device": name * 60, "account": "a" * 64}) for name in ("x", "y")]
    sent = [CHAT.extra_for(parse_messages({**MESSAGE, "metadata": {"user_id": user}}))["user"] for user in users]
    assert [len(user) for user in sent] == [64, 64]
    assert len(set(sent)) == 2
    assert CHAT.extra_for(parse_messages({**MESSAGE, "metadata": {"user_id": "anna"}})) == {"user": "anna"}


def test_the_billing_line_of_a_system_prompt_is_for_its_own_api() -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2"},
        {"type": "text", "text": "Be brief."},
    ]
    assert parse_messages({**MESSAGE, "system": system}).request.system == "Be brief."


@pytest.mark.parametrize("nested", [True, False])
def test_allowed_tools_are_the_tools_that_are_offered(nested: bool) -> None:
    functions = [{"name": name, "parameters": {"type": "object"}} for name in ("read", "write")]
    if nested:
        allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "read"}}]}
        request = parse_chat(
            {
                "model": "m",
                "messages": [{"role": "user", "content": "hi"}],
                "tools": [{"type": "function", "function": function} for function in functions],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed},
            }
        ).request
    else:
        request = parse_responses(
            {
                "model": "m",
                "input": "hi",
                "tools": [{"type": "function", **function} for function in functions],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "read"}],
                },
            }
        ).request
    assert [tool.name for tool in request.tools] == ["read"]
    assert request.tool_choice == "required"

"""One reading of the body of `POST /v1/responses` answers everything that the route asks of it."""

from __future__ import annotations

import pytest

from tailrace.messages import JsonObject
from tailrace.server.http.api_errors import ApiError
from tailrace.server.v1.responses.responses_request import ResponsesRequest, refers_to_items
from tailrace.wire.client_request import InvalidRequest


def read(**fields: object) -> ResponsesRequest:
    return ResponsesRequest.of({"model": "openai/gpt-5", "input": "Hi", **fields}, {})


def test_a_response_is_stored_unless_the_client_says_otherwise() -> None:
    assert read().is_stored
    assert read(store=None).is_stored
    assert not read(store=False).is_stored


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, {"store": True, "background": False, "previous_response_id": None}),
        ({"background": True}, {"store": True, "background": True, "previous_response_id": None}),
        (
            {"conversation": {"id": "c"}},
            {"store": True, "background": False, "conversation": {"id": "c"}, "previous_response_id": None},
        ),
        ({"store": False}, {}),
        ({"store": False, "previous_response_id": "resp_1"}, {"previous_response_id": "resp_1"}),
    ],
)
def test_the_response_says_how_it_is_stored_and_what_it_follows(fields: JsonObject, state: JsonObject) -> None:
    assert read(**fields).state == state


@pytest.mark.parametrize("given", ["c", {"id": "c"}])
def test_a_conversation_is_named_by_its_id_or_as_an_object(given: object) -> None:
    assert read(conversation=given).session == "c"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1", "conversation": "c"}, "previous_response_id"),
        ({"background": True, "store": False}, "store"),
    ],
)
def test_fields_that_contradict_each_other_are_refused_by_name(fields: JsonObject, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        read(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("fields", [{"store": "yes"}, {"conversation": 7}, {"metadata": {"n": 1}}])
def test_a_field_of_another_type_is_refused(fields: JsonObject) -> None:
    with pytest.raises(InvalidRequest):
        read(**fields)


def test_the_input_is_items_whichever_way_it_was_written() -> None:
    assert (
        read().items
        == read(input=[{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]).items
    )


def test_only_references_and_reasoning_without_its_seal_need_the_store() -> None:
    assert not refers_to_items({"input": "Hi"})
    assert not refers_to_items({"input": [{"role": "user", "content": "Hi"}]})
    assert refers_to_items({"input": [{"type": "item_reference", "id": "msg_1"}]})

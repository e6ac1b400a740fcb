"""The web pages that an answer rests on reach clients of every API, streamed, whole and stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import dialect_server
from server.v1.test_between_dialects import CHAT, MESSAGES, QUESTION, RESPONSES, ask
from server.v1.test_signed_reasoning import answer_of
from tailrace.messages import JsonObject
from tailrace.testing.provider import Citation, reply, say

URL, TITLE = "https://rhine.example/", "The Rhine"
ANSWER = reply(say("So. "), say("The Rhine flows north.", Citation(URL, TITLE, 4, 9)), say(" Yes."))
PAGE = {"type": "web_search_result_location", "url": URL, "title": TITLE, "cited_text": "", "encrypted_index": ""}


def chat_annotations(path_answer: Any) -> list[JsonObject]:
    message: JsonObject = path_answer["choices"][0]["message"]
    return list(message.get("annotations") or [])


@pytest.mark.parametrize(("model", "start", "end"), [("up-responses/m", 8, 13), ("up-anthropic/m", 4, 26)])
async def test_a_chat_client_gets_annotations(tmp_path: Path, model: str, start: int, end: int) -> None:
    """Of the Responses API the range of the text, of Anthropic's the whole block."""
    async with dialect_server(tmp_path, [ANSWER, ANSWER]) as server:
        _, whole = await server.post(CHAT, ask(CHAT, model))
        chunks = await server.data(CHAT, ask(CHAT, model, stream=True))
    cited = {"url": URL, "title": TITLE, "start_index": start, "end_index": end}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    streamed = [annotation for delta in deltas for annotation in delta.get("annotations", [])]
    assert whole["choices"][0]["message"]["content"] == "So. The Rhine flows north. Yes."
    assert chat_annotations(whole) == streamed == [{"type": "url_citation", "url_citation": cited}]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_messages_client_gets_citations_and_anthropic_never_sees_them_again(
    tmp_path: Path, stream: bool
) -> None:
    async with dialect_server(tmp_path, [ANSWER, reply("Fine.")]) as server:
        answer = await answer_of(server, MESSAGES, ask(MESSAGES, "up-responses/m"), stream=stream)
        messages = [*QUESTION, {"role": "assistant", "content": answer["content"]}, *QUESTION]
        again = {**ask(MESSAGES, "up-anthropic/m"), "messages": messages}
        await answer_of(server, MESSAGES, again, stream=stream)
        returned = server.provider.requests[1].json()["messages"][1]["content"]
    assert [block.get("citations") or [] for block in answer["content"]] == [[], [PAGE], []]
    assert [block.get("citations") or [] for block in returned] == [[], [], []]
    assert "".join(block["text"] for block in returned) == "So. The Rhine flows north. Yes."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
async def test_a_responses_client_gets_annotations(tmp_path: Path, store: bool, stream: bool) -> None:
    async with dialect_server(tmp_path, [ANSWER]) as server:
        answer = await answer_of(server, RESPONSES, ask(RESPONSES, "up-anthropic/m", store=store), stream=stream)
    (part,) = answer["output"][0]["content"]
    assert part["annotations"] == [
        {"type": "url_citation", "url": URL, "title": TITLE, "start_index": 4, "end_index": 26}
    ]
    assert part["text"][4:26] == "The Rhine flows north."


@pytest.mark.parametrize("stream", [False, True])
async def test_annotations_of_a_chat_provider_reach_clients_of_the_other_apis(tmp_path: Path, stream: bool) -> None:
    """Its one text has them all; towards a chat client they stay as they are."""
    async with dialect_server(tmp_path, [ANSWER] * 4) as server:
        messages = await answer_of(server, MESSAGES, ask(MESSAGES, "up-chat/m"), stream=stream)
        responses = await answer_of(server, RESPONSES, ask(RESPONSES, "up-chat/m"), stream=stream)
        stored = await answer_of(server, RESPONSES, ask(RESPONSES, "up-chat/m", store=True), stream=stream)
        _, chat = await server.post(CHAT, ask(CHAT, "up-chat/m"))
    cited = {"url": URL, "title": TITLE, "start_index": 4, "end_index": 9}
    assert [block.get("citations") for block in messages["content"]] == [[PAGE]]
    for answer in (responses, stored):
        (part,) = answer["output"][0]["content"]
        assert part["annotations"] == [{"type": "url_citation", **cited}]
    assert chat_annotations(chat) == [{"type": "url_citation", "url_citation": cited}]

"""`/ui/chat`: the agent behind `useChat` of the AI SDK, which is a viewer of a run like any other.

A closed connection stops nothing: the page that comes back resumes the message from its beginning. What a request means
for the session is in `turns`, its body in `request`, the chunks in `encoder`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from tailrace.agent.turn_spec import ClientTurn, TurnSpec
from tailrace.app.costs import Costs
from tailrace.events import Decision, Entry
from tailrace.integrations.ai_sdk import request as ui_request
from tailrace.integrations.ai_sdk import turns as ui_turns
from tailrace.integrations.ai_sdk.encoder import DONE, UiMessageEncoder
from tailrace.integrations.ai_sdk.request import UiChatBody, UiMessage
from tailrace.integrations.ai_sdk.ui_messages import UiMessageBuilder, question_message
from tailrace.messages import JsonObject, Message, ToolResult, ToolSpec
from tailrace.ports import ENDED, Run
from tailrace.runs.recovery import follow_pages
from tailrace.server.frontends import client_thread
from tailrace.server.frontends.conversations import Conversations, approvals_in
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, read_as
from tailrace.server.http.route import OBJECTS, Route, json_response
from tailrace.server.http.sse_stream import EventStream
from tailrace.server.v1.client_tool_calls import calling_run, with_recorded_calls
from tailrace.server.v1.model_target import turn_model
from tailrace.wire.sse import encode_event

PROTOCOL: Final = {"x-vercel-ai-ui-message-stream": "v1"}


class ChatStatus(msgspec.Struct, frozen=True):
    """`run`: the one that was stopped; null where none was under way."""

    id: str
    run: str | None


class _Known(msgspec.Struct, frozen=True):
    """What the page has already of the message that a stream goes on with. `approvals`: the questions that it answered;
    without any it has all that came before the run."""

    message_id: str
    approvals: tuple[str, ...] = ()


class UiChat:
    """The handlers."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._app = pipeline.app
        self._journal = pipeline.app.journal
        self._conversations = Conversations(pipeline)

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Asks the agent, and streams its message as the AI SDK's `useChat` reads it.

        The last message is a question, or the assistant's with results of the page's tools or answers to approvals.
        Raises 400 where nothing is new, 403 for another key's chat, 404 for an unknown model, 409 for answers to what
        is no longer asked."""
        body = await read_as(request, UiChatBody)
        identity = request[IDENTITY]
        newest = await self._conversations.newest_turn(body.id, identity, "id")
        last = body.last
        if last is not None and last.role == "assistant":
            return await self._go_on(request, body, last, newest)
        run = await self._ask(body, last, newest, identity)
        return await self._stream(request, run)

    async def resume(self, request: web.Request) -> web.StreamResponse:
        """The message that is being written in this chat, from its beginning.

        204 where none is."""
        run = await self._conversations.newest_turn(request.match_info["id"], request[IDENTITY], "id")
        if run is None or run.state in ENDED:
            return web.Response(status=204)
        return await self._stream(request, run)

    async def messages(self, request: web.Request) -> web.Response:
        """The messages of this chat, as `useChat` keeps them: those that were streamed, with the same ids and parts.

        Empty where it has none. Answers and questions that were asked anew are left out. A message that is being
        written is not among them, but its question is: `resume` brings it, from its beginning."""
        chat_id = request.match_info["id"]
        await self._conversations.newest_turn(chat_id, request[IDENTITY], "id")
        turns = await client_thread.branch_turns(self._journal, chat_id)
        shown: list[JsonObject] = []
        for at, run in enumerate(turns, 1):
            message = ui_turns.asked_in(run)
            if message.role == "user":
                shown.append(question_message(message, client_thread.question_ids(run)[0]))
            following = turns[at] if at < len(turns) else None
            if following is None or ui_turns.ui_turn_of(following).continues != run.id:
                shown += await self._whole_message(run)
        return json_response(shown)

    async def _whole_message(self, run: Run) -> list[JsonObject]:
        """The message of this run and of those that it continues; none while it is being written, unless it waits for
        an answer: then all that was streamed of it."""
        runs = await ui_turns.message_runs(self._journal, run)
        logs = [await self._journal.facts(each.id) for each in runs]
        encoder = self._encoder(run, None, _answered([entry for log in logs for entry in log]))
        builder = UiMessageBuilder()
        for each, log in zip(runs, logs, strict=True):
            encoder.begin_run(each.id, client_thread.foreign_names(each))
            builder.feed(encoder.feed(log))
        if encoder.finished is None and not encoder.paused:
            return []
        builder.feed(await self._close(encoder))
        return [builder.message]

    async def _close(self, encoder: UiMessageEncoder) -> bytes:
        costs = Costs(self._app.config)
        await costs.load(encoder.spent)
        return encoder.close(cost_usd=costs.of(encoder.spent))

    async def stop(self, request: web.Request) -> web.Response:
        """Ends what is being written in this chat: a page that closes its connection does not.

        200, also where nothing is."""
        chat_id, identity = request.match_info["id"], request[IDENTITY]
        await self._conversations.newest_turn(chat_id, identity, "id")
        stopped: str | None = None
        async for run in client_thread.session_turns(self._journal, chat_id):
            if run.state in ENDED:
                break
            await self._app.agents.stop(run.id, by=identity.name)
            stopped = stopped or run.id
        return json_response(ChatStatus(chat_id, stopped))

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, body: UiChatBody, last: UiMessage | None, newest: Run | None, identity: Identity) -> Run:
        """The turn that answers this question; the one that does so already, where it was sent before."""
        question, question_id = await self._question(body, last, newest)
        place = client_thread.ThreadPlace(0)
        if question_id and (body.trigger == "regenerate-message" or body.message_id == question_id):
            place = await client_thread.place_in_thread(self._journal, body.id, [question_id])
        if newest is not None and body.trigger == "submit-message":
            first = (await ui_turns.message_runs(self._journal, newest))[0]
            same = question_id in client_thread.question_ids(first) and question == ui_turns.asked_in(first)
            if same and (not place.asks_again or newest.state not in ENDED):
                return newest
        spec = TurnSpec(
            question,
            model=turn_model(self._app, body.model, identity),
            system=ui_request.system_of(body),
            foreign=ui_request.tools_of(body),
            requester=identity.name,
            reachable=True,
            previous_run=place.previous_run,
            origin=ui_turns.UiTurn(reasoning=body.reasoning, approvals=body.approvals).as_origin(),
            client=ClientTurn(message_ids=(question_id,)) if question_id else None,
            busy=body.busy,
        )
        if not question_id:
            return await self._conversations.submit(spec, body.id)
        asked = (newest.id if newest is not None else body.id, body.trigger, question_id)
        key = client_thread.request_key("ui", identity.name, *asked, msgspec.json.encode(question).decode())
        return await self._conversations.submit(spec, body.id, key)

    async def _question(self, body: UiChatBody, last: UiMessage | None, newest: Run | None) -> tuple[Message, str]:
        """What is asked, and its id. A page that regenerates an answer need not repeat the question."""
        if last is not None:
            if last.role != "user":
                message = f"{body.where}: the last message must be the user's or the assistant's"
                raise ApiError(400, message, param=body.where)
            return ui_request.question_of(last, body.where), last.id
        if newest is None or body.trigger != "regenerate-message":
            raise ApiError(400, "messages: nothing was asked; send `messages`, or `message` alone", param="messages")
        turn = await ui_turns.answering_turn(self._journal, newest, body.message_id or "")
        return ui_turns.asked_in(turn), client_thread.question_ids(turn)[0]

    async def _go_on(
        self, request: web.Request, body: UiChatBody, last: UiMessage, newest: Run | None
    ) -> web.StreamResponse:
        """The page has answered what the assistant's message asked."""
        if newest is None:
            raise ApiError(409, "this chat has no message that could go on", param=body.where)
        if responses := ui_request.approval_responses(last):
            approvals = await self._answer(request[IDENTITY], newest, responses, body.decision)
            return await self._stream(request, newest, _Known(last.id, approvals))
        run = await self._with_results(request[IDENTITY], body, last, newest)
        return await self._stream(request, run, _Known(last.id))

    async def _answer(
        self, identity: Identity, run: Run, responses: Sequence[ui_request.ApprovalResponse], yes: Decision
    ) -> tuple[str, ...]:
        """Passes the user's answers on; one that comes too late changes nothing. Returns the questions."""
        asked = await self._conversations.approvals(run, identity)
        given = [response for response in responses if response.approval_id in asked]
        if not given:
            raise ApiError(409, "this approval is no longer asked for", code="approval_closed")
        for approval_id, approved, reason in given:
            if asked[approval_id].is_open:
                await self._conversations.answer(run, approval_id, yes if approved else "deny", identity, reason)
        return tuple(response.approval_id for response in given)

    async def _with_results(self, identity: Identity, body: UiChatBody, last: UiMessage, newest: Run) -> Run:
        """The turn that goes on with what the page's tools gave. Results that came before begin no other."""
        given, turn = ui_request.tool_results(last), ui_turns.ui_turn_of(newest)
        results = await self._own_results(identity, newest.id, given)
        if not results and turn.continues and _results_of(turn.continues, given):
            return newest
        if not given:
            message = "the last message is the assistant's, without results of the page's tools or answers to approvals"
            raise ApiError(400, f"{body.where}: {message}", param=body.where)
        if not results or newest.state not in ENDED:
            raise ApiError(409, "these are results of calls that this chat does not wait for", code="calls_closed")
        caller = msgspec.convert(newest.new.input, TurnSpec)
        message_id = last.id or ui_turns.answer_id(newest)
        kept = msgspec.structs.replace(turn, answer_id=message_id, continues=newest.id, reasoning=body.reasoning)
        spec = TurnSpec(
            Message("tool", results),
            model=turn_model(self._app, body.model, identity) or caller.model,
            system=ui_request.system_of(body) or caller.system,
            foreign=_merged(caller.foreign, ui_request.tools_of(body)),
            requester=identity.name,
            reachable=True,
            origin=kept.as_origin(),
        )
        return await self._conversations.submit(
            spec, body.id, client_thread.request_key("ui", identity.name, newest.id, "results")
        )

    async def _own_results(
        self, identity: Identity, run_id: str, results: Sequence[ToolResult]
    ) -> tuple[ToolResult, ...]:
        """The results of this run's calls, under the ids that the model gave them."""
        if not (known := _results_of(run_id, results)):
            return ()
        restored = await with_recorded_calls(
            self._journal, (Message("tool", known),), lambda run: identity.owns(client_thread.requester(run))
        )
        return tuple(part for message in restored for part in message.parts if isinstance(part, ToolResult))

    # ── the stream ───────────────────────────────────────────────────────────────────────────────────────────

    async def _stream(self, request: web.Request, run: Run, known: _Known | None = None) -> web.StreamResponse:
        """The message of this run: all of it, or what the page does not know yet."""
        stream = self._pipeline.stream(request, error_frame=_error_frame, headers=PROTOCOL, run_id=run.id)
        *before, _ = await ui_turns.message_runs(self._journal, run)
        facts = [await self._journal.facts(each.id) for each in before]
        is_compacted = run.first_seq > 1  # its chunks are no longer kept, and the facts have all that they said
        own = await self._journal.facts(run.id) if is_compacted else ()
        encoder = self._encoder(run, known, _answered([entry for log in (*facts, own) for entry in log]))
        data, after = b"", 0
        for each, log in zip(before, facts, strict=True):
            encoder.begin_run(each.id, client_thread.foreign_names(each))
            data += encoder.feed(log)
        encoder.begin_run(run.id, client_thread.foreign_names(run))
        if known is not None:
            if known.approvals:
                entries: Sequence[Entry] = own if is_compacted else await self._journal.read(run.id)
                after = entries[encoder.skip(entries, known.approvals) - 1].seq
            data = encoder.restart()
        if is_compacted:
            data, after = data + encoder.feed(entry for entry in own if entry.seq > after), run.last_seq
        stream.begin()
        await stream.send_pieces(data)
        while await self._send(stream, encoder, run, after):
            after = encoder.seq
        if encoder.finished is None and not encoder.paused:
            raise ApiError(503, "the server is stopping; the run goes on after its restart", code="server_stopping")
        return await stream.end(await self._close(encoder))

    async def _send(self, stream: EventStream, encoder: UiMessageEncoder, run: Run, after: int) -> bool:
        """Sends the entries after this one, to the end or to an open question. True where that was answered before:
        the rest is still to be sent."""
        async with aclosing(follow_pages(self._journal, run.id, after=after)) as pages:
            async for page in pages:
                await stream.send_pieces(encoder.feed(page.entries))
                del page
                await stream.caught_up()
                if encoder.paused:
                    return encoder.go_on(_answered(await self._journal.facts(run.id)))
        return False

    def _encoder(self, run: Run, known: _Known | None, answered: Collection[str]) -> UiMessageEncoder:
        turn = ui_turns.ui_turn_of(run)
        return UiMessageEncoder(
            (known.message_id if known is not None else "") or ui_turns.answer_id(run),
            reasoning=turn.reasoning,
            approvals=turn.approvals,
            whole=self._app.config.streaming.api_server is False,
            answered={*answered, *(known.approvals if known is not None else ())},
            counts_cache_apart=Costs(self._app.config).counts_cached_beside,
        )


def _results_of(run_id: str, results: Sequence[ToolResult]) -> tuple[ToolResult, ...]:
    """The results of calls that this run made, by the ids that the page has of them."""
    return tuple(result for result in results if calling_run(result.call_id) == run_id)


def _answered(facts: Sequence[Entry]) -> set[str]:
    return {approval.id for approval in approvals_in(facts).values() if not approval.is_open}


def _merged(before: Sequence[ToolSpec], now: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The page's tools, where a request that brings results repeats none or some of them."""
    return tuple({tool.name: tool for tool in (*before, *now)}.values())


def _error_frame(error: ApiError) -> bytes:
    return encode_event(msgspec.json.encode({"type": "error", "errorText": str(error)})) + DONE


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route = UiChat(pipeline), partial(Route, access="runs")
    errors = (404, 409, 413)
    return (
        route("POST", "/ui/chat", api.send, body=UiChatBody, streams=True, errors=errors),
        route("GET", "/ui/chat/{id}/stream", api.resume, streams=True, errors=(204, 409)),
        route("GET", "/ui/chat/{id}/messages", api.messages, answer=OBJECTS),
        route("POST", "/ui/chat/{id}/stop", api.stop, answer=ChatStatus),
    )

"""The vendor's side of a request: whether it is taken, and what is signed in the answer to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from proof.strict_provider import anthropic, chat, responses
from proof.strict_provider.fitting import CHORE, fitting, is_chore
from proof.strict_provider.issued import Issued, encrypted_for, thinking_signature
from tailrace.messages import JsonObject
from tailrace.testing.provider import FaultyProvider, Scenario
from tailrace.testing.scripted.failures import Failure
from tailrace.testing.scripted.render import body_of
from tailrace.testing.scripted.reply import Block, Reply, ThinkingBlock, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest


class StrictProvider(FaultyProvider):
    """Three APIs with one memory: each refuses what its vendor refuses, and signs what it says as its vendor does.

    A step of a turn is made to fit its request: a chore (a title, a check of the key) gets a short text, and a
    demanded schema or call is answered.
    """

    def __init__(
        self,
        script: Iterable[str | Scenario | Reply] = (),
        *,
        turns: Mapping[str, Sequence[Reply]] | None = None,
        returns_reasoning: bool = False,
    ) -> None:
        """`returns_reasoning`: in chat a tool call comes back with its `reasoning_content`, as DeepSeek and Moonshot
        want it."""
        super().__init__(script, turns=turns)
        self._returns_reasoning = returns_reasoning
        self._issued = Issued()

    def refusal(self, request: ScriptedRequest, headers: Mapping[str, str], counting: bool) -> Failure | None:
        """The first reason to refuse the request, if there is one. The names of headers are in lower case."""
        body, dialect = request.body, request.dialect
        refusals: Iterator[Failure] = iter(())  # of an API whose rules are not known
        if dialect == "anthropic":
            refusals = anthropic.refusals(body, headers, counting=counting)
        if dialect == "responses":
            refusals = responses.refusals(body, self._issued)
        if dialect == "chat":
            refusals = chat.refusals(body, self._issued, returns_reasoning=self._returns_reasoning)
        return next(refusals, None)

    def signed(self, reply: Reply, request: ScriptedRequest) -> Reply:
        """The reply with signatures and encrypted content of this provider; what is in it is recognised from now on."""
        if request.dialect == "anthropic":
            return _with_signatures(reply, [thinking_signature(block.text) for block in _thoughts(reply)])
        if request.dialect == "responses":
            return self._encrypted(reply, request)
        if request.dialect == "chat":
            self._issued.add_chat(body_of("chat", reply, request))
        return reply

    def conversation(self, request: ScriptedRequest) -> list[JsonObject]:
        """With the items of the response that the request goes on from."""
        return (
            self._issued.whole_input(request.body) if request.dialect == "responses" else super().conversation(request)
        )

    def step_of_turn(self, name: str, request: ScriptedRequest) -> Reply:
        steps = self.turns[name]
        chosen = reply(CHORE) if is_chore(steps, request) else super().step_of_turn(name, request)
        return fitting(chosen, [made.name for step in steps for made in step.calls], request)

    def _encrypted(self, reply: Reply, request: ScriptedRequest) -> Reply:
        output = body_of("responses", _with_signatures(reply, [""] * len(_thoughts(reply))), request)["output"]
        asked = "reasoning.encrypted_content" in (request.body.get("include") or ())
        sealed = [encrypted_for(item["id"]) if asked else "" for item in output if item["type"] == "reasoning"]
        made = _with_signatures(reply, sealed)
        self._issued.add_response(request.body, body_of("responses", made, request))
        return made


def _thoughts(reply: Reply) -> list[ThinkingBlock]:
    return [block for block in reply.blocks if isinstance(block, ThinkingBlock)]


def _with_signatures(reply: Reply, signatures: list[str]) -> Reply:
    """One signature for each thought, in order."""
    left = iter(signatures)
    blocks: tuple[Block, ...] = tuple(
        replace(block, signature=next(left)) if isinstance(block, ThinkingBlock) else block for block in reply.blocks
    )
    return replace(reply, blocks=blocks)

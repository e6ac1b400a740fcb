"""The vendor's side of a request: whether it is taken, and what is signed in the answer to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from tailrace.messages import JsonObject, Value
from tailrace.testing.provider.strict import anthropic, chat, responses
from tailrace.testing.provider.strict.issued import Issued, encrypted_for, thinking_signature
from tailrace.testing.provider.strict.wording import objects_in
from tailrace.testing.scripted.failures import Failure
from tailrace.testing.scripted.render import body_of
from tailrace.testing.scripted.reply import Block, Reply, ThinkingBlock
from tailrace.testing.scripted.request_reader import ScriptedRequest


class Strict(Value):
    """Refuse what the vendors' APIs refuse, and what is set here besides."""

    returns_reasoning: bool = False  # chat: a tool call comes back with its `reasoning_content` (DeepSeek, Moonshot)


class VendorApi:
    """Three APIs with one memory. Without rules, they take everything and sign nothing."""

    def __init__(self, rules: Strict | None) -> None:
        self._rules = rules
        self._issued = Issued()

    def refusal(
        self, request: ScriptedRequest, headers: Mapping[str, str], *, counting: bool = False
    ) -> Failure | None:
        """The first reason to refuse the request, if there is one. The names of headers are in lower case."""
        if self._rules is None:
            return None
        body, dialect = request.body, request.dialect
        refusals: Iterator[Failure] = iter(())  # of an API whose rules are not known
        if dialect == "anthropic":
            refusals = anthropic.refusals(body, headers, counting=counting)
        if dialect == "responses":
            refusals = responses.refusals(body, self._issued)
        if dialect == "chat":
            refusals = chat.refusals(body, self._issued, returns_reasoning=self._rules.returns_reasoning)
        return next(refusals, None)

    def signed(self, reply: Reply, request: ScriptedRequest) -> Reply:
        """The reply with signatures and encrypted content of this provider; what is in it is recognised from now on."""
        if self._rules is None:
            return reply
        if request.dialect == "anthropic":
            return _with_signatures(reply, [thinking_signature(block.text) for block in _thoughts(reply)])
        if request.dialect == "responses":
            return self._encrypted(reply, request)
        if request.dialect == "chat":
            self._issued.add_chat(body_of("chat", reply, request))
        return reply

    def conversation(self, request: ScriptedRequest) -> list[JsonObject]:
        """The messages or items of a request, with those of the response that it goes on from."""
        if request.dialect == "responses":
            return self._issued.whole_input(request.body)
        return objects_in(request.body.get("messages"))

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

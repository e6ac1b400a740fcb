"""The replies that a scenario can name: together they use all that the dialects can express."""

from __future__ import annotations

from tailrace.messages import Usage, Value
from tailrace.testing.scripted.reply import Citation, Reply, call, refuse, reply, say, think

_OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
_WEATHER = call("get_weather", {"city": "Zürich", "unit": "celsius"})
_CLOCK = call("get_time", {"zone": "Europe/Zurich", "note": 'a "quoted" \\ path'})


class NamedReply(Value):
    summary: str
    reply: Reply


REPLIES: dict[str, NamedReply] = {
    "ok": NamedReply("a short text", reply(_OK)),
    "empty": NamedReply("no content at all", Reply()),
    "long": NamedReply("a text of 2,000 words", reply(" ".join(f"word{number}" for number in range(2000)))),
    "tools": NamedReply("one tool call", reply(_WEATHER)),
    "parallel": NamedReply("two tool calls at once", reply(_WEATHER, _CLOCK)),
    "text-and-tools": NamedReply("text, then two tool calls", reply("Let me look that up.", _WEATHER, _CLOCK)),
    "no-arguments": NamedReply("a tool call without arguments", reply(call("get_time", ""))),
    "reasoning": NamedReply(
        "thought with a signature, then text", reply(think("Water runs downhill.", "c2lnbmVk"), "Downhill.")
    ),
    "reasoning-tools": NamedReply("thought, then a tool call", reply(think("I must look.", "c2lnbmVk"), _WEATHER)),
    "reasoning-only": NamedReply(
        "all tokens spent on thought, no answer", reply(think("On the one hand …", "c2lnbmVk"), stop="length")
    ),
    "think-tags": NamedReply("thought inside the text, in tags", reply("<think>Hm, water.</think>Downhill.")),
    "refusal": NamedReply("the model declines", reply(refuse("I'm sorry, I can't help with that."))),
    "blocks": NamedReply("two text blocks in one answer", reply("First block. ", "Second block.")),
    "citations": NamedReply(
        "text that cites a web page",
        reply("As one reads: ", say("water is wet.", Citation("https://example.com/water", "On water", 0, 13))),
    ),
    "logprobs": NamedReply("text with log probabilities", reply(say("Four plus five is nine.", logprobs=True))),
    "unicode": NamedReply(
        "emoji, combining marks, U+2028, U+2029, U+0085",
        reply('naïve 👩‍👩‍👧‍👦 e\u0301 \u2028 line \u2029 para \u0085 next 日本語 : colon, "quote" \\ \t tab\nnew line'),
    ),
    "surrogate": NamedReply("half a surrogate pair in the text", reply("lone \ue000 surrogate")),
    "length": NamedReply("text cut off by the token limit", reply("This goes on and", stop="length")),
    "filter": NamedReply("text stopped by a content filter", reply("As for that,", stop="filter")),
    "cached": NamedReply(
        "usage with cached and reasoning tokens",
        reply(_OK, usage=Usage(1200, 34, cache_read_tokens=1000, cache_write_tokens=100, reasoning_tokens=16)),
    ),
}

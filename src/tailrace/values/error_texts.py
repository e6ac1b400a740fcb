"""What providers write in their errors where neither a status nor a code says it: one table of texts by their meaning.

Owns the patterns alone. The modules that ask `says` decide which statuses count and what follows. A new vendor's
wording is a new row, and its example is its test.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

Meaning: TypeAlias = Literal[
    "too_long",  # more than the model reads
    "answer_room",  # names the tokens that the answer may have
    "media",  # names an image or a file; of a 400
    "media_unsupported",  # says that an image or a file is not supported, whatever the status
    "no_images",  # the model reads no image, whichever it is
    "not_the_servers_fault",  # a 500 that will come again
    "policy",  # refused for what the request says
    "quota",  # the account has nothing left to spend
    "passes",  # says when to try again
    "stream_refused",  # of a text that names the stream
    "names_a_field",  # of the request: that is at fault, streamed or not; upper case counts
    "field_refused",  # of a text that names a field of ours
    "no_schema",  # structured output is not known
]


class ErrorText(NamedTuple):
    vendor: str
    pattern: str
    example: str


# Of no image at all: what follows says nothing of one that is too large, of another kind (`image/gif`), given by its
# address, or in a place where none may be.
_NOTHING_MORE: Final = (
    r"(?=\W*$|\s*[.,;:!?\"'()\[\]{}`]|\s+[-–—]\s|\s+by\b|\s+(?:for|with|on|in) (?:this|the|that|your) model\b)"
)
_IMAGES: Final = r"(?:image|vision|multi-?modal)s?(?:_url)?(?: inputs?| content)?(?: parts?)?"
_WORD: Final = r"(?<![-\w/])"  # no part of a name (`x-vision-1`, `audio_player`) or of a path
_NO_IMAGE_DATA: Final = ErrorText(
    "Ollama", r"required for image input", "this model is missing data required for image input"
)
_NOT_MULTIMODAL: Final = ErrorText("vLLM", r"not a multi-?modal model", "qwen3-8b is not a multimodal model")
_CONTENT_PART: Final = ErrorText(
    "llama.cpp", r"unsupported content part type", 'Unsupported content part type: "image_url"; messages = ['
)
_CONTENT_TYPE: Final = ErrorText("llama.cpp", r"unsupported content\[\]", "unsupported content[].type")

TABLE: Final[dict[Meaning, tuple[ErrorText, ...]]] = {
    "too_long": (
        ErrorText("OpenAI, most", r"context.{0,12}(?:length|window|size)", "exceed context window of 2048"),
        ErrorText("Together", r"too many tokens", "too many tokens in the prompt"),
        ErrorText("Anthropic, Bedrock", r"(?:prompt|input) is too long", "prompt is too long: 21 tokens > 20 maximum"),
        ErrorText("xAI", r"maximum prompt length", "This model's maximum prompt length is 131072"),
        ErrorText("Gemini", r"token count.{0,20}exceeds the maximum", "The input token count (9) exceeds the maximum"),
        ErrorText(
            "Anthropic",
            r"input length.{0,24}exceed context limit",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        ),
    ),
    "answer_room": (
        ErrorText("all", r"max_(?:completion_|output_|new_)?tokens", "max_tokens is too large: 100000"),
        ErrorText("vLLM", r"output tokens", "you requested 65535 output tokens"),
        ErrorText("OpenAI", r"the (?:completion|output)\b", "122942 in the messages, 8192 in the completion"),
    ),
    "media": (
        ErrorText(
            "OpenAI, Anthropic, vLLM",
            _WORD + r"(?:input_)?(?:images?(?:_url)?\b|(?:files?|documents?|audios?)(?:_url)?(?![-\w]))",
            "messages.4.content.1.image.source.base64: image exceeds 5 MB maximum",
        ),
        ErrorText("several", _WORD + r"(?:vision|media)(?![-\w])", "vision is not enabled"),
        ErrorText("Gemini", r"multi-?modal", "Multimodal function responses are not supported"),
        ErrorText("Bedrock", r"\bpdf\b", "The PDF specified was not valid."),
        ErrorText("Zhipu", r"图[像片]", "此模型不支持图像输入。请尝试其他模型"),
        ErrorText("Groq", r"content\W+(?:value )?must be a string", "'messages.0.content' : value must be a string"),
        ErrorText("DeepSeek", r"sequence, expected a string", "invalid type: sequence, expected a string at line 1"),
        ErrorText("DeepSeek", r"untagged enum \w*content", "any variant of untagged enum ChatRequestContent"),
        _CONTENT_TYPE,
    ),
    "media_unsupported": (
        ErrorText(
            "OpenRouter",
            rf"support.{{0,20}}(?:image|{_WORD}vision|multi-?modal|audio|\b(?:input_)?files?\b)",
            "No endpoints found that support image input",
        ),
        ErrorText(
            "OpenAI",
            rf"(?:image|audio|{_WORD}vision(?![-\w])|\b(?:input_)?files?\b).{{0,20}}not support",
            "input_file is not supported by this model",
        ),
        ErrorText("Gemini", r"multi-?modal.{0,30}not support", "Multimodal function responses are not supported"),
        ErrorText("Groq", r"image.{0,12} only (?:allowed|supported)", "Image URLs are only allowed for messages"),
        ErrorText(
            "llama-cpp-python",
            r"can only concatenate str \(not .{0,2}list",
            'can only concatenate str (not "list") to str',
        ),
        _NO_IMAGE_DATA,
        _NOT_MULTIMODAL,
        _CONTENT_TYPE,
        _CONTENT_PART,
    ),
    "no_images": (
        ErrorText(
            "most",
            rf"(?:not|n.t) (?:currently )?(?:support|accept|take) {_IMAGES}{_NOTHING_MORE}",
            "Model x does not support image_url content parts",
        ),
        ErrorText(
            "llama.cpp",
            rf"{_WORD}{_IMAGES} (?:is|are) not supported{_NOTHING_MORE}",
            "image input is not supported - hint: you may need to provide the mmproj",
        ),
        ErrorText("OpenRouter", r"support image input$", "No endpoints found that support image input"),
        ErrorText(
            "OpenAI", r"image_url is only supported by certain models", "image_url is only supported by certain models."
        ),
        ErrorText("vLLM", r"at most 0 image", "At most 0 image(s) may be provided in one prompt."),
        ErrorText("ours", r"takes no images", "local/smollm2 takes no images: it reads and writes text alone"),
        _NO_IMAGE_DATA,
        _NOT_MULTIMODAL,
    ),
    "not_the_servers_fault": (
        ErrorText("llama.cpp", r"(?:image|audio) input is not supported", "audio input is not supported - mmproj"),
        ErrorText(
            "Ollama",
            r"does(?: not|n.t) support (?:images?|vision|multi-?modal)\b(?! (?:format|type|size))",
            "Model does not support images. Please use a model that does.",
        ),
        _NO_IMAGE_DATA,
        _NOT_MULTIMODAL,
        _CONTENT_PART,
    ),
    "policy": (
        ErrorText("Azure, OpenAI", r"content.{0,12}(?:policy|filter|risk)", "content management policy"),
        ErrorText("OpenRouter", r"moderation|flagged", "Your input was flagged"),
        ErrorText("DashScope", r"inappropriate content|data_inspection", "data_inspection_failed"),
    ),
    "quota": (ErrorText("all", r"quota|billing|credit|insufficient", "You exceeded your current quota"),),
    # Gemini and OpenAI speak of the quota, or of billing, where a minute's requests are used up too.
    "passes": (ErrorText("Gemini", r"\b(?:re)?try (?:again )?(?:in|after) \d", "Please retry in 27.9s."),),
    "stream_refused": (
        ErrorText(
            "all",
            r"not (?:be )?(?:support|allow|availab|enabl|implement|permit)|unsupported|n.t support|disabled",
            "Streaming is not supported for this model",
        ),
        ErrorText("OpenAI", r"must be (?:false|verified)", "Your organization must be verified to stream this model"),
        ErrorText("several", r"cannot (?:be )?stream|without stream", "This endpoint cannot stream"),
    ),
    "names_a_field": (
        # A name with an underscore (`top_k`, `call_7`), a place in a list, or the field that the provider said itself.
        ErrorText(
            "all",
            r"\b(?!req|status|error|\w*(?:error|request)\b)[a-z]+_\w|[a-z](?:\.|\[)\d|\((?!stream\))[a-z][\w.\[\]]*\)$",
            "No tool output found for function call call_7.",
        ),
        ErrorText(
            "all",
            r"\b(?:messages|temperature|tools|reasoning|thinking|logprobs|metadata|instructions|"
            r"(?:system|input|model|user)(?=:)|(?i:images?|multi-?modal))\b",
            "temperature is out of range",
        ),
        ErrorText(
            "Anthropic", r"(?<!\bstream: )Extra inputs are not permitted", "colour: Extra inputs are not permitted"
        ),
    ),
    "field_refused": (
        ErrorText(
            "all",
            r"unsupported|not (?:be |currently )?(?:support|allow|permit|availab|implement|recogni|expect|accept|valid)"
            r"|n.t (?:support|allow|accept)|unknown|unrecogni|unexpected|no such|remove|disabled|only |must be false|"
            r"cannot be (?:true|used|enabled)",
            "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
        ),
        ErrorText(
            "Anthropic, FastAPI",
            r"extra (?:inputs?|fields?)|extra_forbidden|additional propert"
            r"|invalid (?:parameter|argument|field|request|property)",
            "stream_options: Extra inputs are not permitted",
        ),
        ErrorText("OpenAI", r"zero.data.retention", "store: Zero Data Retention is on for this organization"),
    ),
    "no_schema": (
        ErrorText(
            "all",
            r"response_format|json_schema|output_config|output_format|text\.format|structured",
            "This response_format type is unavailable now",
        ),
    ),
}
_CASE_COUNTS: Final = frozenset({"names_a_field"})
_PATTERNS: Final = {
    meaning: re.compile("|".join(row.pattern for row in rows), 0 if meaning in _CASE_COUNTS else re.IGNORECASE)
    for meaning, rows in TABLE.items()
}


def says(meaning: Meaning, text: str) -> bool:
    """Whether a provider's error has words that mean this."""
    return _PATTERNS[meaning].search(text) is not None

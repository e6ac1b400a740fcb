"""Who stopped a run, in words, and what a provider has refused: as too long, or for an image in it."""

from __future__ import annotations

import pytest

from tailrace.events import RunFailure
from tailrace.runs.failures import is_media_refused, is_too_long, takes_no_images

# What is read and what may be answered are too much together: a shorter conversation leaves room.
TOO_LONG = [
    # Anthropic
    (
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length"
        " or `max_tokens` and try again"
    ),
    # OpenAI, DeepSeek, vLLM
    (
        "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the"
        " messages, 8192 in the completion). Please reduce the length of the messages or completion."
    ),
    (
        "This model's maximum context length is 4097 tokens. However, your messages resulted in 4218 tokens."
        " Please reduce the length of the messages."
    ),
    (
        "This model's maximum context length is 131,072 tokens. However, you requested 140,000 tokens (131,808 in the"
        " messages, 8,192 in the completion)."
    ),
    # llama-cpp-python
    (
        "This model's maximum context length is 4097 tokens, however you requested 4658 tokens (3158 in your"
        " prompt; 1500 for the completion). Please reduce your prompt; or completion length."
    ),
    # vLLM
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 65535. This model's maximum context length is"
        " 128000 tokens and your request has 62466 input tokens (65535 > 128000 - 62466)."
    ),
    (
        "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and"
        " your prompt contains at least 62466 input tokens, for a total of at least 128001 tokens."
    ),
    # SGLang
    (
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a"
        " total of 40020 tokens: 32020 tokens from the input messages and 8000 tokens for the completion."
    ),
    # OpenRouter
    (
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens"
        ' (42832 of text input). Please reduce the length of either one, or use the "middle-out" transform'
    ),
    # llama.cpp
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Requested tokens (2138) exceed context window of 2048",
    # Mistral
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
]
# The answer alone may have more than the model has: no conversation is short enough.
TOO_MUCH_ASKED = [
    # Groq
    (
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the"
        " `context_window` for this model"
    ),
    # OpenAI
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
    (
        "This model's maximum context length is 4096 tokens. However, you requested 4217 tokens (121 in the"
        " messages, 4096 in the completion). Please reduce the length of the messages or completion."
    ),
    # Anthropic
    "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022",
    # llama-cpp-python
    (
        "This model's maximum context length is 512 tokens, however you requested 1030 tokens (6 in your"
        " prompt; 1024 for the completion). Please reduce your prompt; or completion length."
    ),
    # vLLM
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 40000. This model's maximum context length is"
        " 32768 tokens and your request has 20 input tokens (40000 > 32768 - 20)."
    ),
    # SGLang
    (
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a"
        " total of 40020 tokens: 20 tokens from the input messages and 40000 tokens for the completion."
    ),
    (
        "This model's maximum context length is 32,768 tokens. However, you requested 40,020 tokens (20 in the"
        " messages, 40,000 in the completion)."
    ),
    # others
    "max_output_tokens exceeds the context window",
    "max_tokens (200000) exceeds the maximum context length of 131072",
]


@pytest.mark.parametrize(
    ("status", "message", "too_long"),
    [
        (400, "This model's maximum context length is 8192 tokens.", True),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", True),
        (400, "Input is too long for requested model.", True),
        (400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens.", True),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", True),
        (400, "the request exceeds the available context size, try increasing it", True),
        (413, "Request Entity Too Large", True),
        (400, "max_tokens is too large", False),
        *((400, message, True) for message in TOO_LONG),
        *((400, message, False) for message in TOO_MUCH_ASKED),
        (500, "context length", False),
    ],
)
def test_what_vendors_say_of_a_request_that_is_too_long(status: int, message: str, too_long: bool) -> None:
    assert is_too_long(RunFailure("invalid_request_error", message, status=status)) is too_long


def test_the_kind_says_it_where_the_message_names_the_room_for_the_answer_and_nothing_that_is_read() -> None:
    message = "Requested tokens exceed the context window. Try lowering max_tokens or sending less."
    assert is_too_long(RunFailure("context_length_exceeded", message, status=400))
    assert not is_too_long(RunFailure("invalid_request_error", message, status=400))


@pytest.mark.parametrize(
    ("status", "message", "refused"),
    [
        (400, "Invalid content type. image_url is only supported by certain models.", True),
        (400, "mistral-7b is not a multimodal model", True),
        (400, "At most 0 image(s) may be provided in one prompt.", True),
        (400, "this model does not support image input (ref: 9152fe9a)", True),
        (400, "messages[3]: unknown variant `image_url`, expected `text` at line 1 column 173667", True),
        (400, "This model doesn't support the image content block that you provided.", True),
        (400, "Image input modality is not enabled for models/gemma-3-1b-it", True),
        (400, "local/smollm2 takes no images: it reads and writes text alone; name another model", True),
        (400, "messages.4.content.1.image.source.base64: image exceeds 5 MB maximum", True),
        (400, "messages[0].content must be a string", True),
        (400, "'messages.0.content' : value must be a string", True),
        (400, "此模型不支持图像输入。请尝试其他模型", True),
        (422, "messages[2]: invalid type: sequence, expected a string at line 1 column 2901", True),
        (422, "messages[2]: data did not match any variant of untagged enum ChatCompletionRequestContent", True),
        (404, "No endpoints found that support image input", True),
        (500, "image input is not supported - hint: you may need to provide the mmproj", True),
        (500, "this model is missing data required for image input", True),
        (500, 'Failed to parse messages: Unsupported content part type: "image_url"; messages = [', True),
        (500, 'can only concatenate str (not "list") to str', True),
        (500, "qwen3-8b is not a multimodal model", True),
        (500, "Model does not support images. Please use a model that does.", True),
        (500, "Internal Server Error", False),
        (400, "openai: audio: not readable", True),
        (400, "image: could not be decoded", True),
        (400, "Image-based input cannot be read by this model", True),
        (400, "Unsupported MIME type: audio/wav", True),
        (400, "Invalid value: 'input_audio'. Supported values are: 'text'", True),
        (400, "Invalid value: 'input_file'. Supported values are: 'text'", True),
        (400, "messages.2.content.0.tool_result.content.1.image.source.base64: image exceeds 5 MB maximum", True),
        (400, "InternalError.Algo.InvalidParameter: The image length and width do not meet the restrictions", True),
        (400, "Image URLs are only allowed for messages with role 'user', but this one has the role 'tool'", True),
        (400, "Multimodal function responses are not supported for this model", True),
        (500, "input_file is not supported by this model", True),
        (400, "temperature is out of range", False),
        (400, "vision: temperature is out of range", False),
        (400, "media-gateway: temperature is out of range", False),
        (400, "The model `llama-3.2-90b-vision-preview` has been decommissioned", False),
        (400, "Invalid schema for function 'file'", False),
        (400, "property 'document' is invalid", False),
        (400, "bad request, see https://provider.test/help/document/x", False),
        (400, "invalid tool: audio_player", False),
        (400, "invalid name: audio_player", False),
        (500, "support: profile", False),
        (500, "your profile does not support this", False),
        (404, "The model `llama-vision-preview` is not supported", False),
        (400, "see the documentation", False),
        (400, "maximum context length is 8192 tokens, images included", False),
        (404, "The model `gpt-4-vision-preview` has been deprecated", False),
        (500, "No such file or directory", False),
        (429, "too many images in a minute", False),
        (401, "Incorrect API key, this model does not support image input", False),
    ],
)
def test_what_vendors_say_of_a_request_with_an_image_that_the_model_does_not_take(
    status: int, message: str, refused: bool
) -> None:
    assert is_media_refused(RunFailure("permanent", message, status=status)) is refused


@pytest.mark.parametrize(
    ("message", "no_images"),
    [
        ("this model does not support image input (ref: 9152fe9a)", True),
        ("Model does not support images. Please use a model that does.", True),
        ("image input is not supported - hint: you may need to provide the mmproj", True),
        ("qwen3-8b is not a multimodal model", True),
        ("this model is missing data required for image input", True),
        ("Invalid content type. image_url is only supported by certain models.", True),
        ("local/smollm2 takes no images: it reads and writes text alone; name another model", True),
        ("messages.4.content.1.image.source.base64: image exceeds 5 MB maximum", False),
        ("At most 1 image(s) may be provided in one request.", False),
        ("You uploaded an unsupported image. Please make sure your image is valid.", False),
        ("the model does not support image types other than png", False),
        ("does not support images in webp", False),
        ("The model does not support image/gif", False),
        ("does not support image URLs; send the image itself", False),
        ("This model does not support images when tools are used", False),
        ("Image inputs are not supported in tool messages", False),
        ("Image inputs are not supported by this model.", True),
        ("images are not supported for this model", True),
        ("Model x does not support image_url content parts", True),
        ('"does not support vision"', True),
        ("Multimodal function responses are not supported for this model", False),
        ("messages[3].content must be a string", False),
        ("image: could not be decoded", False),
    ],
)
def test_an_image_that_is_not_read_is_no_model_that_reads_none(message: str, no_images: bool) -> None:
    assert takes_no_images(RunFailure("permanent", message, status=400)) is no_images

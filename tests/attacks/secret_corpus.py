"""A thousand keys of the forms that providers, platforms and stores give out: made from a seed, none of them real."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable, Mapping
from types import MappingProxyType

SEED = 19
CORPUS_SIZE = 1000
_WORD = string.ascii_letters + string.digits
_URL_SAFE = _WORD + "-_"
_HEX = "0123456789abcdef"
# What people choose themselves: quotes, backslashes, blanks, umlauts and what addresses escape
_TYPED = _WORD + "\"'\\/ +%&<>@:#?={}[]éß漢"


def _of(alphabet: str, length: int, rng: random.Random) -> str:
    return "".join(rng.choices(alphabet, k=length))


def _json_web_token(rng: random.Random) -> str:
    return ".".join(base64.urlsafe_b64encode(rng.randbytes(size)).decode().rstrip("=") for size in (27, 75, 32))


def _typed(rng: random.Random) -> str:
    return "p" + _of(_TYPED, rng.randint(8, 30), rng) + "w"  # blanks around a secret are dropped when it is read


FORMS: Mapping[str, Callable[[random.Random], str]] = MappingProxyType(
    {
        "openai": lambda rng: f"sk-proj-{_of(_URL_SAFE, 74, rng)}T3BlbkFJ{_of(_URL_SAFE, 74, rng)}",
        "openai, older": lambda rng: f"sk-{_of(_WORD, 48, rng)}",
        "anthropic": lambda rng: f"sk-ant-api03-{_of(_URL_SAFE, 93, rng)}AA",
        "openrouter": lambda rng: f"sk-or-v1-{_of(_HEX, 64, rng)}",
        "deepseek": lambda rng: f"sk-{_of(_HEX, 32, rng)}",
        "mistral": lambda rng: _of(_WORD, 32, rng),
        "groq": lambda rng: f"gsk_{_of(_WORD, 52, rng)}",
        "together": lambda rng: _of(_HEX, 64, rng),
        "gemini": lambda rng: f"AIza{_of(_URL_SAFE, 35, rng)}",
        "xai": lambda rng: f"xai-{_of(_WORD, 80, rng)}",
        "telegram": lambda rng: f"{rng.randrange(10**9, 10**10)}:AA{_of(_URL_SAFE, 33, rng)}",
        "discord": lambda rng: f"M{_of(_WORD, 25, rng)}.{_of(_URL_SAFE, 6, rng)}.{_of(_URL_SAFE, 38, rng)}",
        "slack bot": lambda rng: (
            f"xoxb-{_of('0123456789', 12, rng)}-{_of('0123456789', 13, rng)}-{_of(_WORD, 24, rng)}"
        ),
        "slack app": lambda rng: f"xapp-1-A{_of(_WORD, 10, rng)}-{_of('0123456789', 13, rng)}-{_of(_HEX, 64, rng)}",
        "whatsapp": lambda rng: f"EAA{_of(_WORD, 190, rng)}",
        "whatsapp app secret": lambda rng: _of(_HEX, 32, rng),
        "home assistant": _json_web_token,
        "matrix": lambda rng: f"syt_{_of(_WORD, 12, rng)}_{_of(_WORD, 20, rng)}_{_of(_WORD, 6, rng)}",
        "mcp server": lambda rng: f"ghp_{_of(_WORD, 36, rng)}",
        "base64": lambda rng: base64.b64encode(rng.randbytes(32)).decode(),
        "password": _typed,
    }
)


def secret_corpus(size: int = CORPUS_SIZE) -> list[str]:
    """The same ones each time; each form as often as any other."""
    rng = random.Random(SEED)
    makers = list(FORMS.values())
    return [makers[number % len(makers)](rng) for number in range(size)]

"""What Meta's errors mean: whether to wait, to try again, to send less or to give up, and what a person can do.

Pure. The same error comes in an answer or in a status of a message.
"""

from __future__ import annotations

import logging

import msgspec

from tailrace.delivery import port

log = logging.getLogger("tailrace.integrations.whatsapp")

PAIR_LIMIT, WINDOW_CLOSED, SPAM_LIMIT = 131056, 131047, 131048
_FLOODS = {PAIR_LIMIT: 6.0, 4: 60.0, 80007: 60.0, 130429: 5.0, SPAM_LIMIT: 600.0}  # Meta names no time: these are ours
_PASSING = frozenset({1, 2, 131000, 131016, 131057, 133004})  # out of order for now, and nothing was sent
TOKEN_CODES = frozenset({0, 190})  # the access token is no longer good
# The next message would meet the same: the person cannot be reached, or the account may send nothing.
_LASTING = TOKEN_CODES | {10, 368, 131026, 131030, 131031, 131042, 131049, WINDOW_CLOSED, SPAM_LIMIT}
_EXPIRED = 463  # a subcode: the same code stands for a token that was mistyped
NO_SUCH_THING = 100
_ADVICE = "make a new one, and set it where token_env says (WHATSAPP_TOKEN)"
_EXPLAINED = {
    **dict.fromkeys(TOKEN_CODES, f"the access token is not valid: {_ADVICE}, or copy it again"),
    10: "the access token lacks the permission whatsapp_business_messaging",
    131026: "it cannot be delivered: the person has blocked this number, has no WhatsApp any more, or a very old one",
    131042: "Meta asks for a payment method or a payment of the business account",
    131049: "Meta chose not to deliver it, to keep down what this person is sent; a later try may succeed",
    131030: "a test number may only write to the numbers on its list: add this one in the app's WhatsApp settings",
    131031: "Meta has locked the business account",
    WINDOW_CLOSED: "this person has not written for 24 hours: WhatsApp takes no answer until they write again",
    SPAM_LIMIT: "too many people have blocked or reported this number",
    368: "Meta has blocked the account for a violation of its policies",
}


class Trouble(msgspec.Struct, frozen=True):
    """An error as Meta has it, in a response or in a status."""

    code: int = 0
    error_subcode: int = 0
    message: str = ""
    title: str = ""
    error_data: object = None  # an object with `details`, or what another part of Meta puts there

    @property
    def details(self) -> str:
        details = self.error_data.get("details") if isinstance(self.error_data, dict) else None
        return details if details and isinstance(details, str) else self.message or self.title


class Refusal(Exception):
    """Meta says no."""

    def __init__(self, trouble: Trouble, status: int) -> None:
        self.trouble, self.status = trouble, status
        super().__init__(explained(trouble))


class UnclearResponse(Exception):
    """An answer that is not Meta's: a gateway in between."""


def explained(trouble: Trouble) -> str:
    """The error in words that say what to do, with Meta's code."""
    if trouble.error_subcode == _EXPIRED:
        return f"the access token has expired: {_ADVICE} ({trouble.code})"
    return f"{_EXPLAINED.get(trouble.code) or trouble.details or 'no reason given'} ({trouble.code})"


def lets_others_through(trouble: Trouble) -> bool:
    """Whether the message after the one that met this may be delivered."""
    return trouble.code not in _LASTING


def reply_to(refused: Refusal, place: port.Place) -> port.AnyReply:
    """Meta's own error is certain: nothing was sent."""
    code, details = refused.trouble.code, refused.trouble.details
    if code in _FLOODS:
        return port.Flood(_FLOODS[code])
    if refused.status == 429:
        return port.Flood(60.0)
    if code in (100, 131009) and "characters" in details:
        return port.TooLong()
    if code in _PASSING or code in TOKEN_CODES:
        return port.Failed(str(refused), needs_operator=code in TOKEN_CODES)
    log.warning("WhatsApp refuses a message to %s: %s", place.chat, refused)
    return port.Refused(str(refused), until_heard=code == WINDOW_CLOSED)

"""Who is served: people that the config or a pairing code lets in. Others get a pairing code, in private."""

from __future__ import annotations

import logging
from collections import OrderedDict

from tailrace.config.sections import PlatformSettings
from tailrace.delivery.planning.presenter import code_span
from tailrace.delivery.port import MessageReceived, Platform, Sender, Update
from tailrace.gateway.chat_settings import Pairing, is_allowed
from tailrace.gateway.deliveries import Deliveries

log = logging.getLogger("tailrace.gateway")
MAX_TOLD_CODES = 1024


class Newcomers:
    """The people of one platform who are not served yet, and those who were let in."""

    def __init__(
        self, platform: Platform, settings: PlatformSettings, deliveries: Deliveries, pairing: Pairing
    ) -> None:
        self._platform = platform
        self._settings = settings
        self._deliveries = deliveries
        self._pairing = pairing
        self._told_codes: OrderedDict[str, str] = OrderedDict()  # users who are not served, and the code each was told

    async def serves(self, sender: Sender) -> bool:
        """Whether the config or a pairing code lets this person in."""
        return is_allowed(self._settings.allow, sender.id) or await self._pairing.is_paired(self._user(sender))

    def _user(self, sender: Sender) -> str:
        return f"{self._platform.name}:{sender.id}"

    async def offer_pairing(self, update: Update) -> None:
        """A new user gets a pairing code in private, and another once that has expired. In a group their messages are
        ignored; the log names each person who addresses the bot there, once."""
        user = self._user(update.sender)
        if not isinstance(update, MessageReceived):
            return
        if update.place.kind != "private":
            if update.addressed and user not in self._told_codes:
                self._remember_told(user, "")
                log.warning("%s is not served: not in platforms.%s.allow", user, self._platform.name)
            return
        name = update.sender.name or await self._platform.display_name(update.sender)
        code = await self._pairing.code_for(user, name)
        if code is not None and code != self._told_codes.get(user):
            self._remember_told(user, code)
            command = code_span(f"tailrace gateway --pair {code}")
            text = f"I do not know you yet. The person who runs me can let you in: {command}"
            self._deliveries.say(update.place, text, update.update_id, "pairing")
        log.warning("%s is not served: not in platforms.%s.allow", user, self._platform.name)

    def _remember_told(self, user: str, code: str) -> None:
        self._told_codes[user] = code
        if len(self._told_codes) > MAX_TOLD_CODES:
            self._told_codes.popitem(last=False)

"""Which conversation a place has now, and what was chosen for it: the model, approvals.

Knows no platform by name, starts nothing and says nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from tailrace.agent.session import TURN_KIND
from tailrace.app import App
from tailrace.delivery.planning.state import Showing
from tailrace.delivery.port import Place, Platform
from tailrace.gateway.chat_settings import ChatSettings, ChatSettingsStore
from tailrace.ports import SessionRuns


class PlaceSessions:
    """The sessions of the places of one platform."""

    def __init__(self, app: App, platform: Platform, chats: ChatSettingsStore) -> None:
        self._app = app
        self._platform = platform
        self._chats = chats
        self._yolo: set[str] = set()  # sessions; for as long as the process lives

    # ── conversations ────────────────────────────────────────────────────────────────────────────────────────

    async def session_of(self, place: Place) -> str:
        return session_name(place, (await self._chats.of(place.key)).generation)

    async def has_begun(self, place: Place) -> bool:
        """Whether we have answered in the place before, or were told to begin anew there."""
        chosen = await self._chats.of(place.key)
        return chosen.generation > 0 or await self._turns(place, chosen.generation) is not None

    async def begin(self, place: Place, update_id: str) -> None:
        """A new conversation begins in the place."""
        self._yolo.discard(await self.session_of(place))
        await self._chats.update(place.key, lambda known: known.begun_anew(update_id))

    async def was_moved_by(self, place: Place, update_id: str) -> bool:
        """Whether this update has begun the conversation: it comes again."""
        return (await self._chats.of(place.key)).moved_by == update_id

    async def _turns(self, place: Place, generation: int) -> SessionRuns | None:
        return await self._app.journal.session(session_name(place, generation), TURN_KIND)

    # ── what was chosen ──────────────────────────────────────────────────────────────────────────────────────

    async def chosen(self, place: Place) -> ChatSettings:
        """What was chosen in the conversation, else for the whole chat."""
        chosen = await self._chats.of(place.key)
        if not self.is_thread_of_chat(place):
            return chosen
        chat = await self._chats.of(replace(place, thread="").key)
        verbose = chat.verbose if chosen.verbose is None else chosen.verbose
        return replace(chosen, model=chosen.model or chat.model, verbose=verbose)

    async def choose_model(self, place: Place, model: str) -> None:
        """Empty: that of the whole chat, or of the config."""
        await self._chats.update(place.key, lambda known: replace(known, model=model))

    async def choose_verbose(self, place: Place, *, on: bool) -> None:
        await self._chats.update(place.key, lambda known: replace(known, verbose=on))

    async def is_yolo(self, place: Place) -> bool:
        return not self._yolo.isdisjoint(await self._sessions_for(place))

    async def choose_yolo(self, place: Place, *, on: bool) -> None:
        if on:
            self._yolo.add(await self.session_of(place))
        else:
            self._yolo.difference_update(await self._sessions_for(place))

    async def switches(self, place: Place) -> tuple[ChatSettings, bool]:
        """What commands choose for everybody there."""
        return await self._chats.of(place.key), await self.session_of(place) in self._yolo

    async def _sessions_for(self, place: Place) -> list[str]:
        """The sessions whose switches hold here: that of the conversation, and of the whole chat."""
        places = [place, replace(place, thread="")] if self.is_thread_of_chat(place) else [place]
        return [await self.session_of(one) for one in places]

    def showing(self, place: Place) -> Showing:
        streaming = self._app.config.streaming
        can_stream = self._platform.capabilities(place).mode != "whole"
        on = can_stream and self._app.config.streams(self._platform.name)
        return Showing(streaming=on, edit_interval_s=streaming.edit_interval, min_tokens=streaming.min_tokens)

    # ── threads ──────────────────────────────────────────────────────────────────────────────────────────────

    def is_thread_of_chat(self, place: Place) -> bool:
        """Whether the thread is one of many conversations in its chat, with no conversation beside them."""
        return bool(place.thread) and self._platform.capabilities(place).threaded

    async def goes_on_in(self, place: Place) -> bool:
        """Whether the place is a thread that is a conversation of the bot: every message there is for the bot, unless
        it is addressed to others."""
        capabilities = self._platform.capabilities(place)
        is_ours = bool(place.thread) and (capabilities.threaded or capabilities.joins_threads)
        return is_ours and await self.has_begun(place)

    def is_whole_chat(self, place: Place) -> bool:
        """Whether the place is outside of such threads: a command there is about all of them."""
        return not place.thread and self._platform.capabilities(place).threaded


def session_name(place: Place, generation: int) -> str:
    return f"{place.key}#{generation}" if generation else place.key

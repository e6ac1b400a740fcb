"""What all streams of a workspace share. Slack counts each method once for the whole workspace, while the pace of a
delivery is its chat's alone: three answers at a time would use up the minute's pieces, and stand still for the rest.

Pure: every method takes the time as a parameter.
"""

from __future__ import annotations

from collections import deque

# chat.appendStream: a hundred a minute. In any minute it is at most the burst and what comes back in that minute.
PIECES_PER_S = 1.4
BURST = 10
ACTIVE_S = 20.0  # a chat whose last piece is older than this takes no share
LONGEST_PAUSE_S = 5.0  # the end of an answer waits no longer than this for its turn
# chat.startStream and chat.stopStream: twenty a minute each.
MAX_STREAMS, STREAMS_S = 18, 60.0


class WorkspaceLimits:
    """Shares the workspace's pieces among the chats that stream at a time."""

    def __init__(self) -> None:
        self._pieces, self._counted_at = float(BURST), 0.0
        self._last_piece_at: dict[str, float] = {}  # by chat
        self._turns: dict[str, float] = {}  # when each chat that waits may add its piece
        self._opened_at: deque[float] = deque(maxlen=MAX_STREAMS)

    def may_open(self, now: float) -> bool:
        """Whether another stream may begin, which is then counted."""
        if len(self._opened_at) == MAX_STREAMS and now - self._opened_at[0] < STREAMS_S:
            return False
        self._opened_at.append(now)
        return True

    def wait_s(self, chat: str, now: float) -> float:
        """0 where this chat may add a piece, which is then counted; else how long to wait. A chat that waits has a turn
        of its own, so that none is passed over for ever; it may be told to ask again before that."""
        self._last_piece_at[chat] = now
        turn_at = self._turns.pop(chat, None)
        if turn_at is None:
            turn_at = self._next_turn(now)
        if turn_at <= now:
            return 0.0
        self._turns[chat] = turn_at
        return min(LONGEST_PAUSE_S, turn_at - now)

    def _next_turn(self, now: float) -> float:
        """When there is a piece, which is taken: at once, or behind all who wait."""
        passed_s, self._counted_at = max(0.0, now - self._counted_at), now
        self._pieces = min(BURST, self._pieces + passed_s * PIECES_PER_S) - 1
        return now if self._pieces >= 0 else now - self._pieces / PIECES_PER_S

    def pause_s(self, now: float) -> float:
        """How long a chat that has added a piece leaves the next ones to the others; none where it streams alone."""
        recent = {chat: at for chat, at in self._last_piece_at.items() if now - at < ACTIVE_S}
        self._last_piece_at = recent
        self._turns = {chat: at for chat, at in self._turns.items() if now - at < ACTIVE_S}  # the others have ended
        return min(LONGEST_PAUSE_S, len(recent) / PIECES_PER_S) if len(recent) > 1 else 0.0

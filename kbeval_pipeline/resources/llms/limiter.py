"""The number of calls in flight to one model: halved when it throttles, raised again step by step."""

import asyncio
import logging
from collections import deque

_LOG = logging.getLogger(__name__)
_LONG_PAUSE_SECONDS = 60.0


class AdaptiveLimiter:
    """Additive increase, multiplicative decrease, and pauses the provider asks for.

    It starts at the maximum. A throttled call halves the limit, unless it began before the last cut: the
    calls of one round trip are one sign. After as many successes as the limit allows at once, it rises by
    one. Belongs to one event loop.

    Args:
        max_concurrency: the limit is never above this.
    """

    def __init__(self, max_concurrency: int) -> None:
        self._max = max_concurrency
        self._limit = max_concurrency
        self._in_flight = 0
        self._generation = 0
        self._successes = 0
        self._paused_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[asyncio.Future[int]] = deque()

    @property
    def limit(self) -> int:
        """Calls allowed at once, now."""
        return self._limit

    @property
    def in_flight(self) -> int:
        """Calls in flight, now."""
        return self._in_flight

    async def acquire(self) -> int:
        """Wait for leave to call.

        Returns:
            A permit, to be handed to `release`.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting and self._in_flight < self._limit and loop.time() >= self._paused_until:
            self._in_flight += 1
            return self._generation
        turn: asyncio.Future[int] = loop.create_future()
        self._waiting.append(turn)
        self._admit()  # in a pause with no call in flight, nothing else would start the timer
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._in_flight -= 1
            self._admit()
            raise

    def release(
        self, permit: int, *, success: bool = False, overload: bool = False, retry_after: float | None = None
    ) -> None:
        """End a call.

        Args:
            permit: what `acquire` returned.
            success: whether it was answered.
            overload: whether the provider throttled it or did not answer at all.
            retry_after: seconds in which no call may begin.
        """
        self._in_flight -= 1
        if overload and permit == self._generation:
            self._generation += 1
            self._successes = 0
            self._limit = max(1, self._limit // 2)
        elif success and permit == self._generation and self._limit < self._max:
            self._successes += 1
            if self._successes >= self._limit:
                self._successes = 0
                self._limit += 1
        if retry_after:
            self._pause(retry_after)
        self._admit()

    def _pause(self, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        if until > self._paused_until:
            if seconds > _LONG_PAUSE_SECONDS:
                _LOG.warning("the LLM provider asks to wait %.0f seconds before the next call", seconds)
            self._paused_until = until

    def _admit(self) -> None:
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until:
            if self._timer is None or self._timer.when() < self._paused_until:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = loop.call_at(self._paused_until, self._end_pause)
            return
        while self._waiting and self._in_flight < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._in_flight += 1
                turn.set_result(self._generation)

    def _end_pause(self) -> None:
        # Timers may fire a clock tick early; the pause is over when the timer says so.
        self._timer = None
        self._paused_until = min(self._paused_until, asyncio.get_running_loop().time())
        self._admit()

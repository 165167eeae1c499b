"""The adaptive limit, by itself."""

import asyncio

import pytest

from kbeval_pipeline.resources.llms import AdaptiveLimiter


def test_it_starts_at_the_maximum_and_never_passes_it() -> None:
    async def scenario() -> None:
        limiter = AdaptiveLimiter(3)
        permits = [await limiter.acquire() for _ in range(3)]
        waiting = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        assert not waiting.done()
        for permit in permits:
            limiter.release(permit, success=True)
        await waiting
        assert (limiter.limit, limiter.in_flight) == (3, 1)

    asyncio.run(scenario())


def test_the_calls_of_one_round_trip_cut_once() -> None:
    async def scenario() -> None:
        limiter = AdaptiveLimiter(16)
        for permit in [await limiter.acquire() for _ in range(16)]:
            limiter.release(permit, overload=True)
        assert limiter.limit == 8
        limiter.release(await limiter.acquire(), overload=True)
        assert limiter.limit == 4
        for _ in range(9):
            limiter.release(await limiter.acquire(), overload=True)
        assert limiter.limit == 1

    asyncio.run(scenario())


def test_it_rises_by_one_after_a_window_of_successes() -> None:
    async def scenario() -> None:
        limiter = AdaptiveLimiter(8)
        limiter.release(await limiter.acquire(), overload=True)
        limits = []
        for _ in range(4 + 5 + 6 + 7 + 20):
            limiter.release(await limiter.acquire(), success=True)
            limits.append(limiter.limit)
        assert limits[:9] == [4, 4, 4, 5, 5, 5, 5, 5, 6]
        assert limits[21:] == [8] * 21

    asyncio.run(scenario())


def test_a_pause_holds_all_new_calls_and_only_grows() -> None:
    async def scenario() -> None:
        limiter = AdaptiveLimiter(4)
        loop = asyncio.get_running_loop()
        first, second = await limiter.acquire(), await limiter.acquire()
        began = loop.time()
        limiter.release(first, overload=True, retry_after=0.1)
        limiter.release(second, overload=True, retry_after=0.05)
        await asyncio.gather(limiter.acquire(), limiter.acquire())
        assert loop.time() - began >= 0.09

    asyncio.run(scenario())


def test_cancelled_waiters_lose_no_place() -> None:
    async def scenario() -> None:
        limiter = AdaptiveLimiter(1)
        permit = await limiter.acquire()
        waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        limiter.release(permit, success=True)
        waiting[1].cancel()  # it has its turn already, but not yet run
        await asyncio.wait_for(waiting[2], 1)
        assert limiter.in_flight == 1
        with pytest.raises(asyncio.CancelledError):
            await waiting[1]

    asyncio.run(scenario())

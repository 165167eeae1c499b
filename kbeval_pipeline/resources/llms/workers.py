"""Many items, few workers: concurrency without a task for each item."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from kbeval_pipeline.resources.llms.errors import BudgetExceeded

T = TypeVar("T")


async def for_each(
    items: Iterable[T] | AsyncIterable[T], work: Callable[[int, T], Awaitable[None]], *, workers: int
) -> None:
    """Do a piece of work for each item, several at once.

    Args:
        items: read one by one, as workers become free.
        work: gets the item's number, from 0, and the item.
        workers: how many run at once.

    Raises:
        BudgetExceeded: after the work that has begun has ended.
        Exception: whatever `work` raises, at once; the other work is cancelled.
    """
    queue = _numbered(items)
    # One reader at a time: an async generator cannot be advanced twice at once.
    reading = asyncio.Lock()
    stopped: list[BudgetExceeded] = []

    async def worker() -> None:
        while not stopped:
            async with reading:
                found = await anext(queue, None)
            if found is None:
                return
            try:
                await work(*found)
            except BudgetExceeded as error:
                stopped.append(error)

    tasks = [asyncio.create_task(worker()) for _ in range(workers)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if stopped:
        raise stopped[0]


async def _numbered(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[tuple[int, T]]:
    number = 0
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield number, item
            number += 1
        return
    for item in items:
        yield number, item
        number += 1
        if number % 64 == 0:
            await asyncio.sleep(0)  # stored replies need no wait, and other tasks need a turn

"""One event loop in a thread of its own, for synchronous code and notebooks."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
# Chat models without an async client (Bedrock's) run in the loop's threads; the default is six on two cores.
_THREADS = 128
_CANCEL_WAIT_SECONDS = 10.0


class _Loop:
    """A running loop, of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="kbeval-llm-call"))
        self.thread = threading.Thread(target=self.loop.run_forever, name="kbeval-llm", daemon=True)
        self.thread.start()


_lock = threading.Lock()
_current: list[_Loop] = []


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code, also where a loop is already running.

    All coroutines of a process share one loop, since connections that a chat model keeps open belong to the
    loop in which they were made. An interrupt cancels the coroutine, waits for it to end, and is raised.

    Args:
        coroutine: what to run.

    Returns:
        Its result.
    """
    with _lock:
        if not _current or _current[0].process != os.getpid():  # a forked process has no threads
            _current[:] = [_Loop()]
        running = _current[0]
    if threading.current_thread() is running.thread:
        coroutine.close()
        raise RuntimeError("run() was called from within its own event loop; use await there")
    outcome: Future[T] = Future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        tasks.append(running.loop.create_task(coroutine))
        tasks[0].add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            outcome.set_result(task.result())
        else:
            outcome.set_exception(error)

    running.loop.call_soon_threadsafe(start)
    try:
        return outcome.result()
    except BaseException:
        if not outcome.done():
            # `tasks` is empty until `start` has run, hence looked at in the loop.
            running.loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # noqa: PLW0108
            with contextlib.suppress(BaseException):
                outcome.exception(_CANCEL_WAIT_SECONDS)
        raise

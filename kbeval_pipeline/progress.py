"""Progress of long steps: bars on a terminal, otherwise a line for every tenth."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_bars: ContextVar[Progress | None] = ContextVar("progress_bars", default=None)
_lines: ContextVar[Console | None] = ContextVar("progress_lines", default=None)


class Log(Protocol):
    """Where progress lines go: Dagster's log manager or a standard logger."""

    def info(self, message: str) -> None:
        """Write one line."""


@contextmanager
def show_progress(console: Console) -> Iterator[None]:
    """Show the progress of what runs inside the block: bars on a terminal, plain lines elsewhere.

    Args:
        console: where it is shown.
    """
    if not console.is_terminal:
        token = _lines.set(console)
        try:
            yield
        finally:
            _lines.reset(token)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bars_token = _bars.set(bars)
        try:
            yield
        finally:
            _bars.reset(bars_token)


@contextmanager
def track(label: str, total: int, log: Log) -> Iterator[Callable[[], None]]:
    """Report the progress of a step, to the log and to whoever watches.

    Args:
        label: what is being done.
        total: number of units.
        log: receives about ten lines.

    Yields:
        A function to call after each unit.
    """
    bars, lines = _bars.get(), _lines.get()
    done = 0
    task = bars.add_task(label, total=total) if bars is not None else None
    step = max(1, total // 10)

    def advance() -> None:
        nonlocal done
        done += 1
        if bars is not None and task is not None:
            bars.advance(task)
        if done % step == 0 or done == total:
            log.info(f"{label}: {done} of {total}")
            if lines is not None:
                lines.print(f"{label}: {done} of {total}", highlight=False)

    yield advance

"""What all assets share: a user's mistake ends a step with its message alone."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from dagster import Failure

from kbeval_pipeline.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")

USER_ERROR = "user_error"


def readable_failures(function: Callable[P, R]) -> Callable[P, R]:
    """Turn a `UserError` into Dagster's `Failure`, which the UI shows by its message, without retries."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            raise Failure(str(error), metadata={USER_ERROR: True}, allow_retries=False) from None

    return wrapped

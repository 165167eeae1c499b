"""Exceptions of every provider, told apart by shape; keys out of every text."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from kbeval_pipeline.resources.llms.errors import (
    ErrorKind,
    HTTPStatusError,
    classify,
    parse_retry_after,
    redact,
)


def fault(
    name: str, message: str = "", bases: tuple[type, ...] = (Exception,), **attributes: Any
) -> BaseException:
    error = type(name, bases, {})(message)
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error


def botocore(code: str, status: int, message: str = "") -> BaseException:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return fault("ClientError", f"An error occurred ({code}): {message}", response=response)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (fault("AuthenticationError", status_code=401), ErrorKind.AUTHENTICATION),
        (fault("PermissionDeniedError", status_code=403), ErrorKind.AUTHENTICATION),
        (fault("NotFoundError", status_code=404), ErrorKind.UNKNOWN_MODEL),
        (fault("BadRequestError", status_code=400), ErrorKind.BAD_REQUEST),
        (fault("UnprocessableEntityError", status_code=422), ErrorKind.BAD_REQUEST),
        (fault("RateLimitError", status_code=429), ErrorKind.THROTTLED),
        (fault("RateLimitError", status_code=429, code="insufficient_quota"), ErrorKind.QUOTA),
        (fault("BadRequestError", "Your credit balance is too low", status_code=400), ErrorKind.QUOTA),
        (fault("APIStatusError", status_code=402), ErrorKind.QUOTA),
        (fault("InternalServerError", status_code=500), ErrorKind.TRANSIENT),
        (fault("BadGateway", response=SimpleNamespace(status_code=502)), ErrorKind.TRANSIENT),
        (fault("ServiceUnavailable", status_code=503), ErrorKind.THROTTLED),
        (fault("OverloadedError", status_code=529), ErrorKind.THROTTLED),
        (fault("ClientError", "API key not valid. API_KEY_INVALID", code=400), ErrorKind.AUTHENTICATION),
        (fault("ClientError", "quota", code=429), ErrorKind.THROTTLED),
        (botocore("ThrottlingException", 429), ErrorKind.THROTTLED),
        (botocore("ThrottlingException", 400), ErrorKind.THROTTLED),
        (botocore("AccessDeniedException", 403), ErrorKind.AUTHENTICATION),
        (botocore("UnrecognizedClientException", 400), ErrorKind.AUTHENTICATION),
        (
            botocore("ValidationException", 400, "The provided model identifier is invalid."),
            ErrorKind.UNKNOWN_MODEL,
        ),
        (botocore("ValidationException", 400, "too long"), ErrorKind.BAD_REQUEST),
        (fault("NoCredentialsError", "Unable to locate credentials"), ErrorKind.AUTHENTICATION),
        (fault("EndpointConnectionError"), ErrorKind.UNREACHABLE),
        (fault("APIConnectionError", "Connection error."), ErrorKind.UNREACHABLE),
        (fault("APITimeoutError"), ErrorKind.TRANSIENT),
        (fault("ReadTimeout"), ErrorKind.TRANSIENT),
        (TimeoutError(), ErrorKind.TRANSIENT),
        (ConnectionRefusedError(), ErrorKind.UNREACHABLE),
        (ConnectionResetError(), ErrorKind.UNREACHABLE),
        (TypeError("Received response with null value for 'choices'."), ErrorKind.MALFORMED),
        (fault("JSONDecodeError", bases=(ValueError,)), ErrorKind.MALFORMED),
        (ValueError("something else"), ErrorKind.UNKNOWN),
    ],
)
def test_kinds(error: BaseException, kind: ErrorKind) -> None:
    assert classify(error).kind is kind


def test_the_cause_of_a_wrapped_error_counts() -> None:
    wrapper = RuntimeError("Error calling model")
    wrapper.__cause__ = fault("ClientError", status_code=429, headers={"Retry-After": "7"})
    found = classify(wrapper)
    assert (found.kind, found.status, found.retry_after) == (ErrorKind.THROTTLED, 429, 7.0)


def test_the_providers_own_words_are_taken() -> None:
    error = fault(
        "BadRequestError", "Error code: 400 - {...}", status_code=400, body={"message": "Too long."}
    )
    assert classify(error).message == "Too long."
    nested = fault("BadRequestError", "Error code: 400", status_code=400, body={"error": {"message": "Bad."}})
    assert classify(nested).message == "Bad."
    assert classify(ValueError()).message == "ValueError"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3.0), ("0.5", 0.5), ("-2", 0.0), ("soon", None), ("nan", None), ("inf", None)],
)
def test_retry_after_seconds(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value) == seconds


def test_retry_after_dates_and_milliseconds() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert parse_retry_after("Thu, 01 Jan 2026 12:00:30 GMT", now) == 30.0
    assert parse_retry_after("Thu, 01 Jan 2026 11:00:00 GMT", now + timedelta(hours=1)) == 0.0
    assert classify(HTTPStatusError(429, "slow", {"retry-after-ms": "250"})).retry_after == 0.25


SECRET = "my+secret/key=with&signs"


@pytest.mark.parametrize(
    "text",
    [
        f"key {SECRET} refused",
        f"https://host/v1?key={quote(SECRET, safe='')}",
        f"Authorization: Bearer {SECRET}",
        f'{{"api_key": "{SECRET}"}}',
    ],
)
def test_the_key_is_replaced(text: str) -> None:
    assert SECRET not in redact(text, [SECRET])
    assert quote(SECRET, safe="") not in redact(text, [SECRET])
    assert "***" in redact(text, [SECRET])


def test_what_looks_like_a_key_is_replaced() -> None:
    assert redact("Bearer abc.def") == "Bearer ***"
    assert (
        redact("Incorrect API key provided: sk-abcde****wxyz. See") == "Incorrect API key provided: *** See"
    )
    assert redact("key sk-proj-0123456789abcdef") == "key ***"
    assert redact("http://user:password@host/v1") == "http://***@host/v1"
    assert redact("a plain sentence about bearers of tokens") == "a plain sentence about bearers of tokens"
    assert redact("text", [""]) == "text"

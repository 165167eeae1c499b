"""What went wrong at a provider, told apart without importing any provider, and never with a key in it."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.llms.redaction import redact


class ErrorKind(StrEnum):
    """Why a call failed, as far as it matters for what to do next."""

    AUTHENTICATION = "authentication"
    UNKNOWN_MODEL = "unknown model"
    QUOTA = "quota"
    BAD_REQUEST = "bad request"
    THROTTLED = "throttled"
    TRANSIENT = "transient"
    UNREACHABLE = "unreachable"
    MALFORMED = "malformed reply"
    UNKNOWN = "unknown"


FATAL = frozenset({ErrorKind.AUTHENTICATION, ErrorKind.UNKNOWN_MODEL, ErrorKind.QUOTA})
OVERLOAD = frozenset({ErrorKind.THROTTLED, ErrorKind.UNREACHABLE})
RETRIED = frozenset(ErrorKind) - FATAL - {ErrorKind.BAD_REQUEST}


class ProviderError(UserError):
    """A fault that every further call would meet too: it ends the run at once."""

    def __init__(self, message: str, kind: ErrorKind) -> None:
        super().__init__(message)
        self.kind = kind


class BudgetExceeded(UserError):  # noqa: N818 - a planned end, no fault
    """The budget is spent; what was asked so far is stored."""


class CallError(Exception):
    """One call that failed for good; other calls may succeed. The message holds no secret."""

    def __init__(self, message: str, kind: ErrorKind) -> None:
        super().__init__(message)
        self.kind = kind


class LogprobsRefusedError(CallError):
    """The provider does not give log-probabilities: ask in another way."""


class MalformedReplyError(Exception):
    """The server's reply is not what its protocol says."""


class HTTPStatusError(Exception):
    """An HTTP error status, with what the server said."""

    def __init__(self, status_code: int, message: str, headers: Mapping[str, str], code: str = "") -> None:
        super().__init__(message)
        self.status_code = status_code
        self.headers = headers
        self.code = code


@dataclass(frozen=True)
class Fault:
    """A provider's exception, classified.

    Attributes:
        kind: what it is.
        message: the provider's own words, scrubbed.
        status: HTTP status, where there was one.
        retry_after: seconds the provider asks to wait.
    """

    kind: ErrorKind
    message: str
    status: int | None = None
    retry_after: float | None = None


_KINDS = {401: ErrorKind.AUTHENTICATION, 402: ErrorKind.QUOTA, 403: ErrorKind.AUTHENTICATION}
_KINDS |= {404: ErrorKind.UNKNOWN_MODEL, 408: ErrorKind.TRANSIENT, 409: ErrorKind.TRANSIENT}
_KINDS |= dict.fromkeys((429, 503, 529), ErrorKind.THROTTLED)
_CODES = {
    ErrorKind.AUTHENTICATION: "AccessDenied|UnrecognizedClient|InvalidSignature|ExpiredToken|NoCredentials"
    "|PartialCredentials|InvalidClientToken|API_KEY_INVALID|API key not valid|DefaultCredentialsError"
    "|authentication method|api_key client option",
    ErrorKind.UNKNOWN_MODEL: "ResourceNotFoundException|model identifier is invalid|model_not_found",
    ErrorKind.QUOTA: "insufficient_quota|credit balance is too low|ServiceQuotaExceeded",
    ErrorKind.THROTTLED: "Throttling|TooManyRequests|ServiceUnavailable|ModelNotReady|RateLimitError"
    "|OverloadedError|ResourceExhausted",
    ErrorKind.TRANSIENT: "Timeout|InternalServer|ModelStreamError|ModelErrorException",
}
_MATCHES = {kind: re.compile(words) for kind, words in _CODES.items()}
_UNREACHABLE = re.compile(
    "Connection|ConnectError|ServerDisconnected|RemoteProtocol|ReadError|WriteError|ClientOSError|gaierror"
)
_MALFORMED = re.compile("JSONDecode|ResponseValidation|MalformedReply")
_LONGEST_MESSAGE = 600


def classify(error: BaseException, secrets: Iterable[str] = ()) -> Fault:
    """Tell what an exception of any provider's package means.

    Args:
        error: the exception; its causes are looked at too.
        secrets: what must not be in the message.

    Returns:
        Kind, scrubbed message, and how long to wait if the provider says so.
    """
    chain = list(_chain(error))
    status = next((s for e in chain if (s := _status(e)) is not None), None)
    message = redact(next((m for e in chain if (m := _message(e))), type(error).__name__), secrets)
    retry_after = next((wait for e in chain if (wait := _retry_after(e)) is not None), None)
    kind = _kind(chain, status)
    return Fault(kind, message[:_LONGEST_MESSAGE], status, retry_after)


def _kind(chain: list[BaseException], status: int | None) -> ErrorKind:
    names = " ".join(base.__name__ for e in chain for base in type(e).__mro__[:-3])
    words = f"{' '.join(_code(e) for e in chain)} {' '.join(str(e) for e in chain)}"
    for kind in (ErrorKind.QUOTA, ErrorKind.AUTHENTICATION, ErrorKind.UNKNOWN_MODEL):
        # Google answers 400 to a bad key, Bedrock to an unknown model, OpenAI 429 to an empty account.
        if (status is None or status in (400, 402, 429)) and _MATCHES[kind].search(f"{names} {words}"):
            return kind
    if status is not None:
        fallback = ErrorKind.TRANSIENT if status >= 500 else ErrorKind.BAD_REQUEST
        if status in _KINDS or status >= 400:
            codes = " ".join(_code(e) for e in chain)
            throttled = status not in _KINDS and _MATCHES[ErrorKind.THROTTLED].search(codes)
            return ErrorKind.THROTTLED if throttled else _KINDS.get(status, fallback)
    if any(isinstance(e, TimeoutError) for e in chain) or _MATCHES[ErrorKind.TRANSIENT].search(names):
        return ErrorKind.TRANSIENT
    if _MATCHES[ErrorKind.THROTTLED].search(names):
        return ErrorKind.THROTTLED
    if any(isinstance(e, ConnectionError) for e in chain) or _UNREACHABLE.search(names):
        return ErrorKind.UNREACHABLE
    # Servers that are only nearly compatible make the provider's package stumble over the reply.
    odd_reply = any(isinstance(e, TypeError | KeyError) and "choices" in str(e) for e in chain)
    return ErrorKind.MALFORMED if odd_reply or _MALFORMED.search(names) else ErrorKind.UNKNOWN


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    found = [getattr(error, name, None) for name in ("status_code", "status", "code", "http_status")]
    found += [getattr(response, "status_code", None), getattr(response, "status", None)]
    if isinstance(response, dict):
        found.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    return next((s for s in found if isinstance(s, int) and 400 <= s < 600), None)


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    return str(getattr(error, "code", None) or "")


def _message(error: BaseException) -> str:
    body: Any = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            body = None
    if isinstance(body, dict):
        inner = body.get("error", body)
        text = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(text, str) and text.strip():
            return text.strip()
    return str(error).strip()


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        response = getattr(error, "response", None)
        headers = (
            response.get("ResponseMetadata", {}).get("HTTPHeaders") if isinstance(response, dict) else None
        )
    if not isinstance(headers, Mapping):
        return None
    lowered = {str(name).lower(): str(value) for name, value in headers.items()}
    if "retry-after-ms" in lowered:
        milliseconds = parse_retry_after(lowered["retry-after-ms"])
        return None if milliseconds is None else milliseconds / 1000
    return parse_retry_after(lowered["retry-after"]) if "retry-after" in lowered else None


def parse_retry_after(value: str, now: datetime | None = None) -> float | None:
    """Read a Retry-After header.

    Args:
        value: seconds or an HTTP date.
        now: the present time, for a date.

    Returns:
        Seconds to wait, at least 0; None when it is neither.
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        seconds = (when - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None

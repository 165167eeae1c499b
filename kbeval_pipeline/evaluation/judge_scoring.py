"""From one reply of a judge to a score from 0 to 1, for every method, and JSON out of a reply.

A reply that cannot be used raises ValueError with the reason, in words that the model can be asked again
with. It is never scored 0 and never guessed.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

MULTI_CLASS = "multi-class"
BINARY = "binary"
NO_LOGPROBS = "no-logprobs"
GRADED = "graded"
# The reference's listwise method is not offered: a reply it cannot read looks like a perfect ranking.
SCORING_METHODS = (MULTI_CLASS, BINARY, NO_LOGPROBS, GRADED)

# The reference's weights, so that scores compare with its reranker.
CLASS_WEIGHTS: Mapping[str, float] = {"1": 0.25, "2": 0.5, "3": 0.75, "4": 1.0}
GRADES = ("0", "1", "2", "3")

_YES, _NO = "yes", "no"
_HIGHEST_PERCENT = 100
_HIGHEST_GRADE = 3
# A server that computes in half precision may put a certain token slightly above probability 1.
_LOGPROB_SLACK = 1e-3
_SHOWN = 60
# A brace that begins an object; a brace before anything else is prose.
_OBJECT_START = re.compile(r'\{(?=\s*["}])')


class TokenLogprobs(Protocol):
    """One token of a reply, as a provider reports it with log-probabilities."""

    @property
    def token(self) -> str:
        """Text of the token."""

    @property
    def logprob(self) -> float:
        """Its natural log-probability."""

    @property
    def top(self) -> Sequence[tuple[str, float]]:
        """Text and log-probability of the likeliest tokens at its place."""


def label_probabilities(
    tokens: Sequence[TokenLogprobs], labels: Collection[str], *, fold: bool = False
) -> dict[str, float]:
    """Probabilities of labels at the place where a reply states its label, renormalised to sum to 1.

    The place is the last token that is a label. Over its top log-probabilities p(label) = exp(logprob),
    summed where a label is there twice; what is no label does not count.

    Args:
        tokens: the reply's tokens in order.
        labels: texts of the labels.
        fold: whether case and surrounding white space of a token are ignored; otherwise a token is a label
            only if its text is exactly the same.

    Returns:
        Each label's probability, in the order of `labels`; 0 for one that is not among the top.

    Raises:
        ValueError: no token is a label, or no label has a probability there.
    """

    def label_of(text: str) -> str:
        return text.strip().casefold() if fold else text

    place = next((token for token in reversed(tokens) if label_of(token.token) in labels), None)
    expected = ", ".join(labels)
    if place is None:
        text = "".join(token.token for token in tokens)
        raise ValueError(f"no token of the reply {_shown(text)} is one of {expected}")
    masses = dict.fromkeys(labels, 0.0)
    for text, logprob in place.top:
        label = label_of(text)
        if label not in masses:
            continue
        if not logprob <= _LOGPROB_SLACK:
            raise ValueError(f"the log-probability of {_shown(text)} is {logprob}, not a number of at most 0")
        masses[label] += math.exp(logprob)
    total = sum(masses.values())
    if total == 0:
        raise ValueError(f"the reply came without a probability for any of {expected}")
    return {label: mass / total for label, mass in masses.items()}


def multi_class_score(tokens: Sequence[TokenLogprobs]) -> float:
    """Score of one label of four classes: .25 p1 + .5 p2 + .75 p3 + 1 p4.

    Source: the multi-class scoring of MindsDB's reranker, whose weights these are. Other than there, tokens
    that are no class do not dilute the score: see `label_probabilities`.

    Args:
        tokens: the reply's tokens in order.

    Returns:
        The expected weight, from 0.25 to 1.

    Raises:
        ValueError: no token is exactly 1, 2, 3 or 4, or it came without probabilities.
    """
    probabilities = label_probabilities(tokens, CLASS_WEIGHTS)
    score = sum(CLASS_WEIGHTS[label] * p for label, p in probabilities.items())
    return _clipped(score, min(CLASS_WEIGHTS.values()), max(CLASS_WEIGHTS.values()))


def binary_score(tokens: Sequence[TokenLogprobs]) -> float:
    """Score of a yes or no: p(yes)/(p(yes) + p(no)).

    Case and surrounding white space do not matter: the probabilities of "yes", "Yes" and " yes" add up.

    Args:
        tokens: the reply's tokens in order.

    Returns:
        The probability of yes, from 0 to 1.

    Raises:
        ValueError: no token is yes or no, or it came without probabilities.
    """
    return _clipped(label_probabilities(tokens, (_YES, _NO), fold=True)[_YES], 0.0, 1.0)


def no_logprobs_score(reply: object) -> float:
    """Score of an integer from 0 to 100, divided by 100.

    The integer may be a number of the structured output or text that holds nothing else but white space.
    Decimal digits of any script count, as full-width ones are what a model may well write in Chinese or
    Japanese and mean the same integer. Refused, not guessed: a sign, a percent sign, a leading zero, words,
    several numbers, and every number with a decimal point, as 1.0 may mean 1 or 100 %.

    Args:
        reply: value of the structured output's field, or the reply's text.

    Returns:
        The score, from 0 to 1.

    Raises:
        ValueError: the reply is no such integer; the message says what it is.
    """
    if isinstance(reply, int) and not isinstance(reply, bool):
        value = reply
    elif isinstance(reply, str):
        value = _integer(reply)
    else:
        raise ValueError(f"the score must be an integer from 0 to 100, not {_shown(reply)}")
    if not 0 <= value <= _HIGHEST_PERCENT:
        raise ValueError(f"the score must be from 0 to 100, not {_shown(reply)}")
    return value / _HIGHEST_PERCENT


def graded_score(grade: object) -> float:
    """Score of a relevance grade from 0 to 3: the expected grade, divided by 3.

    Source: the scale of UMBRELA (Upadhyay et al. 2024, after Thomas et al. 2024). The expected grade needs
    probabilities; of a label alone it is the label.

    Args:
        grade: label of a reply, 0 to 3 as a number or text; or the probability of every label that has
            one, as `label_probabilities(tokens, GRADES)` returns it, here renormalised.

    Returns:
        The score, from 0 to 1.

    Raises:
        ValueError: the label is none of the four, or the probabilities are none.
    """
    if isinstance(grade, Mapping):
        return _expected_grade(grade) / _HIGHEST_GRADE
    label = grade.strip() if isinstance(grade, str) else str(grade)
    if not isinstance(grade, int | str) or label not in GRADES:
        raise ValueError(f"the grade must be one of {', '.join(GRADES)}, not {_shown(grade)}")
    return int(label) / _HIGHEST_GRADE


def extract_json_object(text: str) -> dict[str, Any]:
    """The one JSON object in a reply; code fences and prose around it are tolerated.

    A brace begins an object if a double quote or a closing brace follows. Nothing is repaired: what begins
    like an object must be one, by the letter of RFC 8259, and have every name once. The same object twice is
    one object; two different ones are refused, as nobody knows which was meant.

    Args:
        text: a model's reply.

    Returns:
        The object. Whether it has the wanted fields is the caller's to check.

    Raises:
        ValueError: the reply is empty, holds no object, a broken one, or several.
    """
    if not text.strip():
        raise ValueError("the reply is empty")
    # By canonical text, as in Python true equals 1.
    found: dict[str, dict[str, Any]] = {}
    start = _OBJECT_START.search(text)
    while start is not None:
        try:
            value, end = _DECODER.raw_decode(text, start.start())
            found[json.dumps(value, sort_keys=True)] = value
        except RecursionError:
            raise ValueError("the reply holds a JSON object that is nested too deep") from None
        except json.JSONDecodeError as error:
            raise ValueError(
                f"the reply holds a broken JSON object: {error.msg} at character {error.pos}"
            ) from None
        start = _OBJECT_START.search(text, end)
    if not found:
        raise ValueError("the reply holds no JSON object")
    if len(found) > 1:
        raise ValueError(f"the reply holds {len(found)} different JSON objects, expected one")
    return next(iter(found.values()))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the reply holds a JSON object that has {_shown(repeated)} twice")
    return values


def _no_number(constant: str) -> float:
    raise ValueError(f"the reply holds a JSON object with {constant}, which is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_number)


def _integer(text: str) -> int:
    digits = text.strip()
    if not digits:
        raise ValueError("the score is missing: the reply is empty")
    # The length is limited before int(), which is slow for long texts.
    if not digits.isdecimal() or len(digits) > len(str(_HIGHEST_PERCENT)):
        raise ValueError(f"the score must be an integer from 0 to 100 and nothing else, not {_shown(text)}")
    value = int(digits)
    if len(str(value)) != len(digits):
        raise ValueError(f"the score must be an integer without leading zeros, not {_shown(text)}")
    return value


def _expected_grade(probabilities: Mapping[Any, Any]) -> float:
    masses: dict[int, float] = {}
    for label, probability in probabilities.items():
        if str(label) not in GRADES:
            raise ValueError(f"the grade must be one of {', '.join(GRADES)}, not {_shown(label)}")
        mass = float(probability)
        if not 0 <= mass < math.inf:
            raise ValueError(f"the probability of grade {label} is {probability}, not a number of at least 0")
        masses[int(label)] = masses.get(int(label), 0.0) + mass
    total = sum(masses.values())
    if total == 0:
        raise ValueError("no grade has a probability")
    expected = sum(label * (mass / total) for label, mass in masses.items())
    return _clipped(expected, 0.0, float(_HIGHEST_GRADE))


def _clipped(value: float, low: float, high: float) -> float:
    """Keep a sum of probabilities within its bounds, which rounding may put it beyond."""
    return min(max(value, low), high)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval_pipeline.evaluation.judge_scoring import (
    CLASS_WEIGHTS,
    GRADES,
    SCORING_METHODS,
    binary_score,
    extract_json_object,
    graded_score,
    label_probabilities,
    multi_class_score,
    no_logprobs_score,
)

ORACLE = json.loads(
    (Path(__file__).parents[1] / "oracles" / "mindsdb_metrics.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Token:
    token: str
    logprob: float
    top: list[tuple[str, float]]


def reply(*places: dict[str, float]) -> list[Token]:
    """Tokens from their probabilities, the first of each place being the one that was said."""
    tops = [[(text, math.log(p)) for text, p in place.items()] for place in places]
    return [Token(*top[0], top) for top in tops]


def tokens_of(case: dict[str, Any]) -> list[Token]:
    return [Token(t["token"], t["logprob"], [(a, b) for a, b in t["top"]]) for t in case["tokens"]]


# Where ours is not the reference's: a message, and why.
MULTI_CLASS_REFUSED = {
    # The reference scores another token's alternatives, diluted by junk: 0.1 and 0.2. No label was given.
    "space_prefixed_token_not_valid": "no token of the reply ' 4' is one of 1, 2, 3, 4",
    "no_class_token_fallback_last": "no token of the reply 'hello' is one of 1, 2, 3, 4",
    # The reference says 0, as if the chunk were judged irrelevant. Nothing was measured.
    "empty_top_logprobs": "without a probability for any of 1, 2, 3, 4",
    # The reference fails as well, with a ZeroDivisionError.
    "minus_inf": "without a probability for any of 1, 2, 3, 4",
}


@pytest.mark.parametrize("case", ORACLE["reranker_multi_class"], ids=lambda case: case["name"])
def test_multi_class_of_mindsdb(case: dict[str, Any]) -> None:
    message = MULTI_CLASS_REFUSED.get(case["name"])
    if message is None:
        assert multi_class_score(tokens_of(case)) == case["output"]
        return
    with pytest.raises(ValueError, match=message):
        multi_class_score(tokens_of(case))


NO_LOGPROBS_REFUSED = {
    # The reference takes the first digits it finds: .85, .0 (!), .05, .7, and 0 for nothing.
    "85%": "an integer from 0 to 100 and nothing else, not '85%'",
    "0.85": "an integer from 0 to 100 and nothing else, not '0.85'",
    "-5": "an integer from 0 to 100 and nothing else, not '-5'",
    "Score: 70 out of 100": "an integer from 0 to 100 and nothing else",
    "": "the score is missing",
}


@pytest.mark.parametrize("case", ORACLE["reranker_no_logprobs"], ids=lambda case: case["answer"])
def test_no_logprobs_of_mindsdb(case: dict[str, Any]) -> None:
    # Full-width digits give 0.75 there and here: they can be read in one way only.
    message = NO_LOGPROBS_REFUSED.get(case["answer"])
    if message is None:
        assert no_logprobs_score(case["answer"]) == case["output"]
        return
    with pytest.raises(ValueError, match=message):
        no_logprobs_score(case["answer"])


JSON_REFUSED = {
    # The reference takes the first object of the two.
    '[{"query":"a"},{"query":"b"}]': "2 different JSON objects",
    # Refused there, too.
    "": "the reply is empty",
    '{"query":"a"': "broken JSON object: .* at character 12",
    '"{"': "broken JSON object: Unterminated string",
    '{"query":"line1\nline2"}': "broken JSON object: Invalid control character",
}
# The reference gives up at the first brace that is prose.
JSON_FOUND = {'{x} {"query":"a","reference_answer":"b"}': {"query": "a", "reference_answer": "b"}}


@pytest.mark.parametrize("case", ORACLE["sanitize_json"], ids=lambda case: case["input"])
def test_json_of_mindsdb(case: dict[str, Any]) -> None:
    text = case["input"]
    if text in JSON_REFUSED:
        with pytest.raises(ValueError, match=JSON_REFUSED[text]):
            extract_json_object(text)
        return
    assert extract_json_object(text) == (JSON_FOUND.get(text) or json.loads(case["output"]))


def test_listwise_is_not_offered() -> None:
    assert SCORING_METHODS == ("multi-class", "binary", "no-logprobs", "graded")


@pytest.mark.parametrize("case", ORACLE["listwise_extract"], ids=lambda case: case["content"])
def test_no_score_is_made_of_a_listwise_reply(case: dict[str, Any]) -> None:
    # The reference makes a ranking out of any reply, "not json" included: 1, .75, .5, .25 look perfect.
    scorers: list[Callable[[object], float]] = [no_logprobs_score, graded_score]
    for scorer in scorers:
        with pytest.raises(ValueError, match="must be"):
            scorer(case["content"])


def test_the_last_label_counts() -> None:
    tokens = reply({"4": 1.0}, {" no": 1.0}, {"2": 0.5, "1": 0.5}, {"\n": 1.0})
    assert multi_class_score(tokens) == 0.375


def test_what_is_no_class_does_not_dilute() -> None:
    assert multi_class_score(reply({"4": 0.5, "four": 0.25, " 4": 0.125, "0": 0.125})) == 1.0


@pytest.mark.parametrize("text", ["12", "5", "0", "4.", "", "\uff14"])
def test_only_exact_classes_count(text: str) -> None:
    with pytest.raises(ValueError, match="no token"):
        multi_class_score(reply({text: 1.0}))


def test_an_empty_reply_has_no_label() -> None:
    with pytest.raises(ValueError, match="no token of the reply ''"):
        multi_class_score([])


@pytest.mark.parametrize("logprob", [math.nan, 0.5, math.inf])
@pytest.mark.parametrize("score", [multi_class_score, binary_score])
def test_impossible_log_probabilities_are_refused(
    logprob: float, score: Callable[[list[Token]], float]
) -> None:
    tokens = [Token("4", 0.0, [("4", logprob)]), Token("yes", 0.0, [("yes", logprob)])]
    with pytest.raises(ValueError, match="log-probability"):
        score(tokens)


def test_no_probability_at_all() -> None:
    assert multi_class_score([Token("4", 0.0, [("4", 0.0), ("1", -math.inf)])]) == 1.0
    with pytest.raises(ValueError, match="without a probability"):
        multi_class_score([Token("4", 0.0, [("4", -math.inf), ("x", 0.0)])])


MASSES = st.dictionaries(
    st.sampled_from(["1", "2", "3", "4", " 4", "x", "yes", "Yes", " NO", "no"]),
    st.floats(1e-9, 1),
    min_size=1,
)


@given(MASSES)
def test_multi_class_agrees_with_the_formula(masses: dict[str, float]) -> None:
    tokens = reply({"1": 1.0}, masses)
    classes = {text: p for text, p in masses.items() if text in CLASS_WEIGHTS}
    said = next(iter(masses))
    if said not in CLASS_WEIGHTS:
        assert multi_class_score(tokens) == 0.25
        return
    expected = sum(CLASS_WEIGHTS[text] * p for text, p in classes.items()) / sum(classes.values())
    score = multi_class_score(tokens)
    assert score == pytest.approx(expected, abs=1e-12)
    assert 0.25 <= score <= 1


@given(MASSES)
def test_binary_agrees_with_the_formula(masses: dict[str, float]) -> None:
    tokens = reply({"yes": 1.0, "no": 1.0}, masses)
    if next(iter(masses)).strip().lower() not in {"yes", "no"}:
        assert binary_score(tokens) == 0.5
        return
    yes = sum(p for text, p in masses.items() if text.strip().lower() == "yes")
    no = sum(p for text, p in masses.items() if text.strip().lower() == "no")
    assert binary_score(tokens) == pytest.approx(yes / (yes + no), abs=1e-12)


def test_binary_is_not_inverted() -> None:
    assert binary_score(reply({"yes": 0.9, "no": 0.1})) == pytest.approx(0.9)
    assert binary_score(reply({"No": 0.9, "Yes": 0.1})) == pytest.approx(0.1)
    assert binary_score(reply({" no": 1.0})) == 0.0


def test_binary_without_yes_or_no() -> None:
    with pytest.raises(ValueError, match="'maybe' is one of yes, no"):
        binary_score(reply({"maybe": 0.9, "yes": 0.1}))


@pytest.mark.parametrize(
    ("value", "score"),
    [(0, 0.0), (100, 1.0), ("100", 1.0), (" 7\n", 0.07), (85, 0.85), ("\u0667\u0665", 0.75)],
)
def test_integers_are_scores(value: str | int, score: float) -> None:
    assert no_logprobs_score(value) == score


@given(st.integers(0, 100))
def test_every_integer_in_range(value: int) -> None:
    assert no_logprobs_score(value) == no_logprobs_score(str(value)) == value / 100


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("12 34", "nothing else"),
        ("+5", "nothing else"),
        ("1e2", "nothing else"),
        ("1_0", "nothing else"),
        ("8\u00b2", "nothing else"),
        ("\u2167", "nothing else"),
        ("9" * 5000, "nothing else"),
        ("007", "leading zeros"),
        ("00", "leading zeros"),
        (" \n", "missing"),
        ("101", "from 0 to 100, not '101'"),
        (101, "from 0 to 100, not 101"),
        (-1, "from 0 to 100, not -1"),
        (85.0, "an integer from 0 to 100, not 85.0"),
        (0.85, "an integer from 0 to 100, not 0.85"),
        (True, "an integer from 0 to 100, not True"),
        (None, "an integer from 0 to 100, not None"),
        ([85], "an integer from 0 to 100"),
        ({"score": 85}, "an integer from 0 to 100"),
    ],
)
def test_what_is_no_integer_is_refused(wrong: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        no_logprobs_score(wrong)


def test_messages_do_not_repeat_a_long_reply() -> None:
    with pytest.raises(ValueError, match="nothing else") as error:
        no_logprobs_score("blah " * 1000)
    assert len(str(error.value)) < 200


@given(st.text(max_size=5))
def test_any_text_is_a_score_or_refused(text: str) -> None:
    try:
        score = no_logprobs_score(text)
    except ValueError:
        return
    assert score == int(text.strip()) / 100


@pytest.mark.parametrize(("grade", "score"), [(0, 0.0), ("1", 1 / 3), (" 2\n", 2 / 3), (3, 1.0)])
def test_a_grade_alone(grade: str | int, score: float) -> None:
    assert graded_score(grade) == score


@pytest.mark.parametrize("wrong", [4, -1, "4", "", "2.0", 2.0, True, None, "\uff12", "2 3", [2]])
def test_no_grade(wrong: object) -> None:
    with pytest.raises(ValueError, match="one of 0, 1, 2, 3"):
        graded_score(wrong)


def test_expected_grade() -> None:
    tokens = reply({"3": 0.5, "1": 0.25, "0": 0.125, "x": 0.125})
    assert graded_score(label_probabilities(tokens, GRADES)) == pytest.approx((1.5 + 0.25) / 0.875 / 3)
    assert graded_score({0: 0.5, 3: 0.5}) == 0.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "no grade has a probability"),
        ({"1": 0.0}, "no grade has a probability"),
        ({"4": 1.0}, "one of 0, 1, 2, 3, not '4'"),
        ({True: 1.0}, "one of 0, 1, 2, 3, not True"),
        ({"1": -0.5, "2": 1.0}, "probability of grade 1 is -0.5"),
        ({"1": math.nan}, "probability of grade 1 is nan"),
        ({"1": math.inf}, "probability of grade 1 is inf"),
    ],
)
def test_no_probabilities_of_grades(wrong: dict[Any, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graded_score(wrong)


@given(st.dictionaries(st.integers(0, 3), st.floats(1e-300, 1), min_size=1))
def test_expected_grade_is_within_the_grades(masses: dict[int, float]) -> None:
    score = graded_score(masses)
    assert min(masses) / 3 - 1e-12 <= score <= max(masses) / 3 + 1e-12


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)
PROSE = st.text(st.characters(exclude_characters="{}"), max_size=20)


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=4), PROSE, PROSE, st.sampled_from([None, 2]))
def test_an_object_is_found_in_any_prose(value: Any, before: str, after: str, indent: int | None) -> None:
    text = f"{before}```json\n{json.dumps(value, indent=indent, ensure_ascii=False)}\n```{after}"
    assert extract_json_object(text) == value


@given(st.text('{}[]":, a1\\\n', max_size=30))
def test_any_reply_gives_an_object_or_a_reason(text: str) -> None:
    try:
        value = extract_json_object(text)
    except ValueError as error:
        reason = str(error)
    else:
        assert isinstance(value, dict)
        return
    assert reason.startswith("the reply")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "}{"}', {"a": "}{"}),
        ('I set {score} to this:\n{"score": 85}', {"score": 85}),
        ('{"a": 1} I repeat: { "a" : 1 }', {"a": 1}),
        ('[{"a": 1}]', {"a": 1}),
        ('\ufeff{"a": 1}', {"a": 1}),
    ],
)
def test_one_object(text: str, value: dict[str, Any]) -> None:
    assert extract_json_object(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no braces", "no JSON object"),
        ("{x}", "no JSON object"),
        (" \n", "empty"),
        ("[1, 2]", "no JSON object"),
        ('{"a": 1} {"a": 2}', "2 different"),
        ('{"a": 1} {"a": true}', "2 different"),
        # The inner object is whole, but it is not the answer.
        ('{"question": "q", "source": {"id": 1}', "broken JSON object"),
        ('{"a": 1} {"a": ', "broken JSON object"),
        ('{"a": 1, "a": 2}', "'a' twice"),
        ('{"a": NaN}', "NaN, which is no JSON number"),
        ('{"a": 1,}', "broken JSON object"),
        ('{"a":' * 100_000, "nested too deep"),
    ],
)
def test_no_object_or_several(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        extract_json_object(text)

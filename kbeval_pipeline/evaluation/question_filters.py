"""Which generated questions are left out: near-duplicates, quotations, those in another language."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kbeval_pipeline.evaluation.question_language import SPACELESS, in_other_language, runs_of

Drop = Literal["quoting", "other_language", "repeated"]

# Two questions are near-duplicates from a Jaccard similarity of 9/10, compared in whole numbers.
_SHARED, _OF = 9, 10
_QUOTED_SHARE = 0.8


@dataclass(frozen=True)
class QuestionFilters:
    """Which filters are on.

    Attributes:
        near_duplicates: leave out a question that is nearly one drawn before.
        quoting: leave out a question that quotes its passage nearly whole.
        language: leave out a question in another language than its passage.
    """

    near_duplicates: bool = True
    quoting: bool = True
    language: bool = True


def filter_questions(
    kept: Sequence[str], new: Sequence[tuple[str, str]], filters: QuestionFilters
) -> list[Drop | None]:
    """Say which questions are left out, and why.

    Args:
        kept: questions kept before, which stay.
        new: further questions in draw order, each with its passage.
        filters: which filters are on.

    Returns:
        For each new question the filter that leaves it out, or None.
    """
    verdicts = [_own_fault(question, text, filters) for question, text in new]
    if filters.near_duplicates:
        # Only what is kept otherwise may put others out.
        places = [place for place, verdict in enumerate(verdicts) if verdict is None]
        found = near_duplicates([*kept, *(new[place][0] for place in places)])
        for place, repeated in zip(places, found[len(kept) :], strict=True):
            verdicts[place] = "repeated" if repeated else None
    return verdicts


def _own_fault(question: str, text: str, filters: QuestionFilters) -> Drop | None:
    if filters.quoting and quotes_passage(question, text):
        return "quoting"
    return "other_language" if filters.language and in_other_language(question, text) else None


def near_duplicates(questions: Sequence[str]) -> list[bool]:
    """Find the questions that are nearly an earlier one that is kept.

    Exact, by prefix filtering (Chaudhuri et al. 2006; Bayardo et al. 2007): with the tokens of every set in
    one order, rarest first, two sets that are similar enough share one of their first tokens. Only those that
    do are compared.

    Args:
        questions: questions in draw order.

    Returns:
        For each, whether its tokens have a Jaccard similarity of at least 0.9 with those of an earlier
        question that is none itself.
    """
    sets = [question_tokens(question) for question in questions]
    frequency = Counter(token for tokens in sets for token in tokens)
    holders: dict[str, list[int]] = defaultdict(list)
    verdicts = []
    for number, tokens in enumerate(sets):
        least_shared = -(-len(tokens) * _SHARED // _OF)
        rarest_first = sorted(tokens, key=lambda token: (frequency[token], token))
        prefix = rarest_first[: len(tokens) - least_shared + 1]
        candidates = {other for token in prefix for other in holders.get(token, ())}
        repeated = any(_similar(tokens, sets[other]) for other in candidates)
        verdicts.append(repeated)
        if not repeated:
            for token in prefix:
                holders[token].append(number)
    return verdicts


def question_tokens(question: str) -> frozenset[str]:
    """The tokens by which questions are compared.

    Args:
        question: a question.

    Returns:
        Words and pairs of neighbouring words, without regard to case and punctuation; pairs of characters
        where a script has no spaces. The text itself if it has no word.
    """
    tokens: set[str] = set()
    before = ""
    for script, run in runs_of(question):
        if script in SPACELESS:
            tokens.update(run[at : at + 2] for at in range(max(1, len(run) - 1)))
            before = ""
            continue
        tokens.add(run)
        if before:
            tokens.add(f"{before} {run}")
        before = run
    return frozenset(tokens or {question.strip()})


def quotes_passage(question: str, text: str) -> bool:
    """Whether a question quotes its passage nearly whole.

    Args:
        question: a question.
        text: its passage.

    Returns:
        True when the question, but for case, white space and question marks, is part of the passage and
        holds at least 80 % of it.
    """
    quoted, whole = (" ".join(part.casefold().split()) for part in (question, text))
    return len(quoted) >= _QUOTED_SHARE * len(whole) and quoted.strip("?？¿ ") in whole  # noqa: RUF001


def _similar(one: frozenset[str], other: frozenset[str]) -> bool:
    shorter, longer = sorted((len(one), len(other)))
    if shorter * _OF < longer * _SHARED:
        return False
    shared = len(one & other)
    return shared * _OF >= (shorter + longer - shared) * _SHARED

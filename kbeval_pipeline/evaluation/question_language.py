"""Whether a question is in another language than its passage.

It is said only when that is sure. The limits: this tells scripts apart, and in Latin script seven languages
(English, German, French, Spanish, Italian, Portuguese, Dutch) by stop words.
Russian and Ukrainian, or Chinese and Japanese, are the same here; another language in Latin script may be
taken for one of the seven where it shares their words. What mixes scripts or languages, or is short of stop
words, passes. A language in two scripts is two, such as Serbian asked in Latin of a text in Cyrillic.
"""

import unicodedata
from collections import Counter, defaultdict
from functools import cache

_HAN_KANA = "CJK"
# Written without spaces: their characters count in place of words.
SPACELESS = {_HAN_KANA, "THAI", "LAO", "KHMER", "MYANMAR"}
_HAN_KANA_NAMES = {"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC"}
_LANGUAGE_SAMPLE = 5_000

# With the words that look like another language's ("war", "door", "Los Angeles"), so that they tell nothing.
_STOP_WORDS = {
    "en": "the of and to is are was were what which who whose when where why how does did do for from with "
    "by that this it its as at be been has have had their they an or not can could would should many much a "
    "in on no me we so come over war hat door los dat men",
    "de": "der die das den dem des und ist sind war waren was welche welcher welches welchem wer wem wann wo "
    "warum wie wird wurde werden für von mit auf im zu zum zur ein eine einer eines einem nicht auch bei "
    "nach aus sich als oder hat haben durch über in an am so da",
    "fr": "le la les des du et est sont était quel quelle quels quelles qui que quand où pourquoi comment "
    "pour par avec dans sur un une en au aux ce cette ces il elle ils elles ne pas ont été leur leurs selon "
    "combien a à se son sa",
    "es": "el la los las del y es son fue fueron qué cuál cuáles quién quiénes cuándo cuánto cuántos dónde "
    "cómo para por con en un una se su sus al lo como más no según entre sobre ha han a o de que sur dos",
    "it": "il lo la gli le dei delle della del degli di e è sono era quale quali chi che quando dove perché "
    "come per con in un una nel nella nelle si suo sua non più da dal dalla ha hanno secondo quanto quanti "
    "a o no se",
    "pt": "o a os as do da dos das e é são foi foram qual quais quem que quando quanto quantos onde como por "
    "para com em um uma no na nos nas se seu sua não mais ao pelo pela segundo entre de era à às",
    "nl": "de het een en is zijn was waren wat welke wie wanneer waar waarom hoe wordt werd worden voor van "
    "met op in te naar niet ook bij uit zich als of heeft hebben door over aan dat die deze had men we",
}
_LANGUAGES_OF: dict[str, list[str]] = defaultdict(list)
for _language, _words in _STOP_WORDS.items():
    for _word in set(_words.split()):
        _LANGUAGES_OF[_word].append(_language)
# Only what is a stop word of one language alone tells it from the others.
_LANGUAGE_OF = {word: found[0] for word, found in _LANGUAGES_OF.items() if len(found) == 1}


def in_other_language(question: str, text: str) -> bool:
    """Whether a question is certainly in another language than its passage.

    Args:
        question: a question.
        text: its passage; the beginning decides.

    Returns:
        True when the main script of each is hardly used in the other, or when the stop words of both, in
        Latin script, speak for two languages. False when in doubt.
    """
    asked, told = runs_of(question), runs_of(text[:_LANGUAGE_SAMPLE])
    in_question, in_text = _script_units(asked), _script_units(told)
    if in_question.total() < 2 or in_text.total() < 3:
        return False
    asked_in, told_in = in_question.most_common(1)[0][0], in_text.most_common(1)[0][0]
    if asked_in != told_in:
        foreign_to_question = in_question[told_in] < 0.1 * in_question.total()
        # Chinese prose around Latin code, asked in Chinese, is no fault.
        return foreign_to_question and in_text[asked_in] < 0.2 * in_text.total()
    if told_in != "LATIN":
        return False
    of_text = _latin_language(told, least=5, purity=0.8)
    of_question = _latin_language(asked, least=2, purity=1.0)
    return None not in (of_text, of_question) and of_text != of_question


def runs_of(text: str) -> list[tuple[str, str]]:
    """Split a text into runs of letters, marks and digits, without regard to case.

    Args:
        text: any text.

    Returns:
        For each run the script of its first letter, "" for a number, and the run. A run does not go on from
        a script with spaces to one without.
    """
    runs: list[list[str]] = []
    open_run = False
    for char in unicodedata.normalize("NFKC", text).casefold():
        category = unicodedata.category(char)[0]
        if category not in "LMN":
            open_run = False
            continue
        script = _script(char) if category == "L" else ""
        current = runs[-1][0] if open_run else ""
        if not open_run or (script and current and (script in SPACELESS) != (current in SPACELESS)):
            runs.append([script, char])
            open_run = True
        else:
            runs[-1][0] = current or script
            runs[-1][1] += char
    return [(script, run) for script, run in runs]


def _latin_language(runs: list[tuple[str, str]], *, least: int, purity: float) -> str | None:
    """The language for which enough stop words speak, and nearly none for another."""
    words = Counter(run for _, run in runs if run in _LANGUAGE_OF)
    votes: Counter[str] = Counter()
    for word, times in words.items():
        votes[_LANGUAGE_OF[word]] += times
    if not votes:
        return None
    language, most = votes.most_common(1)[0]
    distinct = sum(_LANGUAGE_OF[word] == language for word in words)
    sure = most >= least and distinct >= min(least, 3) and most >= purity * votes.total()
    return language if sure else None


def _script_units(runs: list[tuple[str, str]]) -> "Counter[str]":
    """How much there is of each script, roughly in words."""
    units: Counter[str] = Counter()
    for script, run in runs:
        if script:
            units[script] += (len(run) + 1) // 2 if script in SPACELESS else 1
    return units


@cache
def _script(char: str) -> str:
    name = unicodedata.name(char, "").split(" ", 1)[0]
    return _HAN_KANA if name in _HAN_KANA_NAMES else name

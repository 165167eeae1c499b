"""Which generated questions are left out: near-duplicates, quotations, other languages."""
# ruff: noqa: RUF001 - letters of other scripts are meant

import time
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbeval_pipeline.evaluation.question_filters import (
    QuestionFilters,
    filter_questions,
    near_duplicates,
    question_tokens,
    quotes_passage,
)
from kbeval_pipeline.evaluation.question_language import in_other_language

WORDS = st.sampled_from(
    ["tower", "Tower", "height", "what", "is", "1889", "塔の高さは何メートルですか", "塔", "หอคอย"]
)
QUESTIONS = st.lists(st.lists(WORDS, max_size=25).map(" ".join), max_size=12)
LONG = "who built the tall iron tower on the left bank of the river in the capital of the country in 1889"


def brute_force(questions: list[str]) -> list[bool]:
    kept: list[frozenset[str]] = []
    verdicts = []
    for tokens in map(question_tokens, questions):
        repeated = any(
            Fraction(len(tokens & other), len(tokens | other)) >= Fraction(9, 10) for other in kept
        )
        verdicts.append(repeated)
        if not repeated:
            kept.append(tokens)
    return verdicts


@given(QUESTIONS)
@example([LONG, f"{LONG} or", f"then {LONG}", f"then {LONG} or", "", "?", LONG.upper() + "?"])
def test_near_duplicates_are_those_of_brute_force(questions: list[str]) -> None:
    assert near_duplicates(questions) == brute_force(questions)


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "a", "b c"])), max_size=20))
def test_near_duplicates_of_edited_questions_are_those_of_brute_force(edits: list[tuple[int, str]]) -> None:
    words = (LONG + " " + LONG[::-1]).split()
    questions = [" ".join([*words[:at], extra, *words[at + 1 :]]) for at, extra in edits]
    assert near_duplicates(questions) == brute_force(questions)


def test_the_earlier_question_is_kept_and_what_is_left_out_puts_out_nothing() -> None:
    words = [f"w{number}" for number in range(20)]
    chain = [" ".join(words[: 16 + more]) for more in range(4)]  # each is near to its neighbours only
    assert near_duplicates(chain) == [False, True, False, True]
    assert near_duplicates(chain[::-1]) == [False, True, False, True]


def test_case_punctuation_and_width_make_no_other_question() -> None:
    assert near_duplicates(["Who built it?", "who  BUILT it", "Ｗho built “it”？"]) == [False, True, True]
    assert near_duplicates(["Who built it?", "Who built her?", "It built who?"]) == [False, False, False]
    assert near_duplicates(["???", "!!!", "???"]) == [False, False, True]


def test_scripts_without_spaces_are_compared_by_character_pairs() -> None:
    assert question_tokens("東京タワー 2") == {"東京", "京タ", "タワ", "ワー", "2"}
    assert question_tokens("塔") == {"塔"}
    long = "黑豹队的防守在二零一五年的联赛当中一共丢了多少分并且排名第几位"
    assert near_duplicates([long, long + "？", long + "呢", "黑豹队的进攻怎么样"]) == [
        False,
        True,
        True,
        False,
    ]


def test_a_similarity_of_exactly_nine_tenths_is_near() -> None:
    assert near_duplicates(["一二三四五六七八九十", "一二三四五六七八九十百"]) == [False, True]
    assert near_duplicates(["一二三四五六七八九", "一二三四五六七八九十"]) == [False, False]


def test_marks_belong_to_their_word() -> None:
    assert near_duplicates(["राम की किताब", "राम का किताब"]) == [False, False]


def test_many_questions_are_compared_in_far_less_than_quadratic_time() -> None:
    start = time.perf_counter()
    assert not any(near_duplicates([f"What is the height of mountain {number}?" for number in range(20_000)]))
    assert time.perf_counter() - start < 20


def test_a_question_that_quotes_its_passage_nearly_whole() -> None:
    passage = "The tower was built\n in 1889 by  Gustave Eiffel."
    assert quotes_passage("the tower was built in 1889 by Gustave Eiffel?", passage)
    assert not quotes_passage("The tower was built?", passage)
    assert not quotes_passage("Who is it that built the famous tower back in 1889?", passage)


TEXTS = {
    "en": "The tower was built in 1889 for the world fair and is named after the engineer whose company "
    "designed it. It has been visited by millions.",
    "de": "Der Turm wurde 1889 für die Weltausstellung gebaut und ist nach dem Ingenieur benannt, dessen Firma "
    "ihn entworfen hat. Er war auch nicht beliebt.",
    "fr": "La tour a été construite en 1889 pour l'exposition universelle et porte le nom de l'ingénieur dont "
    "les ateliers ont réalisé le projet. Elle est dans Paris.",
    "es": "La torre fue construida en 1889 para la exposición universal y lleva el nombre del ingeniero. Los "
    "visitantes son millones según el registro, y no es la más alta.",
    "it": "La torre è stata costruita nel 1889 per l'esposizione e prende il nome dall'ingegnere della ditta. "
    "Gli abitanti non erano felici, ma è il simbolo della città nel mondo.",
    "pt": "A torre foi construída em 1889 para a exposição universal e tem o nome do engenheiro. Os visitantes "
    "são milhões e não é a mais alta, mas uma das mais belas do mundo em altura.",
    "nl": "De toren werd in 1889 gebouwd voor de wereldtentoonstelling en is genoemd naar de ingenieur van het "
    "bedrijf. Het is ook niet de hoogste toren uit die tijd.",
    "ru": "Башня была построена в 1889 году для всемирной выставки и названа в честь инженера.",
    "el": "Ο πύργος χτίστηκε το 1889 για την παγκόσμια έκθεση και πήρε το όνομα του μηχανικού.",
    "ar": "بني البرج عام 1889 من أجل المعرض العالمي وسمي على اسم المهندس.",
    "he": "המגדל נבנה בשנת 1889 עבור התערוכה העולמית ונקרא על שם המהנדס.",
    "hi": "मीनार 1889 में विश्व मेले के लिए बनाई गई थी और इसका नाम इंजीनियर के नाम पर है।",
    "th": "หอคอยนี้สร้างขึ้นในปี 1889 สำหรับงานมหกรรมโลกและตั้งชื่อตามวิศวกร",
    "ko": "탑은 1889년 만국 박람회를 위해 지어졌으며 기술자의 이름을 따서 명명되었다.",
    "ja": "塔は1889年の万国博覧会のために建てられ、技術者にちなんで名付けられた。",
}
QUESTIONS_IN = {
    "en": "Which engineer is the tower of the 1889 world fair named after?",
    "de": "Nach wem wurde der Turm der Weltausstellung von 1889 benannt?",
    "fr": "Quel ingénieur a donné son nom à la tour pour l'exposition universelle ?",
    "es": "¿Quién fue el ingeniero que da nombre a la torre del año 1889?",
    "it": "Da quale ingegnere prende il nome la torre della esposizione?",
    "pt": "Qual é o engenheiro que deu o seu nome à torre em 1889?",
    "nl": "Naar welke ingenieur is de toren van het jaar 1889 genoemd?",
    "ru": "В честь какого инженера названа башня?",
    "el": "Από ποιον μηχανικό πήρε το όνομά του ο πύργος;",
    "ar": "على اسم أي مهندس سمي البرج؟",
    "he": "על שם איזה מהנדס נקרא המגדל?",
    "hi": "मीनार का नाम किस इंजीनियर के नाम पर है?",
    "th": "หอคอยตั้งชื่อตามวิศวกรคนใด",
    "ko": "탑은 어느 기술자의 이름을 땄는가?",
    "ja": "塔はどの技術者にちなんで名付けられたか？",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_question_in_another_language_is_told_from_one_in_the_same(language: str) -> None:
    other = {
        asked for asked, question in QUESTIONS_IN.items() if in_other_language(question, TEXTS[language])
    }
    assert other == set(TEXTS) - {language}


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Eiffel?", TEXTS["ru"]),  # too short to say
        ("Was?", TEXTS["en"]),
        ("Who directed the film Les uns et les autres?", TEXTS["en"]),
        ("When did the war end in Los Angeles?", TEXTS["de"].split(".")[0][:30]),  # the text is too short
        ("什么是 PostgreSQL 的 WAL?", "预写日志 (WAL) 是 PostgreSQL 的标准方法, 用于保证数据的完整性。"),
        ("如何创建索引?", "用以下语句创建索引: CREATE INDEX name ON table USING btree (column);"),
        ("東京タワーの高さ?", "东京塔是位于日本东京的一座高塔，高三百三十三米。"),  # a limit: one script
        ("Co to jest wieża?", TEXTS["en"]),  # a limit: Polish is not known
        ("", TEXTS["en"]),
        ("Which engineer?", ""),
    ],
)
def test_when_in_doubt_a_question_passes(question: str, text: str) -> None:
    assert not in_other_language(question, text)


def test_what_is_left_out_for_itself_puts_out_no_other_question() -> None:
    german = QUESTIONS_IN["de"]
    new = [(german, TEXTS["en"]), (german, TEXTS["de"]), ("Who?", TEXTS["en"]), ("Kept?", TEXTS["en"])]
    assert filter_questions(["kept"], new, QuestionFilters()) == ["other_language", None, None, "repeated"]
    off = QuestionFilters(near_duplicates=False, quoting=False, language=False)
    assert filter_questions(["kept"], new, off) == [None, None, None, None]

"""The question writer that asks a language model."""

import polars as pl

from kbeval_pipeline.evaluation.question_prompts import question_request, read_question
from kbeval_pipeline.evaluation.question_writers import SkippedRow, WrittenQuestion
from kbeval_pipeline.resources.llms.errors import CallError
from kbeval_pipeline.resources.llms.requests import AskModel
from kbeval_pipeline.resources.llms.workers import for_each

RE_ASKS = 2


class LLMWriter:
    """Asks a model for one question a document; a reply that cannot be used is asked again, twice at most.

    Args:
        model: answers the requests; retries of a call are its own.
        concurrency: documents in work at once.
        name: names the writer in the test set.
    """

    def __init__(self, model: AskModel, concurrency: int, *, name: str = "llm") -> None:
        self.name = name
        self._model = model
        self._concurrency = concurrency

    async def write(
        self, _corpus: pl.DataFrame, drawn: pl.DataFrame, /
    ) -> list[WrittenQuestion | SkippedRow]:
        """Ask for the question of each drawn document.

        Args:
            drawn: `doc_id, content` of the documents to write for.

        Returns:
            A question, or why there is none, in the order of `drawn` whatever that of the replies.

        Raises:
            ProviderError: at once, when every call would fail.
            BudgetExceeded: after the calls in flight have ended.
        """
        outcomes: dict[int, WrittenQuestion | SkippedRow] = {}

        async def work(number: int, row: tuple[str, str]) -> None:
            outcomes[number] = await self._write_one(*row)

        rows = drawn.select("doc_id", "content").iter_rows()
        await for_each(rows, work, workers=max(1, min(self._concurrency, drawn.height)))
        return [outcomes[number] for number in range(drawn.height)]

    async def _write_one(self, doc_id: str, content: str) -> WrittenQuestion | SkippedRow:
        previous: str | None = None
        reason = ""
        for attempt in range(RE_ASKS + 1):
            request = question_request(content, attempt=attempt, previous_reply=previous, reason=reason)
            try:
                reply = await self._model.ask(request)
            except CallError as error:
                return SkippedRow(doc_id, f"the call failed ({error.kind}): {error}")
            try:
                return WrittenQuestion(doc_id, *read_question(reply.text))
            except ValueError as error:
                previous, reason = reply.text, str(error)
        return SkippedRow(doc_id, f"no usable reply in {RE_ASKS + 1} attempts: {reason}")

"""The models of `kbeval.yaml`: data sources, knowledge bases, LLMs, evaluations and their schedules."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import available_timezones

from pydantic import AfterValidator, Discriminator, Field, SecretStr, Tag, field_validator, model_validator

from kbeval_pipeline.settings import Flag, Name, PositiveInt, Seed, Settings, Share, TableReference

Version = Literal["doc_id", "llm_relevancy"]
DEFAULT_TOP_K: dict[Version, int] = {"doc_id": 20, "llm_relevancy": 10}


class DuckDBSource(Settings):
    """A DuckDB file."""

    type: Literal["duckdb"]
    path: Path = Field(description="Database file, relative to the project file; made when first written.")


class FolderSource(Settings):
    """A folder in which each CSV, Parquet, JSON or JSON Lines file is a table named like the file."""

    type: Literal["folder"]
    path: Path = Field(description="The folder, relative to the project file.")
    write_format: Literal["csv", "parquet", "jsonl"] = Field(
        "parquet", description="Format of a table that does not exist yet; an existing file keeps its own."
    )


class SqlSource(Settings):
    """A database with an SQLAlchemy dialect: PostgreSQL, SQLite, MySQL, Snowflake and others."""

    type: Literal["sql"]
    url: SecretStr = Field(description="SQLAlchemy URL; take passwords from the environment: `${PG_URL}`.")


DataSourceSettings = Annotated[DuckDBSource | FolderSource | SqlSource, Field(discriminator="type")]


class DocumentsSettings(Settings):
    """Where a knowledge base's documents come from: exactly one of `files`, `table` and `sql`."""

    files: Path | None = Field(
        None, description="Folder of text, Markdown and HTML files, relative to the project file."
    )
    include: tuple[str, ...] = Field(
        ("**/*.txt", "**/*.md", "**/*.markdown", "**/*.html", "**/*.htm"),
        min_length=1,
        description="Glob patterns below `files`. A document's id is its path below the folder.",
    )
    encoding: str = Field("utf-8", description="Encoding of the files; one that does not fit is reported.")
    max_file_mb: float = Field(10.0, gt=0, description="Larger files are left out and reported, in MB.")
    table: TableReference | None = Field(None, description="A table, as `datasource.table`.")
    sql: str | None = Field(None, description="One SELECT over the data sources.")
    id_column: str = Field("id", description="Column of the document id, for `table` and `sql`.")
    content_column: str = Field("content", description="Column of the text, for `table` and `sql`.")

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            "".encode(value)
        except LookupError:
            raise ValueError(f'unknown encoding "{value}"') from None
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in ("files", "table", "sql") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none"
            raise ValueError(f"give exactly one of files, table and sql ({found})")
        return self


class ChunkingSettings(Settings):
    """How documents are cut into chunks."""

    size: Annotated[int, Field(strict=True, ge=0)] = Field(
        1000, description="Longest chunk in characters; 0 keeps each document whole."
    )
    overlap: Annotated[int, Field(strict=True, ge=0)] = Field(
        100, description="Characters shared by neighbouring chunks."
    )
    splitter: Literal["text", "markdown"] = Field("text", description="Where to prefer to cut.")

    @model_validator(mode="after")
    def _overlap_fits(self) -> Self:
        if self.size and self.overlap >= self.size:
            raise ValueError(f"overlap ({self.overlap}) must be smaller than size ({self.size})")
        return self


Language = Literal[
    "none", "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian",
    "italian", "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish",
]  # fmt: skip


class EmbeddingsSettings(Settings):
    """The embedding model of vector and hybrid search."""

    model: str = Field(
        "minilm",
        description="`minilm` (all-MiniLM-L6-v2, offline, extra `vectors`) or the import path of a "
        "LangChain `Embeddings` class, such as `langchain_openai:OpenAIEmbeddings`.",
    )
    arguments: dict[str, Any] = Field(default_factory=dict, repr=False, description="Its arguments.")


class SearchSettings(Settings):
    """How the `local` knowledge base searches."""

    mode: Literal["lexical", "vector", "hybrid"] = Field("lexical", description="BM25, vectors or both.")
    language: Language = Field(
        "english", description="Stop words and stemmer. Chinese, Japanese and Korean need no setting."
    )
    lexical_weight: float = Field(1.0, ge=0, description="Weight of BM25 in hybrid rank fusion.")
    vector_weight: float = Field(3.0, ge=0, description="Weight of vectors in hybrid rank fusion.")
    embeddings: EmbeddingsSettings = Field(default=EmbeddingsSettings())

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if self.lexical_weight + self.vector_weight == 0:
            raise ValueError("lexical_weight and vector_weight are both 0")
        return self


class LocalKnowledgeBase(Settings):
    """The embedded knowledge base: documents are chunked and indexed on this machine."""

    type: Literal["local"] = "local"
    documents: DocumentsSettings
    chunking: ChunkingSettings = Field(default=ChunkingSettings())
    search: SearchSettings = Field(default=SearchSettings())
    reranking_model: str | None = Field(None, description="LLM of evaluations that name none.")
    max_concurrency: PositiveInt | None = Field(
        None, description="Searches at once; the default is the number of cores, as searching is local work."
    )


class LangChainKnowledgeBase(Settings):
    """Any LangChain retriever or vector store, by import path and arguments."""

    type: Literal["langchain"]
    class_path: str = Field(
        description="`module:Class` of a `BaseRetriever` or `VectorStore`, or `module:function` that "
        "makes one."
    )
    arguments: dict[str, Any] = Field(default_factory=dict, repr=False, description="Its arguments.")
    embeddings: EmbeddingsSettings | None = Field(
        None, description="Passed as the vector store's embedding model, where it needs one."
    )
    search_arguments: dict[str, Any] = Field(
        default_factory=dict, description="Further arguments of each search, such as a filter."
    )
    doc_id_key: str = Field("doc_id", description="Metadata key of a chunk's document id.")
    documents: DocumentsSettings | None = Field(
        None, description="Where the documents are listed from, as the store itself cannot list them."
    )
    fingerprint_sql: str | None = Field(
        None,
        description="One SELECT over the data sources whose result changes with the documents; by default "
        "the listed documents are hashed.",
    )
    reranking_model: str | None = Field(None, description="LLM of evaluations that name none.")
    max_concurrency: PositiveInt = Field(20, description="Searches at once.")


class MindsDBKnowledgeBase(Settings):
    """A knowledge base of a running MindsDB server, through its HTTP SQL API."""

    type: Literal["mindsdb"]
    url: str = Field("http://127.0.0.1:47334", description="URL of the server.")
    user: str | None = Field(None, description="User, where the server asks for one.")
    password: SecretStr | None = Field(
        None, description="Take it from the environment: `${MINDSDB_PASSWORD}`."
    )
    knowledge_base: str = Field(description="Its name on the server, `project.kb` too.")
    timeout_seconds: float = Field(60.0, gt=0, description="Longest duration of one request.")
    reranking_model: str | None = Field(None, description="LLM of evaluations that name none.")
    max_concurrency: PositiveInt = Field(20, description="Searches at once.")


KnowledgeBaseSettings = LocalKnowledgeBase | LangChainKnowledgeBase | MindsDBKnowledgeBase


def _kind_of_knowledge_base(value: Any) -> str:
    kind = value.get("type", "local") if isinstance(value, dict) else getattr(value, "type", "local")
    return str(kind)


AnyKnowledgeBase = Annotated[
    Annotated[LocalKnowledgeBase, Tag("local")]
    | Annotated[LangChainKnowledgeBase, Tag("langchain")]
    | Annotated[MindsDBKnowledgeBase, Tag("mindsdb")],
    Discriminator(_kind_of_knowledge_base),
]


Provider = Literal[
    "openai", "azure_openai", "anthropic", "google", "gemini", "bedrock", "ollama", "snowflake", "custom",
    "offline",
]  # fmt: skip
JudgeMethod = Literal["multi-class", "binary", "no-logprobs", "graded"]


class Prices(Settings):
    """What a model costs; without prices the cost of a run is unknown, not 0."""

    input: float = Field(ge=0, description="Price of a million input tokens.")
    cached_input: float | None = Field(
        None, ge=0, description="Price of a million input tokens that the provider had cached."
    )
    output: float = Field(ge=0, description="Price of a million output tokens.")


class LLMSettings(Settings):
    """A language model: what to call, and how hard."""

    provider: Provider = Field(
        description="`openai` with `base_url` is any OpenAI-compatible server; `custom` is any LangChain "
        "chat model by `class_path`; `offline` is no model but a deterministic stand-in."
    )
    model_name: str | None = Field(None, description="Name of the model, at Azure of the deployment.")
    api_key: SecretStr | None = Field(None, description="Take it from the environment: `${OPENAI_API_KEY}`.")
    base_url: str | None = Field(None, description="URL of the server, at Azure the endpoint.")
    api_version: str | None = Field(None, description="API version, for Azure.")
    class_path: str | None = Field(
        None, description="`module:Class` of a LangChain chat model, for provider `custom`."
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Further arguments of the chat model."
    )
    method: JudgeMethod | None = Field(
        None,
        description="How it judges; by default `multi-class` where the model returns log-probabilities, "
        "else `no-logprobs`.",
    )
    temperature: float | None = Field(0.0, ge=0, description="`null` for models that refuse one.")
    max_output_tokens: PositiveInt | None = Field(None, description="Longest reply, in tokens.")
    max_concurrency: PositiveInt = Field(
        20, description="Calls at once; lowered while the provider throttles."
    )
    timeout_seconds: float = Field(60.0, gt=0, description="Longest duration of one call.")
    max_retries: Annotated[int, Field(strict=True, ge=0)] = Field(
        6, description="Retries of a call after throttling or a passing fault."
    )
    prices: Prices | None = Field(None, description="Prices, in any currency.")

    @property
    def label(self) -> str:
        """Provider and model, as tables and messages name them."""
        return f"{self.provider}/{self.model_name or self.class_path}"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider not in ("offline", "custom") and not self.model_name:
            raise ValueError(f"model_name is missing, provider {self.provider} needs one")
        if (self.provider == "custom") != (self.class_path is not None):
            raise ValueError("class_path goes with provider custom, and provider custom needs it")
        return self


class GenerationFilters(Settings):
    """Which generated questions are left out, each replaced by another while the source lasts."""

    near_duplicates: Flag = Field(True, description="One that is nearly asked already.")
    quoting: Flag = Field(True, description="One that quotes its text nearly whole.")
    language: Flag = Field(True, description="One in another language than its text.")


class GenerateData(Settings):
    """How a test set is generated from documents."""

    from_sql: str | None = Field(
        None,
        description="One SELECT over the data sources that returns `id` and `content`; "
        "by default the knowledge base's own documents.",
    )
    count: PositiveInt = Field(20, description="Number of questions.")
    seed: Seed = Field(0, description="Seed of the draw.")
    filters: GenerationFilters = Field(default_factory=GenerationFilters)


def _known_timezone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError(f'unknown time zone "{value}", expected a name such as Europe/Berlin')
    return value


def _valid_cron(value: str) -> str:
    from dagster._utils.schedules import is_valid_cron_string  # noqa: PLC0415

    if not is_valid_cron_string(value):
        raise ValueError(f'"{value}" is not a cron expression, expected five fields such as "0 2 * * *"')
    return value


class Schedule(Settings):
    """When an evaluation runs by itself."""

    cron: Annotated[str, AfterValidator(_valid_cron)] = Field("0 2 * * *", description="Cron expression.")
    timezone: Annotated[str, AfterValidator(_known_timezone)] = Field("UTC", description="Its time zone.")
    enabled: Flag = Field(True, description="Whether the schedule starts switched on.")


class Calibration(Settings):
    """Human labels that tell how far the judge can be trusted."""

    table: TableReference = Field(
        description="Columns `question, passage, grade`: judged by the evaluation's judge. Or `judge, grade, "
        "judge_grade`: judgments made elsewhere. Grades from 0 to 3."
    )
    binary_threshold: Annotated[int, Field(strict=True, ge=1, le=3)] = Field(
        2, description="Grade from which a passage counts as relevant in the binary figures."
    )


class Evaluation(Settings):
    """One named evaluation of a knowledge base; the same parameters as EVALUATE KNOWLEDGE_BASE."""

    knowledge_base: str = Field(description="Name of a knowledge base.")
    test_table: TableReference = Field(description="The test set, as `datasource.table`.")
    version: tuple[Version, ...] = Field(
        ("doc_id",), description="`doc_id`, `llm_relevancy`, or a list of both."
    )
    generate_data: GenerateData | None = Field(
        None, description="`true`, `false`, or a mapping; generates the test set and replaces `test_table`."
    )
    evaluate: Flag = Field(True, description="`false` only generates the test set.")
    llm: LLMSettings | str | None = Field(None, description="An LLM, by name or as a mapping.")
    panel: tuple[str, ...] = Field(
        (), description="Names of LLMs that judge together: the median of their scores counts."
    )
    calibration: Calibration | None = Field(None, description="Human labels to measure the judge by.")
    save_to: TableReference | None = Field(None, description="Also append the result row to this table.")
    top_k: PositiveInt | None = Field(
        None, description="Chunks retrieved for a question; 20 for doc_id, 10 for llm_relevancy."
    )
    ks: tuple[PositiveInt, ...] = Field((1, 3, 5, 10, 20), description="Cut-offs of the extended metrics.")
    relevance_threshold: Share = Field(0.5, description="Score from which a chunk counts as relevant.")
    max_failure_rate: Share = Field(
        0.2, description="Share of failed questions, judgments or generated rows that fails the run."
    )
    cache: Flag = Field(True, description="`false` neither reads nor writes the reply store.")
    max_cost: float | None = Field(
        None, gt=0, description="Stops the run before its calls cost more; needs the model's prices."
    )
    seed: Seed = Field(0, description="Seed of the bootstrap intervals.")
    schedule: Schedule | None = Field(None, description="Overrides the project's schedule.")

    @field_validator("version", mode="before")
    @classmethod
    def _one_or_several_versions(cls, value: Any) -> Any:
        if value in ([], ()):
            raise ValueError("name at least one of doc_id and llm_relevancy")
        return (value,) if isinstance(value, str) else value

    @field_validator("generate_data", mode="before")
    @classmethod
    def _true_means_defaults(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {} if value else None
        if value is not None and not isinstance(value, dict | GenerateData):
            raise ValueError("expected true, false or a mapping with from_sql, count, seed")
        return value

    @model_validator(mode="after")
    def _save_elsewhere(self) -> Self:
        if self.save_to is not None and self.save_to == self.test_table:
            raise ValueError(f'save_to and test_table are both "{self.test_table}"; save elsewhere')
        return self

    @property
    def retrieval_depth(self) -> int:
        """Chunks retrieved for a question: `top_k`, or the largest default of the versions."""
        return self.top_k or max(DEFAULT_TOP_K[version] for version in self.version)

    @property
    def judging_depth(self) -> int:
        """Chunks judged for a question: `top_k`, or the default of `llm_relevancy`."""
        return self.top_k or DEFAULT_TOP_K["llm_relevancy"]


class ReplyCache(Settings):
    """A LangChain cache for the replies of models, in place of the SQLite file in the data folder."""

    class_path: str = Field(description="`module:Class` of a LangChain `BaseCache`.")
    arguments: dict[str, Any] = Field(default_factory=dict, repr=False, description="Its arguments.")


class Project(Settings):
    """The whole project file."""

    name: Name = Field("kbeval", description="Name of the project; statements may write `name.kb`.")
    data_dir: Path = Field(
        Path(".kbeval"), description="Folder of the warehouse, the indexes and Dagster's own storage."
    )
    data_sources: dict[Name, DataSourceSettings] = Field(default_factory=dict)
    knowledge_bases: dict[Name, AnyKnowledgeBase] = Field(default_factory=dict)
    llms: dict[Name, LLMSettings] = Field(default_factory=dict)
    default_llm: str | None = Field(None, description="Name of the LLM to use where none is named.")
    reply_cache: ReplyCache | None = Field(None, description="Where replies of models are kept.")
    evaluations: dict[Name, Evaluation] = Field(default_factory=dict)
    schedule: Schedule = Field(default=Schedule(), description="Schedule of every evaluation.")

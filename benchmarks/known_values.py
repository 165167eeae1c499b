"""Evaluate a labelled corpus through the whole pipeline and compare with known BM25 values.

    python benchmarks/known_values.py --data FOLDER --set xquad_en

FOLDER holds `<set>/corpus.jsonl` {id, content}, `<set>/queries.jsonl` {id, question} and `<set>/qrels.tsv`
(query_id, doc_id, grade). A project file is written into a working folder and run by `kbeval evaluate`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import polars as pl
import yaml

KNOWN = {
    "xquad_en": {"ndcg@10": 0.9645, "recall@10": 0.9924, "mrr@10": 0.9551, "map": 0.9553},
    "xquad_de": {"ndcg@10": 0.9384, "recall@10": 0.9824, "mrr@10": 0.9239, "map": 0.9243},
    "xquad_zh": {"ndcg@10": 0.9626, "recall@10": 0.9924, "mrr@10": 0.9526, "map": 0.9528},
    "cranfield": {"ndcg@10": 0.3650, "recall@10": 0.3966, "mrr@10": 0.5264, "map": 0.3014},
}
LANGUAGES = {"xquad_de": "german"}


def write_project(data: Path, name: str, folder: Path) -> Path:
    """Write the project file and its tables: whole documents as chunks, 1,000 retrieved as trec_eval does."""
    corpus = pl.read_ndjson(data / name / "corpus.jsonl", schema={"id": pl.String, "content": pl.String})
    queries = pl.read_ndjson(data / name / "queries.jsonl", schema={"id": pl.String, "question": pl.String})
    qrels = pl.read_csv(
        data / name / "qrels.tsv",
        separator="\t",
        schema={"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int64},
    )
    questions = qrels.join(queries, left_on="query_id", right_on="id").rename({"query_id": "question_id"})
    tables = folder / "tables"
    tables.mkdir()
    corpus.write_parquet(tables / "corpus.parquet")
    questions.write_parquet(tables / "questions.parquet")
    project = {
        "name": "known",
        "data_sources": {"tables": {"type": "folder", "path": "tables"}},
        "knowledge_bases": {
            name: {
                "type": "local",
                "documents": {"table": "tables.corpus"},
                "chunking": {"size": 0},
                "search": {"language": LANGUAGES.get(name, "english")},
            }
        },
        "evaluations": {
            name: {"knowledge_base": name, "test_table": "tables.questions", "top_k": 1000, "ks": [10]}
        },
    }
    file = folder / "kbeval.yaml"
    file.write_text(yaml.safe_dump(project), encoding="utf-8")
    return file


def main() -> int:
    """Run the evaluation of each set; 1 when a value is off by more than 0.01."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--set", action="append", choices=sorted(KNOWN), help="which sets; default all")
    arguments = parser.parse_args()
    off = False
    print("| set | metric | ours | known | difference |\n|---|---|---|---|---|")
    for name in arguments.set or KNOWN:
        with tempfile.TemporaryDirectory() as folder:
            file = write_project(arguments.data, name, Path(folder))
            environment = {key: value for key, value in os.environ.items() if key != "DAGSTER_HOME"}
            kbeval = [sys.executable, "-c", "from kbeval_pipeline.cli.main import main; main()"]
            command = [*kbeval, "--project", str(file), "evaluate", name, "--json"]
            run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            if run.returncode:
                print(run.stderr, file=sys.stderr)
                return 1
            json.loads(run.stdout)
            with duckdb.connect(
                str(Path(folder) / ".kbeval" / "warehouse.duckdb"), read_only=True
            ) as warehouse:
                rows = warehouse.sql("SELECT metric, k, value FROM extended_metrics_latest").fetchall()
        ours = {metric if k is None else f"{metric}@{k}": value for metric, k, value in rows}
        for metric, known in KNOWN[name].items():
            difference = ours[metric] - known
            off |= abs(difference) > 0.01
            print(f"| {name} | {metric} | {ours[metric]:.4f} | {known:.4f} | {difference:+.4f} |", flush=True)
    return int(off)


if __name__ == "__main__":
    sys.exit(main())

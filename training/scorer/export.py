"""Writing the trained scorer as a folder that open_clip loads by itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from models.card import FilePart, Measurement, Named, ScorerCard
from models.checkpoints import write_checkpoint
from models.clip_scorer import WEIGHT
from training.data import DataReport
from training.git_revision import git_revision
from training.scorer.config import Config
from training.scorer.corpus import Corpus
from training.scorer.stage import encode_pictures
from training.scorer.student import Student
from training.tokenizer import END, PAD, START, UNKNOWN

WEIGHTS_PART = "open_clip_model"
_RANGE = (0.05, 0.95)


def write_scorer(
    folder: Path,
    model: Any,
    tokenizer: Tokenizer,
    *,
    config: Config,
    settings: Mapping[str, Any],
    report: DataReport,
    values: Mapping[str, float],
    score_range: tuple[float, float],
    resolved: str,
) -> Path:
    """``folder``, now with weights in fp16, open_clip's config, the tokenizer, the card and the recipe.

    Args:
        settings: what ``open_clip_config.json`` says.
        values: retrieval on the validation split.
        resolved: the recipe with every setting.
    """

    def write_files(draft: Path) -> None:
        (draft / "open_clip_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        (draft / "recipe.yaml").write_text(resolved, encoding="utf-8")
        tokenizer.save(str(draft / "tokenizer.json"))
        names = {"pad_token": PAD, "unk_token": UNKNOWN, "cls_token": START, "sep_token": END}
        facts = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.model.context_length,
            "clean_up_tokenization_spaces": False,
            **names,
        }
        (draft / "tokenizer_config.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def make_card(parts: dict[str, FilePart], files: dict[str, str]) -> ScorerCard:
        return _card(config, report, values, score_range, parts, files)

    # BatchNorm's step counters are no weights, but open_clip's strict loading asks for every tensor.
    write_checkpoint(folder, make_card, {WEIGHTS_PART: model.state_dict()}, write_files)
    return folder


@torch.no_grad()
def clip_score_range(student: Student, corpus: Corpus) -> tuple[float, float]:
    """5th and 95th percentile of CLIPScore, prefix included, of a corpus's captions with their own pictures."""
    images = encode_pictures(student.image, corpus, view=0)[torch.from_numpy(corpus.owner)]
    scores = WEIGHT * (images * student.encode_captions(corpus, prefix=True)).sum(dim=-1).clamp(min=0)
    low, high = scores.quantile(torch.tensor(_RANGE)).tolist()
    return round(low, 4), round(high, 4)


def _card(
    config: Config,
    report: DataReport,
    values: Mapping[str, float],
    score_range: tuple[float, float],
    parts: dict[str, FilePart],
    files: dict[str, str],
) -> ScorerCard:
    source = config.data.source(report)
    return ScorerCard(
        id=config.id,
        description=config.description,
        licence=config.licence,
        objective=Named(name="contrastive + distillation", options=config.student.model_dump()),
        data=[source],
        origin=[
            f"{config.model.vision}, ImageNet weights (Apache-2.0)",
            "all-MiniLM-L6-v2: teacher, word vectors and first weights of the text layers (Apache-2.0)",
            "BERT-uncased word pieces (Apache-2.0)",
        ],
        seed=config.seed,
        git_revision=git_revision(),
        measurements=[Measurement(split="val", images=report.images["val"], values=dict(values))],
        prefix=config.model.prefix,
        score_range=score_range,
        parts=parts,
        files=files,
    )

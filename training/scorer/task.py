"""The task ``scorer``: trains a dual encoder and writes its folder in open_clip's format."""

import logging
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml
from tokenizers import Tokenizer

from training.data import Dataset, read_dataset
from training.packages import bert_vocabulary
from training.run_folder import claim
from training.scorer import student as student_stage
from training.scorer import teacher as teacher_stage
from training.scorer.config import Config as ScorerConfig
from training.scorer.corpus import Corpus, build_corpus, cache_features
from training.scorer.dual_encoder import ImageTail, TextTower, build_dual_encoder, start_from_minilm
from training.scorer.export import clip_score_range, write_scorer
from training.scorer.minilm import MiniLmTower, load_minilm
from training.scorer.splices import make_texts
from training.scorer.stage import encode_pictures, run_stage, unit
from training.scorer.student import Student, Targets
from training.scorer.teacher import Teacher
from training.tokenizer import END, SPECIAL, build_tokenizer

logger = logging.getLogger(__name__)

_TARGETS_FILE = "targets.safetensors"


class ScorerTask:
    """One training run of a scorer."""

    Config = ScorerConfig

    def __init__(self, config: ScorerConfig) -> None:
        self.config = config

    def run(self, out: Path) -> Path:
        """Train in ``out``, continuing what is there, and return the scorer's folder ``out/ID``.

        Raises:
            DataError: the data cannot be used, or the loss is not finite.
            ImageError: a picture cannot be read.
            MissingDependencyError: a package with the weights to start from is absent.
        """
        config = self.config
        if config.train.threads:
            torch.set_num_threads(config.train.threads)
        torch.manual_seed(config.seed)
        claim(out, self._resolved())
        dataset = read_dataset(config.data.format, config.data.options, splits=["train", "val"])
        logger.info("data: %s", dataset.report.summary())
        tokenizer = self._tokenizer(dataset)
        train, val = (self._corpus(out, dataset, split, tokenizer) for split in ("train", "val"))
        settings = config.open_clip_config(tokenizer.get_vocab_size(), SPECIAL.index(END))
        model = build_dual_encoder(settings)
        image = ImageTail(model.visual, **config.image.model_dump())
        spliced = make_texts(train.captions, config.student.spliced, config.seed)
        targets = self._teach(out, image, train, val, spliced)
        student = Student(image, self._text_tower(model, tokenizer), tokenizer, targets.bank, config)
        values = run_stage(
            out / "student",
            student,
            student_stage.student_batches(student, train, spliced, targets, config),
            val,
            steps=config.student.steps,
            rates=(config.student.learning_rate, config.student.slow_learning_rate, student_stage.SLOW),
            weight_decay=config.student.weight_decay,
            settings=config.train,
            seed=config.seed,
        )
        return write_scorer(
            out / config.id,
            model,
            tokenizer,
            config=config,
            settings=settings,
            report=dataset.report,
            values=values,
            score_range=clip_score_range(student, val),
            resolved=self._resolved(),
        )

    # --- stages -------------------------------------------------------------------------------------------------

    def _teach(self, out: Path, image: ImageTail, train: Corpus, val: Corpus, spliced: list[str]) -> Targets:
        """The trained teacher's vectors; ``image`` has the teacher's weights afterwards."""
        config = self.config
        text = MiniLmTower(
            config.model.embed_dim, trained_layers=config.teacher.trained_layers, rate=config.teacher.dropout
        )
        teacher = Teacher(image, text, config)
        run_stage(
            out / "teacher",
            teacher,
            teacher_stage.teacher_batches(teacher, train, config),
            val,
            steps=config.teacher.steps,
            rates=(config.teacher.learning_rate, config.teacher.slow_learning_rate, teacher_stage.SLOW),
            weight_decay=config.teacher.weight_decay,
            settings=config.train,
            seed=config.seed,
        )
        path = out / _TARGETS_FILE
        if not path.exists():
            logger.info("teacher's vectors: %d captions, %d made texts", len(train.captions), len(spliced))
            plain = encode_pictures(image, train, view=0)
            mirrored = encode_pictures(image, train, view=min(1, train.cache.views - 1))
            tensors = {
                "captions": teacher.encode_captions(train),
                "spliced": teacher.encode_texts(spliced),
                "pictures": plain,
                "bank": unit(plain + mirrored),
            }
            draft = path.with_suffix(".partial")
            safetensors.torch.save_file({name: tensor.half() for name, tensor in tensors.items()}, draft)
            draft.rename(path)
        return Targets(**safetensors.torch.load_file(path))

    def _text_tower(self, model: Any, tokenizer: Tokenizer) -> TextTower:
        settings = self.config.model
        if settings.text_start_layers:
            pieces = {piece: number for number, piece in enumerate(bert_vocabulary().read_text("utf-8").splitlines())}
            known = [pieces[str(tokenizer.id_to_token(number))] for number in range(tokenizer.get_vocab_size())]
            start_from_minilm(model, load_minilm(), known, settings.text_start_layers)
        return TextTower(model, self.config.student.dropout)

    # --- what goes in and what comes out ------------------------------------------------------------------------

    def _resolved(self) -> str:
        return yaml.safe_dump({"task": "scorer", **self.config.model_dump(mode="json")}, sort_keys=False)

    def _tokenizer(self, dataset: Dataset) -> Tokenizer:
        captions = (caption for example in dataset.split("train") for caption in example.captions)
        settings = self.config.model
        return build_tokenizer(
            captions, bert_vocabulary(), min_count=settings.min_piece_count, always=[settings.prefix]
        )

    def _corpus(self, out: Path, dataset: Dataset, split: str, tokenizer: Tokenizer) -> Corpus:
        config = self.config
        views = config.views if split == "train" else config.views.model_copy(update={"count": 1})
        cache = cache_features(
            out.parent / "features",
            dataset.split(split),
            vision=config.model.vision,
            image_size_px=config.model.image_size_px,
            tokenizer=tokenizer,
            views=views,
            seed=config.seed,
        )
        return build_corpus(dataset.split(split), cache)

"""The task ``captioner``: trains a compact captioner and writes its checkpoint folder."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn
from transformers import TrainingArguments

from models.card import FilePart, Measurement, WeightsCard
from models.decoding import parse_decode
from models.families.compact import CompactCaptioner
from models.families.compact.config import CompactConfig
from training.augment import ViewOptions
from training.averaging import trained_tensors
from training.batches import CaptionItems, StepBatches
from training.captioner_config import CaptionerConfig, TrainSettings
from training.data import Dataset, Example, read_dataset
from training.features import FeatureCache, build_cache
from training.git_revision import git_revision
from training.objectives import build_objective
from training.packages import bert_vocabulary, load_imagenet, word_piece_vectors
from training.run_folder import claim
from training.tokenizer import build_tokenizer
from training.trainer import CaptionTrainer, TrainedModule, checkpoints, load_best, read_best
from training.validation import Validation

logger = logging.getLogger(__name__)


class CaptionerTask:
    """One training run of a compact captioner."""

    Config = CaptionerConfig

    def __init__(self, config: CaptionerConfig) -> None:
        self.config = config
        # Built now, so that wrong options are told at once and not after the features are computed.
        self._objective = build_objective(config.objective.name, config.objective.options)
        self._strategy = parse_decode(None, config.select.decode)
        parse_decode(None, config.decoding)

    def run(self, out: Path) -> Path:
        """Train in ``out``, continuing what is there, and return the checkpoint folder ``out/ID``.

        Raises:
            DataError: the data cannot be used, or the loss is not finite.
            ImageError: a picture cannot be read.
            MissingDependencyError: a package with the weights to start from, or Java where asked for, is absent.
        """
        settings = self.config.train
        if settings.threads:
            torch.set_num_threads(settings.threads)
        torch.manual_seed(self.config.seed)
        claim(out, self._resolved())
        self._features_folder = out.parent / "features"  # runs side by side share it
        dataset = read_dataset(self.config.data.format, self.config.data.options, splits=["train", "val"])
        logger.info("data: %s", dataset.report.summary())
        train, val = dataset.split("train"), dataset.split("val")
        captioner = self._build(train)
        trainer = self._trainer(out, captioner, train, val)
        found = checkpoints(out)
        if not found or found[-1].name != f"checkpoint-{len(trainer.batches)}":
            trainer.train(resume_from_checkpoint=str(found[-1]) if found else None)
        load_best(out, trainer.module)
        best = read_best(out)
        assert best is not None  # the last step of a run always validates
        folder = out / self.config.id
        captioner.eval().save(folder, self._card_maker(dataset, best["values"]), {"recipe.yaml": self._resolved()})
        return folder

    def _resolved(self) -> str:
        return yaml.safe_dump({"task": "captioner", **self.config.model_dump(mode="json")}, sort_keys=False)

    def _build(self, train: Sequence[Example]) -> CompactCaptioner:
        model = self.config.model
        captions = (caption for example in train for caption in example.captions)
        tokenizer = build_tokenizer(
            captions, bert_vocabulary(), min_count=model.min_piece_count, always=model.keep_pieces_of
        )
        fields = {name: value for name, value in model.model_dump().items() if name in CompactConfig.model_fields}
        config = CompactConfig(vocab_size=tokenizer.get_vocab_size(), **fields)
        captioner = CompactCaptioner(config, tokenizer, model.dropout)
        captioner.model.feature_dropout.p = model.feature_dropout
        if self.config.word_vectors == "minilm":
            numbers = tokenizer.get_vocab()
            pieces = sorted(numbers, key=numbers.__getitem__)
            captioner.model.token_embedding.weight.data.copy_(word_piece_vectors(pieces, config.width))
        load_imagenet(captioner.model.vision, model.vision)
        captioner.model.vision.to(memory_format=torch.channels_last)
        captioner.model.vision.requires_grad_(False)
        if self.config.train.vision_learning_rate:
            captioner.model.vision.top.requires_grad_(True)
        return captioner

    def _trainer(
        self, out: Path, captioner: CompactCaptioner, train: Sequence[Example], val: Sequence[Example]
    ) -> CaptionTrainer:
        config, settings = self.config, self.config.train
        plain = config.views.model_copy(update={"count": 1})
        caches = (self._cache(captioner, train, config.views), self._cache(captioner, val, plain))
        items, val_items = (
            CaptionItems(captioner, examples, cache, max_tokens=settings.max_caption_tokens, seed=config.seed)
            for examples, cache in zip((train, val), caches, strict=True)
        )
        batches = StepBatches(len(train), settings.images_per_step, settings.epochs, config.seed)
        validation = Validation(val_items, caches[1], val, self._strategy)
        module = TrainedModule(captioner, self._objective)
        return CaptionTrainer(
            module,
            self._arguments(out, batches.steps_per_epoch),
            items,
            batches,
            validation,
            groups=_parameter_groups(module, settings),
            average_decay=settings.average_decay,
            select_by=config.select.metric,
        )

    def _cache(self, captioner: CompactCaptioner, examples: Sequence[Example], views: ViewOptions) -> FeatureCache:
        logger.info("features: %d pictures x %d views", len(examples), views.count)
        return build_cache(self._features_folder, captioner, examples, views, self.config.seed)

    def _arguments(self, out: Path, steps_per_epoch: int) -> TrainingArguments:
        settings = self.config.train
        return TrainingArguments(
            output_dir=str(out),
            seed=self.config.seed,
            num_train_epochs=1,  # of the batch order, which holds every epoch
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine_with_min_lr",
            lr_scheduler_kwargs={"min_lr_rate": settings.final_rate},
            warmup_steps=settings.warmup_steps,
            max_grad_norm=settings.max_grad_norm,
            bf16=settings.bf16,
            use_cpu=not torch.cuda.is_available(),
            eval_strategy="steps",
            eval_steps=steps_per_epoch,
            save_strategy="steps",
            save_steps=settings.save_every_steps or steps_per_epoch,
            logging_steps=settings.log_every_steps,
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )

    def _card_maker(self, dataset: Dataset, values: Mapping[str, float]) -> Any:
        config, report = self.config, dataset.report
        source = config.data.source(report)
        measured = Measurement(
            split="val", images=report.images["val"], values=dict(values), decoding=config.select.decode
        )

        def make(parts: dict[str, FilePart], files: dict[str, str]) -> WeightsCard:
            return WeightsCard(
                id=config.id,
                description=config.description,
                licence=config.licence,
                family=CompactCaptioner.family,
                decoding=config.decoding,
                objective=config.objective,
                data=[source],
                origin=[
                    f"{config.model.vision}, ImageNet weights (Apache-2.0)",
                    "BERT-uncased word pieces, all-MiniLM-L6-v2 word vectors (Apache-2.0)",
                ],
                seed=config.seed,
                git_revision=git_revision(),
                measurements=[measured],
                files=files,
                parts=dict(parts),
            )

        return make


def _parameter_groups(module: nn.Module, settings: TrainSettings) -> list[dict[str, Any]]:
    """Matrices with weight decay, vectors without, the encoder's at a rate of their own."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in trained_tensors(module).items():
        groups.setdefault(("vision." in name, parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": settings.vision_learning_rate if vision else settings.learning_rate,
            "weight_decay": settings.weight_decay if matrix else 0.0,
        }
        for (vision, matrix), parameters in groups.items()
    ]

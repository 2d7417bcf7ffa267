"""The task ``captioner``: trains a captioner and writes its checkpoint folder."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn
from transformers import TrainingArguments

from models.clip_scorer import load_scorer
from models.decoding import parse_decode
from models.families.base import TorchCaptioner
from training import workers
from training.augment import ViewOptions
from training.averaging import trained_tensors
from training.batches import CaptionItems, StepBatches, collator
from training.caption_trainer import CaptionTrainer, TrainedModule
from training.captioner_card import card_maker
from training.captioner_config import CaptionerConfig, TrainSettings
from training.consensus import keep_agreeing
from training.data import Dataset, Example, read_dataset
from training.features import FeatureCache, build_cache
from training.negatives import NegativeSampler, nearest_images
from training.objectives import choose_objective
from training.objectives.interface import Resources
from training.resources import build_resources, scorer_features
from training.run_folder import claim
from training.starting_point import starting_captioner
from training.trainer import checkpoints, load_best, read_best
from training.uncertain import keep_pairs
from training.validation import Validation, ValidationScorer

logger = logging.getLogger(__name__)


class CaptionerTask:
    """One training run of a captioner."""

    Config = CaptionerConfig

    def __init__(self, config: CaptionerConfig) -> None:
        self.config = config
        # Checked now, so that wrong options are told at once and not after the features are computed.
        self._objective = choose_objective(config.objective.name, config.objective.options)
        self._strategy = parse_decode(None, config.select.decode)
        self._own_strategy = parse_decode(None, config.decoding)

    def run(self, out: Path) -> Path:
        """Train in ``out``, continuing what is there, and return the checkpoint folder ``out/ID``.

        Raises:
            DataError: the data cannot be used, or the loss is not finite.
            ImageError: a picture cannot be read.
            CheckpointError: the captioner to start from, a teacher or a scorer cannot be loaded.
            RequestError: ``unsupported_option``, guidance of a captioner that has no null memory.
            MissingDependencyError: a package with the weights to start from, Java or TensorBoard where asked for, is
                absent.
        """
        config = self.config
        if config.train.threads:
            torch.set_num_threads(config.train.threads)
        torch.manual_seed(config.seed)
        with workers.first_alone():  # the others then find the features that it computed
            claim(out, self._resolved())
            dataset, trainer = self._prepared(out)
        found = checkpoints(out)
        if not found or found[-1].name != f"checkpoint-{len(trainer.batches)}":
            trainer.train(resume_from_checkpoint=str(found[-1]) if found else None)
        return workers.from_first(lambda: self._write(out, trainer, dataset))

    def _prepared(self, out: Path) -> tuple[Dataset, CaptionTrainer]:
        """The data, and a trainer of the captioner to start from."""
        config = self.config
        self._features_folder = out.parent / "features"  # runs side by side share it
        dataset = read_dataset(config.data.format, config.data.options, splits=["train", "val"])
        logger.info("data: %s", dataset.report.summary())
        train, val = self._kept(dataset.split("train")), dataset.split("val")
        captioner = starting_captioner(config, train)
        for strategy in (self._strategy, self._own_strategy):
            strategy.check(captioner)
        resources = build_resources(self._objective, captioner, train, config.seed, self._features_folder)
        module = TrainedModule(captioner, self._objective.build(resources))
        return dataset, self._trainer(out, module, resources, train, val)

    def _write(self, out: Path, trainer: CaptionTrainer, dataset: Dataset) -> Path:
        """The folder of the best weights."""
        captioner = trainer.captions.captioner
        load_best(out, trainer.captions)
        best = read_best(out)
        assert best is not None  # the last step of a run always validates
        folder = out / self.config.id
        make_card = card_maker(self.config, captioner.family, dataset, best["values"])
        captioner.eval().save(folder, make_card, {"recipe.yaml": self._resolved()})
        return folder

    def _kept(self, train: Sequence[Example]) -> Sequence[Example]:
        if agreeing := self.config.data.agreeing:
            train = keep_agreeing(train, agreeing)
            count = sum(len(example.captions) for example in train)
            logger.info("%d captions are kept by their agreement with the others of their picture", count)
        pairs = self.config.data.uncertain
        if pairs is None:
            return train
        scorer = load_scorer(pairs.scorer)
        kept = keep_pairs(train, pairs, scorer, scorer_features(self._features_folder, scorer, train))
        count = sum(len(example.captions) for example in kept)
        logger.info("%d captions of %d pictures are kept by the entropy of their retrieval", count, len(kept))
        return kept

    def _resolved(self) -> str:
        return yaml.safe_dump({"task": "captioner", **self.config.model_dump(mode="json")}, sort_keys=False)

    def _trainer(
        self,
        out: Path,
        module: TrainedModule,
        resources: Resources,
        train: Sequence[Example],
        val: Sequence[Example],
    ) -> CaptionTrainer:
        config, settings, captioner = self.config, self.config.train, module.captioner
        train_cache = self._cache(captioner, train, config.views)
        val_cache = self._cache(captioner, val, config.views.model_copy(update={"count": 1}))
        shared: dict[str, Any] = {"max_tokens": settings.max_caption_tokens, "seed": config.seed}
        negatives = self._negatives(train, resources)
        per_image = settings.captions_per_image
        items = CaptionItems(captioner, train, train_cache, captions_per_image=per_image, negatives=negatives, **shared)
        val_items = CaptionItems(captioner, val, val_cache, **shared)
        part = {"worker": workers.number(), "workers": workers.count()}
        batches = StepBatches(len(train), settings.images_per_step, settings.epochs, config.seed, **part)
        return CaptionTrainer(
            module,
            self._arguments(out, batches.steps_per_epoch),
            items,
            batches,
            Validation(val_items, val_cache, val, self._strategy, self._scorer(val)),
            collate=collator(packed="packing" in captioner.capabilities),
            groups=_parameter_groups(module, settings),
            average_decay=settings.average_decay,
            select=config.select,
            patience=settings.patience,
            tensorboard=settings.tensorboard,
        )

    def _cache(self, captioner: TorchCaptioner, examples: Sequence[Example], views: ViewOptions) -> FeatureCache:
        logger.info("features: %d pictures x %d views", len(examples), views.count)
        return build_cache(self._features_folder, captioner, examples, views, self.config.seed)

    def _negatives(self, train: Sequence[Example], resources: Resources) -> NegativeSampler | None:
        options = self._objective.negatives
        if options is None:
            return None
        nearest = None
        if options.hard_share:
            assert resources.image_features is not None
            unit = nn.functional.normalize(resources.image_features, dim=-1)
            nearest = nearest_images(unit, options.neighbours)
        return NegativeSampler(train, options, self.config.seed, nearest)

    def _scorer(self, val: Sequence[Example]) -> ValidationScorer | None:
        if self.config.select.scorer is None:
            return None
        scorer = load_scorer(self.config.select.scorer)
        return ValidationScorer(scorer, scorer_features(self._features_folder, scorer, val))

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


def _parameter_groups(module: TrainedModule, settings: TrainSettings) -> list[dict[str, Any]]:
    """Matrices with weight decay, vectors without, the encoder's at a rate of their own."""
    encoder = {id(parameter) for parameter in module.captioner.train_encoder(bool(settings.vision_learning_rate))}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in trained_tensors(module).values():
        groups.setdefault((id(parameter) in encoder, parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": settings.vision_learning_rate if vision else settings.learning_rate,
            "weight_decay": settings.weight_decay if matrix else 0.0,
        }
        for (vision, matrix), parameters in groups.items()
    ]

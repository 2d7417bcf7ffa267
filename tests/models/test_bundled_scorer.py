"""The scorer that is shipped: small, complete, and loaded by open_clip alone without a network."""

import subprocess
import sys
from pathlib import Path

import pytest

from models.card import CARD_FILE, ScorerCard, read_card
from models.catalog import BUNDLED, DEFAULT_SCORER
from models.clip_scorer import load_scorer
from models.file_hashes import sha256_of

FOLDER = BUNDLED / DEFAULT_SCORER
MAX_BYTES = 20_000_000

ALONE = """
import sys, open_clip, torch
model, _, preprocess = open_clip.create_model_and_transforms("local-dir:" + sys.argv[1])
ids = open_clip.get_tokenizer("local-dir:" + sys.argv[1])(["a dog runs through the snow"])
assert model.eval().encode_text(ids).isfinite().all()
assert not any(name.split(".")[0] in ("models", "training") for name in sys.modules)
"""


def test_it_is_small_and_complete() -> None:
    files = {path.name for path in FOLDER.iterdir()}
    assert {CARD_FILE, "open_clip_config.json", "open_clip_model.safetensors", "tokenizer.json"} <= files
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MAX_BYTES


def test_open_clip_loads_it_alone_and_offline(tmp_path: Path) -> None:
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(FOLDER)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_its_card_states_prefix_weight_range_and_terms() -> None:
    card = read_card(FOLDER)
    assert isinstance(card, ScorerCard)
    assert (card.id, card.prefix, card.weight) == (DEFAULT_SCORER, "A photo depicts ", 2.5)
    assert card.score_range is not None and 0 < card.score_range[0] < card.score_range[1] < 2.5
    assert card.data and card.data[0].terms and "non-commercial" in card.licence


def test_it_tells_what_a_caption_says() -> None:
    scorer = load_scorer(DEFAULT_SCORER, device="cpu")
    dog, same, other = scorer.encode_texts(
        ["A dog runs through the snow", "a brown dog is running in snow", "two men play guitar on a stage"]
    )
    assert float(dog @ same) > float(dog @ other) + 0.3


def test_it_shares_the_captioners_tokenizer() -> None:
    captioner = BUNDLED / "concise" / "tokenizer.json"
    if not captioner.exists():
        pytest.skip("no captioner is bundled")
    assert sha256_of(captioner) == sha256_of(FOLDER / "tokenizer.json")

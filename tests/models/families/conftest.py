"""Tiny checkpoint folders, made once per test session."""

from pathlib import Path

import pytest

from tests.models.families.tiny_models import save_blip, save_vit_bert, save_vit_gpt2
from tests.models.families.tiny_vlms import save_llava


@pytest.fixture(scope="session")
def blip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_blip(tmp_path_factory.mktemp("hub") / "blip")


@pytest.fixture(scope="session")
def vit_gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vit_gpt2(tmp_path_factory.mktemp("hub") / "vit_gpt2")


@pytest.fixture(scope="session")
def vit_bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vit_bert(tmp_path_factory.mktemp("hub") / "vit_bert")


@pytest.fixture(scope="session")
def llava_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llava(tmp_path_factory.mktemp("hub") / "llava")

import open_clip
import pytest
import torch
from transformers import BertConfig, BertModel

from training.scorer.config import Config
from training.scorer.dual_encoder import ImageTail, TextTower, build_dual_encoder, start_from_minilm

IDS = [[2, 7, 8, 3], [2, 9, 3], [2, 5, 6, 7, 8, 9, 3]]


def _settings(**model: object) -> dict[str, object]:
    data = {"name": "none", "terms": "none", "options": {}}
    small = {"image_size_px": 64, "embed_dim": 8, "text_width": 32, "text_heads": 2, "context_length": 12}
    config = Config.model_validate(
        {"id": "x", "description": "x", "licence": "x", "data": data, "model": {**small, **model}}
    )
    return config.open_clip_config(vocab_size=20, end_id=3)


@pytest.fixture(scope="module")
def model() -> open_clip.CLIP:
    torch.manual_seed(0)
    return build_dual_encoder(_settings()).eval()


def test_the_tail_on_block_outputs_equals_open_clips_own_tower(model: open_clip.CLIP) -> None:
    pixels = torch.randn(2, 3, 64, 64)
    trunk = model.visual.trunk
    with torch.no_grad():
        blocks = trunk.blocks(trunk.bn1(trunk.conv_stem(pixels)))
        tail = ImageTail(model.visual, cells=2, pooled_dropout=0.5, hidden_dropout=0.5).eval()
        torch.testing.assert_close(tail(blocks.flatten(2).transpose(1, 2)), model.encode_image(pixels))


def test_the_tower_at_batch_length_equals_open_clips_at_full_context(model: open_clip.CLIP) -> None:
    full = torch.tensor([row + [0] * (12 - len(row)) for row in IDS])
    with torch.no_grad():
        found = TextTower(model, 0.5).eval()(full[:, :7])
        torch.testing.assert_close(found, model.encode_text(full), atol=1e-5, rtol=1e-5)


def test_only_the_last_convolution_of_the_trunk_is_trained(model: open_clip.CLIP) -> None:
    trained = {name for name, tensor in model.visual.trunk.named_parameters() if tensor.requires_grad}
    assert trained == {"conv_head.weight", "bn2.weight", "bn2.bias"}


def test_cells_and_dropout_matter_in_training_only(model: open_clip.CLIP) -> None:
    grid = 20 * torch.randn(1, 4, 320)
    tail = ImageTail(model.visual, cells=2, pooled_dropout=0.0, hidden_dropout=0.0)
    assert torch.equal(tail.eval()(grid), tail(grid))
    assert len({tuple(tail.train()(grid)[0].tolist()) for _ in range(8)}) > 1


def test_the_start_from_bert_gives_its_first_layer_what_bert_gives_it() -> None:
    config = BertConfig(
        vocab_size=30, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=128
    )
    bert = BertModel(config).eval()
    with torch.no_grad():
        bert.embeddings.LayerNorm.bias.normal_(std=0.1)
    model = build_dual_encoder(_settings()).eval()
    pieces = list(range(5, 25))
    start_from_minilm(model, bert, pieces, [0, 2])
    ids = torch.tensor(IDS[:1])
    with torch.no_grad():
        wanted = bert.embeddings(torch.tensor(pieces)[ids])
        stream = model.token_embedding(ids) + model.positional_embedding[: ids.shape[1]]
        found = model.transformer.resblocks[0].ln_1(stream)
    assert torch.nn.functional.cosine_similarity(found, wanted, dim=-1).min() > 0.98
    block, layer = model.transformer.resblocks[1], bert.encoder.layer[2]
    assert torch.equal(block.attn.in_proj_weight[32:64], layer.attention.self.key.weight)
    assert torch.equal(block.ln_1.weight, bert.encoder.layer[1].output.LayerNorm.weight)
    assert torch.equal(block.mlp.c_proj.weight, layer.output.dense.weight)

import torch

from training.scorer.minilm import MiniLmTower, by_length, load_minilm, lower_states, pad_ids

TEXTS = ["a dog", "two men sit in a boat and laugh", "snow"]


def test_the_two_halves_equal_the_whole_model() -> None:
    tower = MiniLmTower(8, trained_layers=2, rate=0.1).eval()
    states = lower_states(tower, TEXTS)
    ids, mask = pad_ids(tower.tokenize(TEXTS))
    whole = load_minilm().eval()
    with torch.no_grad():
        wanted = whole(ids, attention_mask=mask.long(), output_hidden_states=True)
        padded, found_mask = states.pad([0, 1, 2])
        assert torch.equal(found_mask, mask)
        torch.testing.assert_close(padded[mask], wanted.hidden_states[4][mask], atol=5e-3, rtol=5e-3)
        upper = tower.encode_lower(ids, mask)
        for layer in tower.upper:
            upper = layer(upper, torch.zeros(mask.shape).masked_fill(~mask, -1e4)[:, None, None])
        torch.testing.assert_close(upper[mask], wanted.last_hidden_state[mask], atol=1e-4, rtol=1e-4)


def test_padding_changes_nothing() -> None:
    tower = MiniLmTower(8, trained_layers=1, rate=0.1).eval()
    states = lower_states(tower, TEXTS)
    with torch.no_grad():
        together = tower(*states.pad([0, 1, 2]))
        alone = torch.cat([tower(*states.pad([text])) for text in range(3)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_only_the_upper_layers_and_the_head_are_trained() -> None:
    tower = MiniLmTower(8, trained_layers=1, rate=0.1)
    trained = {name.split(".")[0] for name, tensor in tower.named_parameters() if tensor.requires_grad}
    assert trained == {"upper", "queries", "hidden", "out"}


def test_texts_of_like_length_travel_together() -> None:
    assert by_length([3, 1, 2, 9], 2) == [[1, 2], [0, 3]]

from training.scorer.splices import make_texts

CAPTIONS = ["A dog runs in the snow.", "Two men sit in a boat", "A girl jumps in the lake!", "no", "red"]


def test_equal_arguments_give_equal_texts() -> None:
    assert make_texts(CAPTIONS, 50, 1) == make_texts(CAPTIONS, 50, 1) != make_texts(CAPTIONS, 50, 2)


def test_texts_are_made_of_the_captions_words() -> None:
    words = set("a dog runs in the snow two men sit boat girl jumps lake and while".split())
    texts = make_texts(CAPTIONS, 300, 0)
    assert len(texts) == 300
    assert all(text and set(text.split()) <= words for text in texts)
    assert "a dog runs in a boat" in texts


def test_nothing_is_made_where_nothing_is_asked() -> None:
    assert make_texts(CAPTIONS, 0, 0) == []

"""The training script: deterministic, and the packaged file is of its making."""

from services.prompt import PromptEncoder
from services.prompt.encoder import CONTROL_TOKENS
from services.prompt.train_tokenizer import VOCABULARY, train

TEXTS = [
    "def answer(question):\n    return 42\n",
    "The answer to the question is forty-two. " * 3,
    "été 東京",
]


def test_equal_texts_train_equal_tokenizers() -> None:
    first, second = train(iter(TEXTS)), train(iter(TEXTS))
    assert first.to_str() == second.to_str()
    for text in TEXTS:
        assert first.decode(first.encode(text).ids) == text


def test_the_packaged_tokenizer_has_the_control_tokens_first() -> None:
    encoder = PromptEncoder.load()
    assert encoder.vocabulary == VOCABULARY
    assert [encoder.token_id(token) for token in CONTROL_TOKENS] == [0, 1, 2]
    assert encoder.decode([0, 1, 2]) == ""

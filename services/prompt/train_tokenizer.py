"""Trains the packaged tokenizer: `python -m services.prompt.train_tokenizer [OUT]`.

A byte-level BPE of 8,192 entries, learnt from what every Python installation carries: the language
reference (`pydoc_data.topics`, English prose) and the top-level modules of the standard library. Training
is deterministic, so one Python version always yields one file; another Python yields another vocabulary,
which is why the trained file is committed and the layout digest covers its content.
"""

import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from services.prompt.encoder import CONTROL_TOKENS

VOCABULARY = 8_192
PROSE_WEIGHT = 6
"""How often the prose is repeated against one pass over the code, so that words outnumber identifiers."""


def corpus(stdlib: Path) -> Iterator[str]:
    """Texts in a fixed order: prose first, then module sources by name."""
    prose = (stdlib / "pydoc_data" / "topics.py").read_text(encoding="utf-8").replace("\\n", "\n")
    for _ in range(PROSE_WEIGHT):
        yield prose
    for path in sorted(stdlib.glob("*.py")):
        if not path.name.startswith("_"):
            yield path.read_text(encoding="utf-8")


def train(texts: Iterator[str]) -> Tokenizer:
    """The trained tokenizer, control tokens first (ids 0, 1, ...)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main() -> None:
    """Write the tokenizer and say its digest on stderr."""
    default = Path(__file__).parent / "assets" / "tokenizer.json"
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    text = train(corpus(Path(sysconfig.get_paths()["stdlib"]))).to_str()
    out.write_text(text, encoding="utf-8")
    sys.stderr.write(f"{out} {len(text)} bytes sha256 {hashlib.sha256(text.encode()).hexdigest()}\n")


if __name__ == "__main__":
    main()

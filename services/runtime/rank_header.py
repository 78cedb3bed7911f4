"""How a request is pinned to a data-parallel rank, at SGLang's OpenAI routes and at vLLM's."""

from typing import Final

RANK_HEADER: Final = "x-data-parallel-rank"
"""Goes before what a request's body says (docs/decisions/0533)."""

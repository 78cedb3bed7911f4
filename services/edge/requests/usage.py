"""What an engine says it reused."""

from typing import Any


class ReuseReader:
    """Reads `usage.prompt_tokens_details.cached_tokens`.

    SGLang 0.5.10 sends null details both when nothing was cached and when it runs without
    `--enable-cache-report`; so null means 0 only from a worker that has reported a number before.
    """

    def __init__(self) -> None:
        self._reporting: set[str] = set()

    def cached_tokens(self, worker_id: str, usage: dict[str, Any] | None, choices: int) -> int | None:
        """Tokens reused, or None when it is not known.

        With several choices an engine sums over them, the later ones hitting the first: not known.
        """
        if usage is None:
            return None
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if isinstance(cached, int):
            self._reporting.add(worker_id)
            return max(0, cached) if choices == 1 else None
        return 0 if choices == 1 and worker_id in self._reporting else None

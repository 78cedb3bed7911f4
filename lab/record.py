"""What became of one request. All times are model ms."""

from dataclasses import dataclass

from lab.workload.request import Kind


@dataclass(frozen=True, slots=True)
class Record:
    """One request's outcome; `error` is empty when the whole answer came."""

    request_id: str
    region: str
    kind: Kind
    family: str
    sent_ms: float
    """Since the start of the replay."""
    late_ms: float
    """How much later than planned the client sent it."""
    ttft_ms: float | None = None
    """From sending to the first token; None when there was none."""
    e2e_ms: float | None = None
    """From sending to the end; None after an error."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the engine reused."""
    worker: str = ""
    worker_region: str = ""
    match_tokens: int = 0
    """The claim with which the edge chose the worker."""
    decision_us: int = 0
    error: str = ""

    @property
    def recomputed_tokens(self) -> int:
        """Prompt tokens that the engine computed."""
        return self.prompt_tokens - self.cached_tokens

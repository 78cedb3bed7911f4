"""Metrics of an edge: `kvcompass_edge_*`, every label from a closed set."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram

_TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8, 13, 21, 34, 60, 120)
_DECISION_US = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 20_000)
_ENCODE_S = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)


class Outcome(StrEnum):
    """How a request on the public listener ends: exactly one each."""

    OK = "ok"
    REJECTED = "rejected"
    """The edge found fault with the request: 4xx other than 401."""
    UNAUTHORIZED = "unauthorized"
    OVERLOADED = "overloaded"
    """503: the edge is full or not ready."""
    NO_WORKER = "no_worker"
    """503: nobody left to try."""
    ENGINE_REFUSED = "engine_refused"
    """The engine answered 4xx; passed on."""
    ENGINE_FAILED = "engine_failed"
    """The engine answered 5xx or broke before its first byte, and no other could be tried."""
    TIMEOUT = "timeout"
    CUT = "cut"
    """The answer broke after its first byte."""
    CANCELLED = "cancelled"
    """The client went away."""
    INTERNAL = "internal"
    """A fault of the edge; its log has it."""

    @classmethod
    def of_status(cls, status: int) -> "Outcome":
        """Of an engine's answer that was passed on whole."""
        if status < 400:
            return cls.OK
        return cls.ENGINE_REFUSED if status < 500 else cls.ENGINE_FAILED

    @classmethod
    def of_error(cls, status: int, code: str) -> "Outcome":
        """Of an error that the edge itself answered with."""
        if status == 401:
            return cls.UNAUTHORIZED
        if status == 503:
            return cls.NO_WORKER if code == "no_worker" else cls.OVERLOADED
        if status == 504:
            return cls.TIMEOUT
        return cls.REJECTED if status < 500 else cls.ENGINE_FAILED


class EdgeMetrics:
    """Counters of one edge, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"kvcompass_edge_{name}", what, labels, registry=registry)

        self.requests = counter(
            "requests_total", "Requests that ended, by route and outcome.", "route", "outcome"
        )
        self.ttft = Histogram(
            "kvcompass_edge_ttft_seconds",
            "From the request's arrival to the first byte of its answer.",
            ("route", "worker_region"),
            buckets=_TTFT_S,
            registry=registry,
        )
        self.decision = Histogram(
            "kvcompass_edge_decision_us",
            "Match, score and choice, without tokenization.",
            buckets=_DECISION_US,
            registry=registry,
        )
        self.encode = Histogram(
            "kvcompass_edge_encode_seconds",
            "Template, tokenization and keys.",
            buckets=_ENCODE_S,
            registry=registry,
        )
        self.decisions = counter(
            "decisions_total", "Decisions, by reason and region chosen.", "reason", "worker_region"
        )
        self.unkeyed = counter("unkeyed_requests_total", "Prompts routed without keys.", "reason")
        self.claimed = counter("claimed_tokens_total", "Tokens claimed by decisions.", "worker")
        self.reused = counter("reused_tokens_total", "Tokens engines said they reused.", "worker")
        self.prompt = counter(
            "prompt_tokens_total", "Prompt tokens of requests that were answered.", "worker"
        )
        self.retries = counter("retries_total", "Attempts after the first, by what went wrong.", "cause")
        self.peer_requests = counter(
            "peer_requests_total",
            "Requests of other regions' edges, by origin and outcome.",
            "origin",
            "outcome",
        )
        self.peer_moves = counter("peer_moves_total", "Of those, moved to a sibling of the named worker.")
        self.superseded = counter(
            "superseded_load_streams_total",
            "Open load streams whose place a newer one of the same sender took, by source and by whether the "
            "same process opened it or another.",
            "source",
            "process",
        )
        self.replica_asks = counter(
            "replica_asks_total",
            "Replicas that workers were asked to prefill, and that none could be.",
            "use",
        )
        self.replica_outcomes = counter(
            "replica_outcomes_total", "What became of replicas, as agents said.", "outcome"
        )
        self.loads = counter(
            "loads_total", "Load messages, by source and whether they were used.", "source", "use"
        )

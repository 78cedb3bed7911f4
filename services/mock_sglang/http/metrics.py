"""/metrics, under SGLang's names."""

from collections.abc import Callable

from services.mock_sglang.faults import FaultSwitches
from services.mock_sglang.load_report import LoadReport, RankLoad
from services.mock_sglang.settings import MockSettings

FAULTS_TOTAL = "kvcompass_mock_sglang_faults_total"

_SERIES: tuple[tuple[str, str, Callable[[RankLoad], float]], ...] = (
    ("num_running_reqs", "gauge", lambda load: load.model.running),
    ("num_queue_reqs", "gauge", lambda load: load.model.waiting),
    ("num_used_tokens", "gauge", lambda load: load.model.used_tokens),
    ("max_total_num_tokens", "gauge", lambda load: load.model.capacity_tokens),
    ("token_usage", "gauge", lambda load: load.usage),
    ("cache_hit_rate", "gauge", lambda load: load.hit_rate),
    ("gen_throughput", "gauge", lambda load: load.throughput),
    ("num_requests_total", "counter", lambda load: load.finished_requests),
    ("prompt_tokens_total", "counter", lambda load: load.model.prompt_tokens),
    ("cached_tokens_total", "counter", lambda load: load.model.cached_tokens),
    ("generation_tokens_total", "counter", lambda load: load.model.generated_tokens),
)


def metrics(settings: MockSettings, report: LoadReport, faults: FaultSwitches) -> bytes:
    """The text format, with SGLang's counters and none of its histograms; faults where they are on."""
    model = settings.model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    text = ""
    for name, kind, value in _SERIES:
        text += f"# TYPE sglang:{name} {kind}\n"
        for load in report.ranks:
            rank = f',dp_rank="{load.dp_rank}"' if settings.dp_size > 1 else ""
            text += f'sglang:{name}{{model_name="{model}"{rank}}} {value(load)}\n'
    if settings.fault_switches:
        text += f"# TYPE {FAULTS_TOTAL} counter\n"
        for fault, count in sorted(faults.counts.items()):
            text += f'{FAULTS_TOTAL}{{fault="{fault}"}} {count}\n'
    return text.encode()

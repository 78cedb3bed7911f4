"""The steps of a run, in order. Each fills in its figures; a failed one does not keep others from running."""

import asyncio
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

from kvcompass.plan.model import Plan
from lab.compose_test.engine import Compose, EngineError
from lab.compose_test.figures import Figures
from lab.compose_test.front import Front, StepFailedError, wait_until
from lab.compose_test.idle_path import cross_after_silence
from lab.compose_test.kills import kill_each
from lab.compose_test.reuse import cut_off, reuse_across
from lab.compose_test.round_trips import RoundTrip, measure_round_trips
from lab.compose_test.users import Users
from lab.dashboards.verify import verify

START_LIMIT_S = 300.0
_HITS = "sum(kvcompass_edge_cross_region_hits_total)"
_TIMEOUT_S = 10.0


@dataclasses.dataclass(slots=True)
class Paces:
    """Everything a run needs, and what it has seen."""

    compose: Compose
    front: Front
    plan: Plan
    prometheus: str
    """Base URL."""
    dashboard: Path
    services: Sequence[str]
    """Those that are up."""
    say: Callable[[str], None]
    figures: Figures = dataclasses.field(default_factory=Figures)
    round_trips: Mapping[str, RoundTrip] = dataclasses.field(default_factory=dict)

    def run(self) -> None:
        """Runs every step. Errors: StepFailedError when the lab does not come up, EngineError then too."""
        self._up()
        users = Users(self.front)
        with users:
            for step in (self._wan, self._silence, self._reuse, self._load, self._cut, self._dashboards):
                self._guarded(step.__name__.strip("_"), step)
            self._guarded("kills", lambda: self._kills(users))
        figures = self.figures
        figures.users_requests = users.asked
        figures.errors += users.errors.total()
        figures.error_messages = dict(users.errors)

    def _guarded(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except (StepFailedError, EngineError, httpx.HTTPError) as error:
            self.figures.broken.append(f"{name}: {error}")
            self.say(f"{name}: {error}")

    def _up(self) -> None:
        began = time.monotonic()
        self.compose.up(self.services)
        wait_until(self.front.whole, START_LIMIT_S, "every edge is ready and sees the whole fleet")
        self.figures.up_s = round(time.monotonic() - began, 1)
        self.say(f"up after {self.figures.up_s:g} s: every edge is ready and sees the whole fleet")

    def _wan(self) -> None:
        self.round_trips = measure_round_trips(self.compose, self.plan)
        self.figures.wan_ms = {pair: trip.measured_ms for pair, trip in self.round_trips.items()}
        self.figures.wan_error_ms = {pair: trip.error_ms for pair, trip in self.round_trips.items()}
        for pair, trip in self.round_trips.items():
            self.say(f"round trip {pair}: {trip.measured_ms:g} ms, planned {trip.planned_ms:g} ms")

    def _silence(self) -> None:
        idle_path = cross_after_silence(self.compose, self.plan, "us", "asia")
        self.figures.idle_path = idle_path
        self.say(
            f"64 KB to asia after {idle_path['idle_s']:g} s of silence: {idle_path['after_idle_ms']:.1f} ms"
        )

    def _reuse(self) -> None:
        reuse = reuse_across(self.front, "us", "asia")
        self.figures.reuse = dataclasses.asdict(reuse)
        self.say(
            f"asia reused {reuse.reused_tokens:,} of {reuse.prompt_tokens:,} tokens at {reuse.holder}, "
            f"{reuse.learned_s:g} s after us was answered"
        )

    def _load(self) -> None:
        self.say("the load generator runs")
        # It fails when a request does.
        row = json.loads(self.compose.run("load", "--json=-").splitlines()[-1])["total"]
        self.figures.load = row
        self.say(f"load: {row['requests']:,} requests, TTFT P50 {row['ttft_ms']['p50']:,.0f} ms")

    def _cut(self) -> None:
        partition = cut_off(self.compose, self.front, "asia", "us")
        self.figures.partition = dataclasses.asdict(partition)
        self.say(
            f"asia cut off: noticed after {partition.noticed_s:g} s, whole {partition.healed_s:g} s later"
        )

    def _dashboards(self) -> None:
        wait_until(lambda: self._hits() > 0, 30.0, "Prometheus counts a cross-region hit")
        self.figures.cross_region_hits = self._hits()
        dashboard = json.loads(self.dashboard.read_text("utf-8"))
        seen = asyncio.run(verify(self.prometheus, dashboard))
        self.figures.panels_total = seen.panels_total
        self.figures.panels_with_data = seen.panels_with_data
        self.figures.panels_empty = [f"{each.panel}: {each.why}" for each in seen.empty]
        self.say(f"dashboard: {seen.panels_with_data} of {seen.panels_total} panels have data")

    def _kills(self, users: Users) -> None:
        for service, took_s in kill_each(self.compose, self.front, self.plan, users, list(self.services)):
            self.figures.recovery_s[service] = took_s
            self.say(f"{service} killed: all well after {took_s:g} s")

    def _hits(self) -> int:
        answer = httpx.get(
            f"{self.prometheus}/api/v1/query", params={"query": _HITS}, timeout=_TIMEOUT_S, trust_env=False
        ).raise_for_status()
        result = answer.json()["data"]["result"]
        return round(float(result[0]["value"][1])) if result else 0

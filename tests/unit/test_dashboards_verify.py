"""`lab.dashboards.verify` against a Prometheus that gives canned answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web

from lab.dashboards.verify import Empty, questions, substituted, verify

GAUGE = "kvcompass_edge_ready"


def panel(number: int, *expressions: str) -> dict[str, Any]:
    return {"id": number, "title": f"panel {number}", "targets": [{"expr": each} for each in expressions]}


@asynccontextmanager
async def prometheus(answers: dict[str, list[str]]) -> AsyncIterator[str]:
    """Expression -> values; one that is not among them has no series, and `broken` is refused."""

    async def query(request: web.Request) -> web.Response:
        expression = (await request.post())["query"]
        if expression == "broken":
            refusal = {"status": "error", "errorType": "bad_data", "error": "parse error"}
            return web.json_response(refusal, status=400)
        found = [{"metric": {}, "value": [0, value]} for value in answers.get(str(expression), [])]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": found}})

    async def ready(_request: web.Request) -> web.Response:
        return web.Response(text="ready")

    app = web.Application()
    app.add_routes([web.post("/api/v1/query", query), web.get("/-/ready", ready)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_panel_has_data_when_every_expression_gives_a_number() -> None:
    document = {
        "panels": [
            {"id": 9, "title": "a row", "type": "row"},
            panel(1, "a", "b"),
            panel(2, "a", "nan"),
            panel(3, "broken"),
            panel(4, GAUGE),
            panel(5, f"{GAUGE} > 1"),
            panel(6, "mixed"),
        ]
    }
    answers = {"a": ["1"], "b": ["0"], "nan": ["NaN", "NaN"], "mixed": ["NaN", "2"]}
    async with prometheus(answers) as url:
        found = await verify(url, document)
    assert (found.panels_total, found.panels_with_data) == (6, 2)
    assert found.empty == (
        Empty(2, "panel 2", "nan", "only NaN: nothing was observed within the window"),
        Empty(3, "panel 3", "broken", "bad_data: parse error"),
        Empty(4, "panel 4", GAUGE, f"no series of {GAUGE}"),
        Empty(5, "panel 5", f"{GAUGE} > 1", f"no series of {GAUGE}"),
    )
    assert found.as_json()["empty"][0]["panel_id"] == 2


async def test_series_that_an_expression_leaves_out_are_told_from_series_that_are_missing() -> None:
    async with prometheus({f'count({{__name__="{GAUGE}"}})': ["3"]}) as url:
        found = await verify(url, {"panels": [panel(1, f"{GAUGE} > 1")]})
    assert [each.why for each in found.empty] == ["series exist, and none is left by the expression"]


async def test_silence_of_prometheus_is_an_error_and_not_an_empty_dashboard(unused_tcp_port: int) -> None:
    with pytest.raises(httpx.HTTPError):
        await verify(f"http://127.0.0.1:{unused_tcp_port}", {"panels": [panel(1, "a")]})


def test_variables_are_filled_in() -> None:
    asked = [*questions({"panels": [panel(1, 'rate(x{region=~"$region"}[$__rate_interval])')]})]
    assert asked[0].expression == 'rate(x{region=~".*"}[1m])'
    assert "$" not in substituted("$region $__rate_interval")

"""The doctor at the engine double: each thing that is wrong with an engine is found, by its flag."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq.asyncio
from aiohttp import web

from kvcompass.engine_facts import EngineFacts, EventPublisher
from kvcompass.plan.dump import dump_plan
from kvcompass.plan.model import Plan
from kvcompass.self_test.verdict import Unheard
from services.mock_sglang.server import MockServer
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder
from services.runtime.grpc_transport import Dialer
from services.worker_agent.__main__ import main as agent_main
from services.worker_agent.doctor.check import Check, Mark
from services.worker_agent.doctor.command import main
from services.worker_agent.doctor.examination import UnaskedError, endpoints, examine
from services.worker_agent.doctor.facts_checks import Flags, Words, facts_checks
from services.worker_agent.doctor.own_reading import OwnReading
from services.worker_agent.doctor.patient import Named, PatientError, patient
from services.worker_agent.doctor.probe_checks import probe_checks, untold
from services.worker_agent.doctor.report import EXIT_UNASKED, as_json, as_lines, exit_status
from services.worker_agent.doctor.socket_checks import Heard, load_check, replay_check
from services.worker_agent.engine_client import EngineClient
from services.worker_agent.load_sources import reader
from tests.models.example_plan import THREE_REGIONS
from tests.models.ports import free_address

ENCODER = PromptEncoder.load()
MODEL = THREE_REGIONS.model.id
OTHER_TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"


@asynccontextmanager
async def engine(encoder: PromptEncoder = ENCODER, **changes: Any) -> AsyncIterator[MockServer]:
    settings = {
        "address": "127.0.0.1:0",
        "model": MODEL,
        "time_scale": 0.01,
        "event_endpoint": f"tcp://{free_address()}",  # SGLang before 0.5.23 says what it was told
        "replay_endpoint": f"tcp://{free_address()}",
    }
    server = MockServer(MockSettings(**{**settings, **changes}), encoder)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0.1)


def written(plan: Plan, folder: Path) -> Path:
    path = folder / "fleet.toml"
    path.write_text(dump_plan(plan), "utf-8")
    return path


async def found(url: str, plan: Path | None = None, **named: Any) -> dict[str, Check]:
    """Checks by name; of several of one name the worst."""
    if plan is not None:
        named = {"plan": plan, "worker": "worker-us-0", **named}
    who = patient(Named(engine=url, **named))
    reader = None if plan is None else OwnReading(who.plan, plan)
    checks: dict[str, Check] = {}
    async for check in examine(who, reader):
        before = checks.get(check.name)
        if before is None or before.mark is not Mark.FAIL:
            checks[check.name] = check
    return checks


async def of(
    server: MockServer, plan: Path | None = None, *, dialled: bool = True, **named: Any
) -> dict[str, Check]:
    if dialled and plan is not None:
        named = {"events": server.event_endpoint, "replay": server.replay_endpoint, **named}
    return await found(f"http://127.0.0.1:{server.port}", plan, **named)


def failing(checks: dict[str, Check]) -> set[str]:
    return {check.name for check in checks.values() if check.mark is Mark.FAIL}


@pytest.mark.parametrize("version", ["0.5.10", "0.5.11", "0.5.23"])
@pytest.mark.parametrize("with_plan", [False, True])
async def test_a_sound_engine_fails_nothing(tmp_path: Path, version: str, with_plan: bool) -> None:
    async with engine(event_profile=version) as server:
        checks = await of(server, written(THREE_REGIONS, tmp_path) if with_plan else None)
        assert failing(checks) == set()
        for name in (
            "answers",
            "version",
            "model",
            "fit",
            "load",
            "event socket",
            "replay",
            "probe",
            "reuse",
        ):
            assert checks[name].mark is Mark.OK, checks[name]
        assert ("are read as edges read them" in checks["probe"].said) == with_plan
        assert (checks["salts"].mark is Mark.OK) == (version == "0.5.23")


async def test_without_events_the_flag_is_said(tmp_path: Path) -> None:
    async with engine(event_endpoint="", replay_endpoint="") as server:
        plan = replace(
            THREE_REGIONS,
            workers=tuple(replace(each, events="", replay="") for each in THREE_REGIONS.workers),
        )
        for path in (None, written(plan, tmp_path)):
            checks = await of(server, path, dialled=False)
            assert failing(checks) == {"events"}
            assert "--kv-events-config" in checks["events"].fix
            assert "replay_endpoint" in checks["events"].fix
            assert checks["reuse"].mark is Mark.OK


async def test_an_event_port_where_nobody_listens_is_found(tmp_path: Path) -> None:
    async with engine() as server:
        checks = await of(server, written(THREE_REGIONS, tmp_path), events="tcp://127.0.0.1:9", replay="")
        assert failing(checks) == {"event socket"}
        assert "--kv-events-config" in checks["event socket"].fix


async def test_pages_that_do_not_fit_are_found(tmp_path: Path) -> None:
    async with engine(page_size=24) as server:
        checks = await of(server, written(THREE_REGIONS, tmp_path))
        assert "fit" in failing(checks)
        assert "--page-size 16" in checks["fit"].fix
    async with engine(page_size=1) as server:
        checks = await of(server, written(THREE_REGIONS, tmp_path))
        assert failing(checks) == set()
        assert "--page-size 16" in checks["advice"].fix


async def test_another_template_is_found_where_it_parts(tmp_path: Path) -> None:
    template = tmp_path / "other.jinja"
    template.write_text(OTHER_TEMPLATE)
    async with engine(PromptEncoder.load(chat_template="other.jinja", base_dir=tmp_path)) as server:
        checks = await of(server, written(THREE_REGIONS, tmp_path))
        assert failing(checks) == {"probe"}
        assert "chat template" in checks["probe"].said
        assert ">'<|im_start|>'<" in checks["probe"].said
        assert "--chat-template" in checks["probe"].fix


async def test_another_model_is_found(tmp_path: Path) -> None:
    async with engine(model="other") as server:
        checks = await of(server, written(THREE_REGIONS, tmp_path))
        assert failing(checks) == {"model", "probe"}
        assert f"--served-model-name {MODEL}" in checks["model"].fix


async def test_what_would_make_an_engine_better_is_said(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "enable_cache_report": False,
        "event_ring_batches": 5,
        "host_cache_tokens": 100_000,
    }
    async with engine(**changes) as server:
        checks = await of(server, written(THREE_REGIONS, tmp_path))
        assert failing(checks) == set()
        assert checks["reuse"].fix == "--enable-cache-report"
        assert "10000" in checks["buffer"].fix
        assert checks["priority"].fix == "--enable-priority-scheduling"
        assert checks["advice"].fix == "start it with --enable-cache-report"


async def test_a_ring_that_has_forgotten_its_beginning_is_said(tmp_path: Path) -> None:
    async with engine(event_ring_batches=1) as server:
        await of(server)
        checks = await of(server)
        assert checks["replay"].mark is Mark.WARN
        assert "flush_cache" in checks["replay"].fix


async def test_an_engine_of_ranks_is_examined_rank_by_rank(tmp_path: Path) -> None:
    async with engine(dp_size=2, event_endpoint="tcp://127.0.0.1:0", replay_endpoint="") as server:
        checks = await of(server, written(THREE_REGIONS, tmp_path))
        assert "fit" in failing(checks)
        assert "dp_rank" in checks["fit"].said
        ranks = tuple(
            replace(each, dp_rank=1 if each.id == "worker-us-0" else None) for each in THREE_REGIONS.workers
        )
        publisher = server.ranks.all[1].publisher
        assert publisher is not None
        path = written(replace(THREE_REGIONS, workers=ranks), tmp_path)
        checks = await of(server, path, events=publisher.endpoint, replay="")
        assert failing(checks) == set()
        assert "are read as edges read them" in checks["probe"].said


@pytest.mark.parametrize("page", [1, 48])
async def test_without_a_plan_pages_are_held_to_what_engines_should_have(page: int) -> None:
    async with engine(page_size=page) as server:
        checks = await of(server)
        assert "--page-size 16" in checks["fit" if page == 48 else "advice"].fix


async def test_without_a_plan_the_ranks_of_an_engine_are_asked_one_at_a_time() -> None:
    async with engine(dp_size=2, event_endpoint="", replay_endpoint="") as server:
        checks = await of(server)
        assert "dp_rank" in checks["fit"].said
        assert checks["reuse"].mark is Mark.OK, checks["reuse"]


def answered_by(**settings: Any) -> EngineFacts:
    return EngineFacts("sglang", "0.5.23", page_size=16, tells_publisher=True, **settings)


def fit_checks(facts: EngineFacts) -> dict[str, Check]:
    who = patient(Named(engine="http://h:1"))
    return {each.name: each for each in facts_checks(Words(facts, Flags(), [MODEL]), who)}


def test_what_is_to_be_changed_is_said_once_and_is_what_helps() -> None:
    decode = fit_checks(answered_by(part="decode", prefix_cache=False))["events"]
    assert decode.fix == "plan the prefill half"
    assert "--" not in decode.said
    off = fit_checks(answered_by(prefix_cache=False))["events"]
    assert off.fix == "start it without --disable-radix-cache"
    silent = fit_checks(answered_by())["events"]
    assert "--kv-events-config" in silent.fix
    assert "--kv-events-config" not in silent.said


async def test_half_of_a_pair_is_not_tested_and_fails_nothing() -> None:
    who = patient(Named(engine="http://h:1"))
    async with EngineClient("http://127.0.0.1:9", api_key="", timeout_ms=100) as client:
        checks = [check async for check in probe_checks(client, None, answered_by(part="prefill"), who, None)]
    assert [(check.name, check.mark) for check in checks] == [("probe", Mark.WARN)]


@pytest.mark.parametrize("publisher", [None, EventPublisher("tcp://*:5557", "tcp://*:5657")])
def test_an_engine_that_has_the_flag_is_not_told_to_add_it(publisher: EventPublisher | None) -> None:
    who = patient(Named(engine="http://h:1"))
    check = untold(Heard(), answered_by(publisher=publisher), who, Unheard.NOTHING)
    assert ("--kv-events-config" in check.fix) == (publisher is None)
    assert ("restart it" in check.fix) == (publisher is not None)


async def test_a_replay_that_the_engine_says_it_has_and_that_is_stuck_wants_a_restart() -> None:
    context = zmq.asyncio.Context()
    try:
        for told in (True, False):
            check = await replay_check(context, f"tcp://{free_address()}", told=told)
            assert check.mark is Mark.FAIL
            assert ("restart it" in check.fix) == told
    finally:
        context.destroy(linger=0)


@asynccontextmanager
async def answering(routes: Mapping[str, Any]) -> AsyncIterator[str]:
    """Answers some routes: with JSON, or after the seconds that a number says."""
    app = web.Application()

    def add(path: str, body: Any) -> None:
        async def reply(_request: web.Request) -> web.Response:
            if isinstance(body, float):
                await asyncio.sleep(body)
            return web.json_response(body)

        app.router.add_get(path, reply)

    for path, body in routes.items():
        add(path, body)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_an_engine_that_hides_what_it_is_does_run() -> None:
    async with answering({"/v1/models": {"data": [{"id": "m"}]}}) as url:
        with pytest.raises(UnaskedError, match="Let /server_info through") as caught:
            await found(url)
    assert "Does the engine run" not in str(caught.value)


async def test_a_load_that_comes_too_late_lacks_no_flag() -> None:
    who = patient(Named(engine="http://h:1"))
    context = zmq.asyncio.Context()
    try:
        for routes, flag in (({"/v1/loads": 1.0}, False), ({}, True)):
            async with answering(routes) as url, EngineClient(url, api_key="", timeout_ms=200) as client:
                check = await load_check(client, context, who, Dialer({}))
            assert check.mark is Mark.FAIL
            assert ("--enable-metrics" in check.fix) == flag
    finally:
        context.destroy(linger=0)


def test_an_engine_at_an_ipv6_address_publishes_there() -> None:
    facts = answered_by(publisher=EventPublisher("tcp://*:5557", "tcp://*:5657"))
    found_at = endpoints(facts, patient(Named(engine="http://[::1]:30000")))
    assert found_at == ("tcp://[::1]:5557", "tcp://[::1]:5657")


@pytest.mark.parametrize("version", ["9" * 5_000, "0.5.23\x1b[31m\n", "x" * 5_000])
def test_no_version_reaches_the_terminal_or_ends_the_doctor(version: str) -> None:
    checks = fit_checks(replace(answered_by(), version=version))
    lines = as_lines(list(checks.values()))
    assert lines.replace("\n", "").isprintable()
    assert len(lines.splitlines()) == len(checks) + 1
    assert all(len(line) < 2_000 for line in lines.splitlines())


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf", "soon"])
def test_a_time_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--engine", "http://h:1", "--timeout", seconds])
    assert "--timeout" in capsys.readouterr().err


async def test_who_says_nothing_in_time_was_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert await asyncio.to_thread(main, ["--engine", url, "--timeout", "0.3"]) == EXIT_UNASKED
    assert capsys.readouterr().err.startswith("--engine: nothing answers at")


async def test_an_engine_of_another_model_without_events_is_not_sent_for_a_template(tmp_path: Path) -> None:
    async with engine(event_endpoint="", replay_endpoint="") as server:
        other = replace(THREE_REGIONS, model=replace(THREE_REGIONS.model, id="another"))
        checks = await of(server, written(other, tmp_path), dialled=False, events="")
        assert checks["probe"].mark is Mark.FAIL
        assert "not another" in checks["probe"].said and "template" not in checks["probe"].fix


def test_the_agents_own_help_names_the_doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kvcompass-worker-agent", "--help"])
    with pytest.raises(SystemExit):
        agent_main()
    assert "doctor --help" in capsys.readouterr().out


@asynccontextmanager
async def vllm() -> AsyncIterator[str]:
    """What vLLM answers of what the doctor asks; it publishes no events."""
    metrics = (
        'vllm:cache_config_info{block_size="16",enable_prefix_caching="True"} 1.0\n'
        "vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\nvllm:kv_cache_usage_perc 0.1\n"
    )
    usage = {"prompt_tokens": 700, "completion_tokens": 1, "prompt_tokens_details": None}
    app = web.Application()

    def answer(path: str, body: Any) -> None:
        async def reply(_request: web.Request) -> web.Response:
            return web.Response(text=body) if isinstance(body, str) else web.json_response(body)

        app.router.add_route("POST" if "chat" in path else "GET", path, reply)

    answer("/version", {"version": "0.19.1"})
    answer("/metrics", metrics)
    answer("/metrics/", metrics)
    answer("/v1/models", {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
    answer("/v1/chat/completions", {"choices": [], "usage": usage})
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_vllm_is_known_for_what_it_is() -> None:
    async with vllm() as url:
        checks = await found(url)
        assert failing(checks) == set()
        assert checks["version"].said == "vllm 0.19.1"
        assert checks["load"].mark is Mark.OK
        assert "--events" in checks["event socket"].fix
        assert checks["reuse"].fix == "--enable-prompt-tokens-details"


async def test_an_engine_that_does_not_answer_is_not_examined() -> None:
    with pytest.raises(UnaskedError, match="Does the engine run there"):
        await found("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("named", "field"),
    [
        (Named(), "--engine"),
        (Named(engine="127.0.0.1:30000"), "--engine"),
        (Named(engine="http://[::1"), "--engine"),
        (Named(engine="http://h:99999"), "--engine"),
        (Named(engine="http://h:1", api_key_file=Path("/nowhere/key")), "--api-key-file"),
    ],
)
def test_a_command_line_that_does_not_say_who_is_told_so(named: Named, field: str) -> None:
    with pytest.raises(PatientError) as caught:
        patient(named)
    assert caught.value.field == field


def test_one_worker_of_a_plan_is_named_by_its_id_or_its_url(tmp_path: Path) -> None:
    path = written(THREE_REGIONS, tmp_path)
    second = THREE_REGIONS.workers[1]
    assert patient(Named(plan=path, worker=second.id)).worker == second
    assert patient(Named(plan=path, engine=second.url)).worker == second
    for named in (Named(plan=path), Named(plan=path, worker="nobody"), Named(plan=path, engine="http://x:1")):
        with pytest.raises(PatientError, match="worker-us-0"):
            patient(named)


def test_an_agents_settings_say_it_all(tmp_path: Path) -> None:
    written(THREE_REGIONS, tmp_path)
    settings = tmp_path / "agent.toml"
    settings.write_text(
        'plan = "fleet.toml"\nworkers = ["worker-eu-0"]\n[engine]\nkind = "vllm"\napi_key = "k"\n'
    )
    who = patient(Named(settings=settings))
    assert (who.worker.id, who.settings.api_key, who.settings_say) == ("worker-eu-0", "k", "vllm")


async def test_the_exit_status_says_whether_something_must_be_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine() as sound, engine(event_endpoint="", replay_endpoint="") as mute:
        for server, status in ((sound, 0), (mute, 1)):
            url = f"http://127.0.0.1:{server.port}"
            assert await asyncio.to_thread(main, ["--engine", url, "--json"]) == status
            document = json.loads(capsys.readouterr().out)
            assert (document["engine"], document["fails"]) == (url, bool(status))
            assert await asyncio.to_thread(main, ["--engine", url]) == status
            lines = capsys.readouterr().out.splitlines()
            assert len(lines) == len(document["checks"]) + 1
            assert any(line.startswith("FAIL  events ") for line in lines) == bool(status)
    assert await asyncio.to_thread(main, ["--engine", "http://127.0.0.1:9"]) == 2
    assert "--engine" in capsys.readouterr().err


async def test_it_ends_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    async with engine(time_scale=1_000.0) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert await asyncio.to_thread(main, ["--engine", url, "--timeout", "2"]) == 1
        assert "not finished within 2 s" in capsys.readouterr().out


def test_a_report_counts_its_lines() -> None:
    checks = [
        Check("a", Mark.OK, "x"),
        Check("bb", Mark.FAIL, "y", "--flag"),
        Check("c", Mark.WARN, "z", "w"),
    ]
    assert as_lines(checks).splitlines() == [
        "ok    a   x",
        "FAIL  bb  y  ->  --flag",
        "warn  c   z  ->  w",
        "1 ok, 1 warn, 1 FAIL",
    ]
    assert exit_status(checks) == 1
    assert exit_status(checks[::2]) == 0
    assert json.loads(as_json("e", checks))["checks"][1] == {
        "name": "bb",
        "mark": "fail",
        "said": "y",
        "fix": "--flag",
    }


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_load_that_is_said_to_come_by_itself_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    closed = f"tcp://{free_address()}"

    async def elsewhere(*_: object) -> str:
        return closed

    if not is_open:
        monkeypatch.setattr(reader, "load_endpoint", elsewhere)
    async with engine(event_profile="0.5.23", load_publish_endpoint=f"tcp://{free_address()}") as server:
        load = (await of(server))["load"]
    if is_open:
        assert (load.mark, load.said[:11]) == (Mark.OK, "load_socket")
    else:
        assert load.mark is Mark.WARN and closed in load.said and "port" in load.fix

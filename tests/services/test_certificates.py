"""Every role reads its certificates at the start: it tells when they end, and refuses what cannot serve."""

import asyncio
import importlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from kvcompass.plan.dump import dump_plan
from services.maintenance.__main__ import start
from services.runtime.certificates import certificate_ends
from services.runtime.lifecycle import Lifecycle
from services.runtime.ops import Health, OpsServer
from services.runtime.settings import SettingsError, TlsSettings
from services.worker_agent.process import AgentProcess
from services.worker_agent.settings import WorkerAgentSettings
from tests.models.agent_fleets import agent_plan
from tests.models.fleet_authority import FleetAuthority
from tests.models.ports import free_address
from tests.models.replication_fleet import replication_plan

PLAN = Path(__file__).parents[2] / "deploy" / "plans" / "three-regions.toml"
ROLES = {
    "edge": f'id = "edge-us"\nlab_mode = true\npeer_key = "{"k" * 16}"\ninsecure = true',
    "maintenance": 'id = "unit-0"\nlisten = "127.0.0.1:0"',
    "worker_agent": 'workers = ["worker-us-0"]',
}
YESTERDAY = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)


def section(tls: TlsSettings) -> str:
    return f'[tls]\ncert = "{tls.cert}"\nkey = "{tls.key}"\nca = "{tls.ca}"\n'


def told(metrics: str) -> float:
    """The end of the certificate, on a page of metrics."""
    return next(
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "kvcompass_tls_not_after_seconds" and sample.labels == {"file": "cert"}
    )


@pytest.fixture
def fleet(tmp_path: Path) -> FleetAuthority:
    return FleetAuthority(tmp_path / "fleet")


@pytest.mark.parametrize("year", [2030, 2049, 2050, 2999])
def test_the_end_is_the_certificates_own(fleet: FleetAuthority, year: int) -> None:
    """To 2049 a year has two digits."""
    end = datetime(year, 2, 28, 23, 59, 58, tzinfo=UTC)
    assert certificate_ends(fleet.tls("unit", ends=end))["cert"] == end.timestamp()


def test_without_tls_nothing_ends() -> None:
    assert certificate_ends(None) == {}


@pytest.mark.parametrize("end", [YESTERDAY, datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC)])
def test_an_expired_certificate_is_refused_with_its_date(fleet: FleetAuthority, end: datetime) -> None:
    tls = fleet.tls("unit", ends=end)
    with pytest.raises(SettingsError) as caught:
        certificate_ends(tls)
    assert caught.value.field == "tls.cert"
    assert tls.cert in str(caught.value)
    assert f"{end:%Y-%m-%d %H:%M:%S}" in str(caught.value)


def test_a_chain_ends_with_its_first_and_authorities_with_their_last(fleet: FleetAuthority) -> None:
    tls, old = fleet.tls("unit"), Path(fleet.tls("other", ends=YESTERDAY).cert).read_text()
    soon = datetime(2031, 1, 1, tzinfo=UTC)
    sooner = Path(fleet.tls("third", ends=soon).cert).read_text()
    with Path(tls.ca).open("a") as file:
        file.write(old + sooner)
    assert certificate_ends(tls)["ca"] == soon.timestamp(), "the first that has not ended"
    with Path(tls.cert).open("a") as file:
        file.write(sooner)
    assert certificate_ends(tls)["cert"] == soon.timestamp()
    Path(tls.ca).write_text(old)
    with pytest.raises(SettingsError) as caught:
        certificate_ends(tls)
    assert caught.value.field == "tls.ca"


def test_a_key_of_another_certificate_or_an_encrypted_one_is_named(fleet: FleetAuthority) -> None:
    tls, other = fleet.tls("unit"), fleet.tls("other")
    with pytest.raises(SettingsError, match="another than that") as caught:
        certificate_ends(replace(tls, key=other.key))
    assert caught.value.field == "tls.key"
    key = serialization.load_pem_private_key(Path(tls.key).read_bytes(), None)
    Path(tls.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a passphrase"),
        )
    )
    with pytest.raises(SettingsError, match="encrypted") as caught:
        certificate_ends(tls)
    assert caught.value.field == "tls.key"


def test_a_format_that_only_openssl_knows_is_refused(fleet: FleetAuthority) -> None:
    tls = fleet.tls("unit")
    text = Path(tls.ca).read_text()
    Path(tls.ca).write_text(text.replace(" CERTIFICATE", " X509 CERTIFICATE"))
    with pytest.raises(SettingsError, match="BEGIN CERTIFICATE") as caught:
        certificate_ends(tls)
    assert caught.value.field == "tls.ca"


@pytest.mark.parametrize("fault", ["expired", "cert", "key", "ca"])
@pytest.mark.parametrize("role", ROLES)
def test_every_role_refuses_them_at_its_start(
    role: str,
    fault: str,
    fleet: FleetAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tls = fleet.tls("x", ends=YESTERDAY if fault == "expired" else None)
    if fault != "expired":
        Path(getattr(tls, fault)).write_text("no PEM")
    path = tmp_path / "s.toml"
    # Where nobody can listen: a start that took them would end there, and not serve for ever.
    path.write_text(f'plan = "{PLAN}"\nops_address = "192.0.2.1:1"\n{ROLES[role]}\n{section(tls)}')
    monkeypatch.setattr("sys.argv", [role, "--settings", str(path)])
    with pytest.raises(SystemExit):
        importlib.import_module(f"services.{role}.__main__").main()
    output = capfd.readouterr()
    field = "cert" if fault == "expired" else fault
    assert f"{path}: tls.{field}: {getattr(tls, field)}" in output.out + output.err


async def test_the_operations_listener_tells_the_end() -> None:
    registry = CollectorRegistry()
    OpsServer(
        "127.0.0.1:0", lambda: Health(True, "up"), registry, certificate_ends={"cert": 1.8e9, "ca": 2e9}
    )
    for file, end_s in (("cert", 1.8e9), ("ca", 2e9)):
        assert registry.get_sample_value("kvcompass_tls_not_after_seconds", {"file": file}) == end_s


async def test_a_unit_tells_the_end_of_its_own(fleet: FleetAuthority, tmp_path: Path) -> None:
    ops, end = free_address(), datetime(2033, 5, 18, tzinfo=UTC)
    (tmp_path / "plan.toml").write_text(dump_plan(replication_plan()))
    path = tmp_path / "unit.toml"
    path.write_text(
        f'plan = "plan.toml"\nid = "unit-0"\nlisten = "127.0.0.1:0"\nops_address = "{ops}"\n'
        + section(fleet.tls("unit", ends=end))
    )
    lifecycle = Lifecycle()
    serving = asyncio.create_task(start(path, lifecycle))
    try:
        async with asyncio.timeout(20), httpx.AsyncClient(base_url=f"http://{ops}") as operator:
            while True:
                try:
                    metrics = (await operator.get("/metrics")).text
                    break
                except httpx.TransportError:
                    assert not serving.done(), serving
                    await asyncio.sleep(0.01)
    finally:
        lifecycle.stop()
        await serving
        await lifecycle.close()
    assert told(metrics) == end.timestamp()


async def test_an_agent_tells_the_end_of_its_own_and_its_port(fleet: FleetAuthority) -> None:
    end = datetime(2033, 5, 18, tzinfo=UTC)
    settings = WorkerAgentSettings(plan="", workers=["us-0"], tls=fleet.tls("agent", ends=end))
    with capture_logs() as lines:
        process = AgentProcess(settings, agent_plan(), Path())
        running = asyncio.create_task(process.run())
        async with asyncio.timeout(10):
            while not (up := [line for line in lines if line["event"] == "agent is up"]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        try:
            async with httpx.AsyncClient() as operator:
                metrics = (await operator.get(f"http://127.0.0.1:{up[0]['ops_port']}/metrics")).text
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert (up[0]["workers"], up[0]["transport"]) == (["us-0"], "mutual_tls")
    assert told(metrics) == end.timestamp()

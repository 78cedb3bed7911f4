"""A plan with one shard (or two) and a few workers, for tests of the replication."""

from kvcompass.plan.model import Plan
from kvcompass.plan.parse import parse_plan

WORKERS = ("a-0", "a-1", "b-0")
S = 1_000_000
"""Microseconds a second."""


def replication_plan(*, shards: int = 1, lease_ms: int = 3_000, plan_version: int = 1) -> Plan:
    units = "".join(
        f'[[unit]]\nid = "unit-{shard}"\nshard = {shard}\nregion = "a"\n'
        f'address = "127.0.0.1:{7000 + shard}"\n'
        for shard in range(shards)
    )
    workers = "".join(
        f'[[worker]]\nid = "{worker}"\nregion = "{worker[0]}"\nurl = "http://127.0.0.1:{8000 + i}"\n'
        f'events = "tcp://127.0.0.1:{8100 + i}"\ntable = {0 if worker[0] == "a" else 1}\nslot = {i % 2}\n'
        "prefill_ms_per_token = 0.2\nreload_ms_per_token = 0.02\n"
        for i, worker in enumerate(WORKERS)
    )
    edges = "".join(
        f'[[edge]]\nid = "edge-{region}"\nregion = "{region}"\naddress = "127.0.0.1:{9000 + i}"\n'
        f'peer_address = "127.0.0.1:{9100 + i}"\ngrpc_address = "127.0.0.1:{9200 + i}"\n'
        for i, region in enumerate("ab")
    )
    return parse_plan(
        f"""
[fleet]
name = "replication"
plan_version = {plan_version}
[model]
id = "m"
tokenizer = "builtin:kvcompass-bpe"
chat_template = "builtin:kvcompass-chat"
block_size = 16
context_length = 4096
[index]
expected_entries = 64
worker_entries_max = 100000
[routing]
lease_ms = {lease_ms}
[[region]]
id = "a"
[[region]]
id = "b"
[wan_ms]
a = {{ a = 0.5, b = 80.0 }}
b = {{ a = 80.0, b = 0.5 }}
{edges}{units}{workers}
"""
    )

"""What a client may send and a template cannot render is the client's error, whatever it is."""

from typing import Any

import pytest

from services.prompt import PromptEncoder
from services.prompt.errors import PromptError

ENCODER = PromptEncoder.load()


def nested(depth: int) -> list[Any]:
    outermost = innermost = []
    for _ in range(depth):
        innermost.append([])
        innermost = innermost[0]
    return outermost


@pytest.mark.parametrize("role", [[], {}, None, 1, True, "admin"])
def test_a_role_is_one_of_a_few_names(role: object) -> None:
    with pytest.raises(PromptError, match="must be one of") as caught:
        ENCODER.render_chat([{"role": role, "content": "a"}])
    assert caught.value.field == "messages[0].role"


@pytest.mark.parametrize("depth", [1_000, 50_000])
def test_deeply_nested_tools_are_refused(depth: int) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": nested(depth)}}]
    with pytest.raises(PromptError, match="nested too deeply"):
        ENCODER.render_chat([{"role": "user", "content": "a"}], tools)


def test_deeply_nested_arguments_of_a_call_are_refused() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": nested(5_000)}}]
    with pytest.raises(PromptError, match="nested too deeply"):
        ENCODER.render_chat([{"role": "assistant", "content": None, "tool_calls": calls}])

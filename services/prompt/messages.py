"""Checks OpenAI-shaped messages and brings them to the one form a chat template sees."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.prompt.errors import PromptError

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def normalised(messages: object) -> list[dict[str, Any]]:
    """Messages with `content` always a string, other fields kept.

    Text parts are joined by one space, as SGLang 0.5.10 does for string-content templates; an assistant
    turn that only calls tools has empty content. Raises PromptError naming the first faulty field.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise PromptError("must be a list of messages", field="messages")
    if not messages:
        raise PromptError("must hold at least one message", field="messages")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def checked_tools(tools: object) -> list[Any] | None:
    """The tools as given, None when there are none."""
    if tools is None:
        return None
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise PromptError("must be a list of tools", field="tools")
    for i, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise PromptError("must be an object", field=f"tools[{i}]")
    return list(tools) or None


def _message(message: object, path: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise PromptError("must be an object with role and content", field=path)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise PromptError(f"must be one of {', '.join(sorted(ROLES))}", field=f"{path}.role")
    calls = _calls(message.get("tool_calls"), f"{path}.tool_calls")
    if message.get("content") is None and role == "assistant" and calls:
        content = ""
    else:
        content = _text(message.get("content"), f"{path}.content")
    return {**message, "role": role, "content": content, "tool_calls": calls}


def _text(content: object, path: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise PromptError("must be a string or a list of text parts", field=path)
    return " ".join(_part(part, f"{path}[{i}]") for i, part in enumerate(content))


def _part(part: object, path: str) -> str:
    if not isinstance(part, Mapping) or part.get("type") != "text":
        raise PromptError("only parts of type text are supported", field=f"{path}.type")
    text = part.get("text")
    if not isinstance(text, str):
        raise PromptError("must be a string", field=f"{path}.text")
    return text


def _calls(calls: object, path: str) -> list[Any]:
    if calls is None:
        return []
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise PromptError("must be a list of tool calls", field=path)
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise PromptError("must name a function", field=f"{path}[{i}].function.name")
    return list(calls)

"""Chat templates: Jinja, sandboxed, with the helpers templates published with models expect."""

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from services.prompt.errors import PromptAssetError, PromptError


def compile_template(source: str, control_tokens: tuple[str, ...], begin: str = "") -> Template:
    """A template with the filters `tojson` (not HTML-escaped) and `plain`.

    `begin` is what the tokenizer puts before a text: templates of such models write it as `bos_token`, for a
    rendered prompt gets nothing added. (What ends a text, `eos_token`, no tokenizer.json says.)

    `plain` takes the control tokens out of a user's text by putting a space after their first character:
    `<|im_end|>` in a message reads `< |im_end|>` and cannot close the turn. The packaged template applies
    it to every text a client sends. A template of a real model does not know it: its engine parses control
    tokens in user text, and an encoder that did otherwise would compute keys the engine never stores.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, extensions=["jinja2.ext.loopcontrols"]
    )

    def plain(text: str) -> str:
        for token in control_tokens:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    environment.filters["plain"] = plain
    environment.filters["tojson"] = _tojson
    environment.globals["bos_token"] = begin
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise PromptAssetError(f"is not a Jinja template: {error}", field="model.chat_template") from error


def render(template: Template, messages: list[dict[str, Any]], tools: list[Any] | None) -> str:
    """The prompt text, ending with the start of the assistant's turn. Errors: PromptError."""
    try:
        return template.render(messages=messages, tools=tools, add_generation_prompt=True)
    except RecursionError as error:
        raise PromptError("messages or tools are nested too deeply", field="messages") from error
    except (TemplateError, TypeError, ValueError) as error:
        raise PromptError(f"the chat template refuses these messages: {error}", field="messages") from error


def _tojson(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)

"""Real texts from the folder that `KVCOMPASS_DATA` names.

Its layout: `text/loogle/*.jsonl` (long documents with questions), `text/toolbench/stabletoolbench_*.json`
(tools and tasks), `prompts/fabric/*.md` (system prompts), `text/mbpp/*.jsonl` and `text/exercism/*.md`
(programming problems). None of it belongs to this repository.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.workload.corpus import Agent, Corpus, CorpusError, Document
from lab.workload.excerpts import parts

DOCUMENT_CHARACTERS = 31_000
"""About 11,000 tokens a part."""
TOOL_CHARACTERS = 21_000
"""About 6,000 tokens of tool list an agent."""
_AGENTS = 16
_ROLES = ("solve_with_cot", "analyze_claims", "create_reading_plan", "explain_project", "summarize_meeting")
_INSTRUCTIONS = "coding_master"


def read_folder(folder: Path) -> Corpus:
    """Reads the whole corpus. Errors: CorpusError naming the file or folder that is missing or malformed."""
    if not folder.is_dir():
        raise CorpusError(f"{folder} is not a folder; KVCOMPASS_DATA must name one", field="KVCOMPASS_DATA")
    return Corpus(
        source=f"texts of KVCOMPASS_DATA ({folder.name})",
        documents=_documents(folder / "text" / "loogle"),
        agents=_agents(folder / "text" / "toolbench", folder / "prompts" / "fabric"),
        instructions=_text(folder / "prompts" / "fabric" / f"{_INSTRUCTIONS}.md"),
        problems=_problems(folder / "text" / "mbpp", folder / "text" / "exercism"),
    )


def _documents(folder: Path) -> tuple[Document, ...]:
    found: dict[str, Document] = {}
    for path in _files(folder, "*.jsonl"):
        for row in _rows(path):
            title, text = _field(row, "title", path), _field(row, "input", path)
            questions = tuple(_questions(row, path))
            for number, part in enumerate(parts(text, DOCUMENT_CHARACTERS), start=1):
                name = f"{title}, part {number}"
                known = found[name].questions if name in found else ()
                found[name] = Document(name, part, known + questions)
    ready = tuple(document for document in found.values() if document.questions)
    if not ready:
        raise CorpusError(f"{folder}: no document has questions", field=str(folder))
    return ready


def _questions(row: Mapping[str, Any], path: Path) -> Iterator[str]:
    raw = row.get("qa_pairs", "none")
    if raw == "none":
        yield "Write a summary of the text above in one paragraph."
        return
    try:
        pairs = ast.literal_eval(raw) if isinstance(raw, str) else raw
        for pair in pairs:
            yield str(pair["Q"])
    except (ValueError, SyntaxError, TypeError, KeyError) as error:
        raise CorpusError(f"{path}: qa_pairs cannot be read: {error}", field=str(path)) from error


def _agents(toolbench: Path, fabric: Path) -> tuple[Agent, ...]:
    by_category: dict[str, tuple[dict[str, Mapping[str, Any]], list[str]]] = {}
    for path in _files(toolbench, "stabletoolbench_*.json"):
        rows = _json(path)
        if not isinstance(rows, list):
            raise CorpusError(f"{path}: expected a list of instructions", field=str(path))
        for row in rows:
            apis = row.get("api_list") if isinstance(row, dict) else None
            if not apis:
                raise CorpusError(f"{path}: an instruction without api_list", field=str(path))
            category = str(apis[0].get("category_name", "Other"))
            tools, tasks = by_category.setdefault(category, ({}, []))
            for api in apis:
                tool = _tool(api)
                tools.setdefault(tool["function"]["name"], tool)
            tasks.append(_field(row, "query", path))
    agents: list[Agent] = []
    largest = sorted(by_category.items(), key=lambda item: (-len(item[1][1]), item[0]))
    for number, (category, (tools, tasks)) in enumerate(largest[:_AGENTS]):
        role = _text(fabric / f"{_ROLES[number % len(_ROLES)]}.md")
        system = f"You are the {category} assistant.\n\n{role}"
        agents.append(Agent(category, system, tuple(_up_to(tools.values(), TOOL_CHARACTERS)), tuple(tasks)))
    if not agents:
        raise CorpusError(f"{toolbench}: no instruction in any file", field=str(toolbench))
    return tuple(agents)


def _up_to(tools: Any, characters: int) -> Iterator[Mapping[str, Any]]:
    size = 0
    for tool in tools:
        size += len(json.dumps(tool))
        if size > characters:
            return
        yield tool


def _tool(api: Mapping[str, Any]) -> dict[str, Any]:
    required = api.get("required_parameters") or []
    optional = api.get("optional_parameters") or []
    properties = {
        str(parameter.get("name", "value")): {
            "type": str(parameter.get("type", "string")).lower(),
            "description": str(parameter.get("description", "")),
        }
        for parameter in (*required, *optional)
    }
    name = f"{api.get('tool_name', 'tool')}_{api.get('api_name', 'call')}"
    return {
        "type": "function",
        "function": {
            "name": "".join(c if c.isalnum() else "_" for c in name)[:64],
            "description": str(api.get("api_description", "")),
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": [str(parameter.get("name", "value")) for parameter in required],
            },
        },
    }


def _problems(mbpp: Path, exercism: Path) -> tuple[str, ...]:
    problems = [_field(row, "prompt", path) for path in _files(mbpp, "*.jsonl") for row in _rows(path)]
    problems.extend(_text(path) for path in _files(exercism, "*.md"))
    return tuple(problems)


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise CorpusError(f"{folder}: no file named {pattern}", field=str(folder))
    return files


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"cannot read {path}: {error}", field=str(path)) from error


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise CorpusError(f"{path} is not JSON: {error}", field=str(path)) from error


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    # Not splitlines(): documents may hold U+2028, which JSON leaves as it is.
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise CorpusError(f"{path}:{number} is not JSON: {error}", field=str(path)) from error
        if not isinstance(row, dict):
            raise CorpusError(f"{path}:{number} is not an object", field=str(path))
        yield row


def _field(row: Mapping[str, Any], name: str, path: Path) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise CorpusError(f"{path}: a row has no text {name!r}", field=str(path))
    return value

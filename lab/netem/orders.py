"""Commands to a router as they come in: a path and a JSON object of arguments, checked before it obeys."""

import json
from collections.abc import Callable
from typing import Any, Final

from lab.netem.errors import RouterError
from lab.netem.router import Router

_ARGUMENTS: Final = {
    "/cut": "region (text) and one_way (true or false)",
    "/heal": "region (text) and one_way (true or false)",
    "/set": "region (text) and values (an object)",
    "/profile": "name (text)",
}


def order(path: str, body: bytes) -> Callable[[Router], None]:
    """What a POST asks a router to do. Raises: RouterError naming what the path takes."""
    if path not in _ARGUMENTS:
        raise RouterError(f"no command {path}; there are {', '.join(_ARGUMENTS)}", field="command")
    given: Any
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RouterError(f"{path}: the arguments are not JSON: {error}", field="arguments") from error
    match path, given:
        case ("/cut", {"region": str(region), "one_way": bool(one_way), **rest}) if not rest:
            return lambda router: router.cut(region, one_way=one_way)
        case ("/heal", {"region": str(region), "one_way": bool(one_way), **rest}) if not rest:
            return lambda router: router.heal(region, one_way=one_way)
        case ("/set", {"region": str(region), "values": dict(values), **rest}) if not rest:
            return lambda router: router.change(region, values)
        case ("/profile", {"name": str(name), **rest}) if not rest:
            return lambda router: router.use_profile(name)
    raise RouterError(f"{path} takes {_ARGUMENTS[path]}, and nothing else", field="arguments")

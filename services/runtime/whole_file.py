"""Writing a file that others read at any time."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Writes a whole file or nothing of it, keeping its mode; a link still points to it. Errors: OSError."""
    path = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    written = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        written.chmod(path.stat().st_mode & 0o777)
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise

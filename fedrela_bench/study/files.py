"""Files that last: written whole or not at all, with a digest to notice damage."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fedrela_bench.errors import StoreError
from fedrela_bench.files import write_atomically
from fedrela_bench.nested import Json, digest


def write_atomic(path: Path, data: bytes | str) -> None:
    """`write_atomically` for text or bytes of a study.

    Raises:
        StoreError: the file cannot be written; nothing half-written keeps the name.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        write_atomically(path, content)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another --out"
        ) from error


def file_digest(path: Path) -> str:
    """32 hexadecimal digits of BLAKE2b over a file's bytes."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def write_sealed(path: Path, values: Json) -> None:
    """Write JSON that carries the digest of its own content."""
    write_atomic(path, json.dumps({**values, "digest": digest(values)}, indent=1, allow_nan=False) + "\n")


def read_sealed(path: Path) -> Json | None:
    """The content of a file from `write_sealed`, or None when there is none.

    Raises:
        StoreError: the content does not match its digest.
    """
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
        seal = values.pop("digest")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise StoreError(f"{path} is damaged ({error})") from error
    if digest(values) != seal:
        raise StoreError(f"{path} is damaged (its digest does not match)")
    return dict(values)

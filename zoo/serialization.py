"""Files on disk: strict YAML, atomic writes and digests."""

import hashlib
import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError


def parse_yaml(text: str, source: str = "YAML text") -> Any:
    r"""Parse YAML 1.2: ``1e-4`` is a number, ``no`` and ``on`` are text, a repeated key is an error.

    Args:
        text: The document; an empty one gives ``None``.
        source: Where it came from, for messages.

    Raises:
        ValueError: The text is not YAML, or repeats a key; the message gives source and line.

    >>> parse_yaml("peak_lr: 1e-4\nclasses: [no, yes, on]")
    {'peak_lr': 0.0001, 'classes': ['no', 'yes', 'on']}
    """
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        problem = str(error.problem).split("\n")[0]
        if isinstance(error, DuplicateKeyError):
            problem = problem.split(" with value")[0]
        raise ValueError(f"{source}{line}: {problem}") from None


def format_yaml(value: Any) -> str:
    """Write plain dicts, lists, text, numbers, booleans and ``None`` as YAML 1.2 in the given order.

    >>> print(format_yaml({"name": "resnet20", "shape": [3, 32, 32], "best": None}), end="")
    name: resnet20
    shape: [3, 32, 32]
    best: null
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None  # leaves inline, the rest in blocks
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment] # the library declares None alone
    yaml.width = 120
    yaml.allow_unicode = True
    yaml.representer.add_representer(
        type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    stream = io.StringIO()
    yaml.dump(value, stream)
    return stream.getvalue()


def read_yaml(path: Path | str) -> Any:
    """Read a YAML 1.2 file with :func:`parse_yaml`.

    Raises:
        ValueError: The file is not UTF-8 text, or not YAML; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    return parse_yaml(text, source=str(path))


def write_atomically(path: Path | str, content: bytes | str | Callable[[BinaryIO], Any]) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    The bytes go to a temporary file beside ``path``, reach the disk, and then take its name. When anything
    fails on the way (a full disk, say) the temporary file is removed and the earlier content stays.

    Args:
        path: Where to write; the folder is made if missing.
        content: Bytes, text (stored as UTF-8), or a function that writes to an open binary file.

    Raises:
        OSError: The system refused; the error names ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise type(error)(error.errno, f"{error.strerror} while writing", str(path)) from error
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def sha256_of(path: Path | str) -> str:
    """Return the SHA-256 of a file's bytes as 64 lower-case hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

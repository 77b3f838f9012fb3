"""Masks secrets in texts: known secrets, and text that looks like a secret."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

from strandline.doctor.private_files import private_files
from strandline.settings.settings import Settings

MASK = "***"
SECRET_CHARACTERS_MIN = 4
"""Length of the shortest known secret that is masked: masking shorter ones would destroy ordinary
text, and they protect nothing.
"""

SECRET_FILE_BYTES_MAX = 1_048_576
_SECRET_NAME = re.compile(r"SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIAL|ACCESS_KEY|API_KEY", re.I)
_PATH_NAME = re.compile(r"_(FILE|DIR|PATH)$", re.I)
_URL_USER = re.compile(r"(?<=://)[^/\s\"']*@")
_BEARER = re.compile(r"(?i)(bearer\s+)[^\s\"']+")
_ASSIGNED = re.compile(
    r"(?i)((?:secret|password|passwd|token|access[._-]key)[a-z._-]*(?<![._-]file)(?<!_dir)[\"']?"
    r"\s*[=:]\s*[\"']?)[^\s\"',{}\[\]]+"
)


class Masker:
    """Replaces known secrets, and text that looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        long = {
            form
            for each in secrets
            if len(each) >= SECRET_CHARACTERS_MIN
            for form in (each, json.dumps(each)[1:-1], quote(each, safe=""))
        }
        # Longest first: one secret may be part of a longer one.
        ordered = sorted(long, key=lambda each: (-len(each), each))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def mask(self, text: str) -> str:
        """`text` without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _URL_USER.sub(f"{MASK}@", text)
        text = _BEARER.sub(rf"\1{MASK}", text)
        return _ASSIGNED.sub(rf"\1{MASK}", text)


def known_secrets(
    settings: Settings | None, environment: Mapping[str, str], more_files: Iterable[Path]
) -> set[str]:
    """Secrets of files (those of the settings and `more_files`), of stores' URLs, and of the
    environment.
    """
    found = {
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and not _PATH_NAME.search(name)
    }
    files = [*more_files, *(private_files(settings).values() if settings is not None else ())]
    for path in files:
        found |= _in_file(path)
    for store in () if settings is None else settings.stores.values():
        found |= {urlsplit(store.endpoint_url or "").password or ""}
    return found


def _in_file(path: Path) -> set[str]:
    """Secrets of a file: its whole text, each line, and each value of a `name = value` line; none
    if it can't be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(SECRET_FILE_BYTES_MAX).decode(errors="replace").strip()
    except OSError:
        return set()
    found = {text, *(line.strip() for line in text.splitlines())}
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        return found
    return found | {value for section in parser.sections() for _, value in parser.items(section)}

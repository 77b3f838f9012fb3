"""Loads the settings from the TOML file and the environment, with the origin of each value."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from kafka_formats.errors import InvalidRequest
from strandline.settings.settings import Settings, StoreSettings

ENV_PREFIX = "STRANDLINE_"
OTHER_VARIABLES = frozenset(
    {
        "STRANDLINE_CONFIG",  # the settings file itself
        "STRANDLINE_URL",  # the node to which commands send their requests
        "STRANDLINE_TOKEN_FILE",  # the file with the token of those requests
        "STRANDLINE_TOKEN",  # Spark jobs: the token itself
        "STRANDLINE_PIPELINE_OPTIONS",  # Spark jobs: stores, of `strandline pipeline --config`
        "STRANDLINE_SPARK_MASTER",  # Spark jobs: the Spark master
        "STRANDLINE_TOOLS_DIR",  # tests: the directory of fetched tools
        "STRANDLINE_REQUIRE_TOOLS",  # tests: fail instead of skip if a toolchain is missing
        "STRANDLINE_GOLDEN",  # tests: rewrite golden files
    }
)
CONFIG_BYTES_MAX = 1_048_576


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The effective settings; `origins` has the origin of the value of each dotted key."""

    settings: Settings
    origins: Mapping[str, str]


def load_settings(
    path: Path | None, environment: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Read the settings from `path` (None: the defaults), overridden by the environment.

    Raises InvalidRequest with the key or variable if one is unknown or its value is not allowed.
    """
    variables = dict(os.environ if environment is None else environment)
    _refuse_unknown_variables(variables)
    from_file = {} if path is None else _read_toml(path)
    from_environment = _read_environment(variables)
    try:
        settings = Settings.model_validate(_over(from_file, from_environment))
    except ValidationError as error:
        raise InvalidRequest(_explain(error, path)) from None
    origins = {key: "default" for key, _ in leaves(settings)}
    origins |= {key: str(path) for key in _dotted(from_file)}
    origins |= {
        key: f"environment {ENV_PREFIX}{key.upper().replace('.', '__')}"
        for key in _dotted(from_environment)
    }
    return LoadedSettings(settings, origins)


def leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All settings as (dotted key, value), in the order of declaration; for a table with entries,
    each entry.
    """
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" == "stores":
            for store, section in value.items():
                yield from leaves(section, f"{prefix}{name}.{store}.")
        elif isinstance(value, Mapping) and value:
            yield from ((f"{prefix}{name}.{key}", each) for key, each in value.items())
        else:
            yield f"{prefix}{name}", value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(
            f"the settings file {path} can't be read ({error.strerror}): name one with --config"
        ) from None
    if len(data) > CONFIG_BYTES_MAX:
        raise InvalidRequest(
            f"the settings file {path} is larger than {CONFIG_BYTES_MAX} bytes: shorten it"
        )
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} is not valid TOML, correct it: {error}") from None


def _read_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    source = EnvSettingsSource(
        Settings, env_prefix=ENV_PREFIX, env_nested_delimiter="__", case_sensitive=False
    )
    source.env_vars = {
        name.lower(): value
        for name, value in variables.items()
        if name.startswith(ENV_PREFIX) and name not in OTHER_VARIABLES
    }
    try:
        return source()
    except SettingsError as error:
        raise InvalidRequest(f"environment: {error}; write lists as JSON") from None


def _refuse_unknown_variables(variables: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an unknown STRANDLINE_ variable, which may be a misspelt one;
    pydantic-settings would ignore it.
    """
    known = {f"{ENV_PREFIX}{key.upper().replace('.', '__')}" for key, _ in leaves(Settings())}
    known.add(f"{ENV_PREFIX}STORES")
    store_fields = {name.upper() for name in StoreSettings.model_fields}
    for name in sorted(variables):
        if not name.startswith(ENV_PREFIX) or name in OTHER_VARIABLES or name in known:
            continue
        parts = name.removeprefix(ENV_PREFIX).split("__")
        if len(parts) == 3 and parts[0] == "STORES" and parts[2] in store_fields:
            continue
        raise InvalidRequest(
            f"the environment variable {name} is not a setting: unset it, or see "
            "`strandline config --help` for the names"
        )


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` overridden by `above`, section by section."""
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            value = _over(under, value)
        merged[name] = value
    return merged


def _explain(error: ValidationError, path: Path | None) -> str:
    """A message with a line for each of pydantic's findings: the key, and what is wrong with it."""
    lines = []
    for finding in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in finding["loc"]) or "settings"
        if finding["type"] == "extra_forbidden":
            lines.append(f"{key}: unknown setting; see docs/SETTINGS.md")
        else:
            lines.append(f"{key}: {finding['msg'].removeprefix('Value error, ')}")
    where = "the settings" if path is None else str(path)
    return f"{where} can't be used:\n  " + "\n  ".join(lines)

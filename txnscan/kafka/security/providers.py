"""Kafka's config providers in a client.properties: `${env:NAME}`, `${file:PATH:KEY}`, `${directory:PATH:KEY}`. Also
Databricks' references to secrets, `{{secrets/SCOPE/KEY}}`, which need no provider.

`config.providers` lists the providers, `config.providers.NAME.class` gives the class of each, and its parameters limit
the values that it may read. This follows Kafka (`ConfigTransformer`, `EnvVarConfigProvider`, `FileConfigProvider`,
`DirectoryConfigProvider`) with one exception: if a provider cannot resolve a variable, this is an error here. Kafka
would send the variable to brokers as it is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import javaproperties

from txnscan.kafka.security.safe_files import read_limited
from txnscan.patterns import matching

SETTING = "config.providers"
# Each may be replaced by a file of a megabyte.
VARIABLES_MAX = 100
_HOME = "org.apache.kafka.common.config.provider."
_ENV_PATTERN, _ALLOWED_PATHS = "allowlist.pattern", "allowed.paths"

_SECRET = re.compile(r"\{\{secrets/([^{}/]+/[^{}/]+)\}\}")


class _Variable(NamedTuple):
    """A variable in a value. before: the text between the variable before and this one."""

    before: str
    provider: str
    path: str
    key: str
    written: str


# Returns the value of a path and a key. Raises ValueError with the reason, without a value.
Provider = Callable[[str, str], str]


def resolved(properties: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The properties, with values in place of their variables and references to secrets. Raises ValueError, with the
    name of the setting in the message.
    """
    names = [name.strip() for name in properties.get(SETTING, "").split(",") if name.strip()]
    if sum(len(_variables(value)[0]) for value in properties.values()) > VARIABLES_MAX:
        raise ValueError(f"it has more than {VARIABLES_MAX} variables of {SETTING}, which no such file has")
    providers = {name: _provider(name, properties, environment) for name in names}
    return {
        key: value if key.startswith(SETTING) else _with_values(key, value, providers)
        for key, value in properties.items()
    }


def has_unknown_variable(properties: Mapping[str, str], key: str) -> str | None:
    """The provider in a value's variable, if it is known but not declared. Kafka then leaves the text as it is."""
    names = {name.strip() for name in properties.get(SETTING, "").split(",")}
    found, _ = _variables(properties[key])
    return found[0].provider if found and found[0].provider in _KINDS and found[0].provider not in names else None


def _variables(value: str) -> tuple[list[_Variable], str]:
    """The variables in a value, and the text behind the last one, in one pass. Kafka finds them with a pattern, which
    looks up to the end of the text for each `${`.
    """
    found, before = [], ""
    *closed, rest = value.split("}")
    for text in closed:
        outside, _, inside = text.partition("${")
        provider, has_provider, name = inside.partition(":")
        if not has_provider:
            before += f"{text}}}"
            continue
        path, has_path, key = name.partition(":")
        path, key = (path, key) if has_path else ("", name)
        found.append(_Variable(before + outside, provider, path, key, f"${{{inside}}}"))
        before = ""
    return found, before + rest


def _with_values(key: str, value: str, providers: Mapping[str, Provider]) -> str:
    def of(variable: _Variable) -> str:
        provider = providers.get(variable.provider)
        if provider is None:
            return variable.written
        try:
            return provider(variable.path, variable.key)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None

    def with_variables(text: str) -> str:
        found, rest = _variables(text)
        return "".join(one.before + of(one) for one in found) + rest

    def secret(reference: str) -> str:
        try:
            return _of_databricks(*reference.split("/"))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None

    # Every second piece is a reference to a secret. Only the other pieces are searched for variables, so that a secret
    # that looks like a variable does not change.
    pieces = _SECRET.split(value)
    return "".join(secret(piece) if index % 2 else with_variables(piece) for index, piece in enumerate(pieces))


def _of_databricks(scope: str, key: str) -> str:
    try:
        from databricks.sdk.runtime import dbutils
    except Exception:  # it looks for a workspace, and says in many ways that there is none
        raise ValueError(
            "a secret of Databricks can be read on Databricks alone; use ${env:NAME} or ${file:PATH:KEY} elsewhere"
        ) from None
    try:
        return str(dbutils.secrets.get(scope=scope, key=key))
    except Exception:  # what Spark's JVM raises
        raise ValueError(
            f"Databricks has no secret {ascii(key)[1:-1]} in the scope {ascii(scope)[1:-1]}, or it may not be read"
        ) from None


def _provider(name: str, properties: Mapping[str, str], environment: Mapping[str, str]) -> Provider:
    setting = f"{SETTING}.{name}.class"
    kind = properties.get(setting, "").strip()
    parameters = {parameter: properties.get(f"{SETTING}.{name}.param.{parameter}") for parameter in _PARAMETERS}
    if kind == f"{_HOME}EnvVarConfigProvider":
        return _of_environment(environment, parameters[_ENV_PATTERN])
    if kind == f"{_HOME}FileConfigProvider":
        return _of_files(parameters[_ALLOWED_PATHS])
    if kind == f"{_HOME}DirectoryConfigProvider":
        return _of_directories(parameters[_ALLOWED_PATHS])
    known = ", ".join(f"{_HOME}{one}ConfigProvider" for one in ("EnvVar", "File", "Directory"))
    raise ValueError(f"{setting} must be one of {known}")


def _of_environment(environment: Mapping[str, str], pattern: str | None) -> Provider:
    def value(path: str, key: str) -> str:
        if path:
            raise ValueError("a variable of the environment has no path; write ${env:NAME}")
        if key not in environment or (pattern and key not in matching((pattern,), (key,))[pattern]):
            raise ValueError(f"the environment has no {ascii(key)[1:-1]}, or may not be asked for it")
        return environment[key]

    return value


def _of_files(allowed: str | None) -> Provider:
    def value(path: str, key: str) -> str:
        try:
            held: dict[str, str] = javaproperties.loads(read_limited(_allowed(path, allowed)).decode("utf-8"))
        except (OSError, ValueError):
            raise ValueError(f"{ascii(path)[1:-1]} cannot be read as a properties file") from None
        if key not in held:
            raise ValueError(f"{ascii(path)[1:-1]} has no {ascii(key)[1:-1]}")
        return held[key]

    return value


def _of_directories(allowed: str | None) -> Provider:
    def value(path: str, key: str) -> str:
        try:
            return read_limited(_allowed(str(Path(path) / key), allowed)).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"{ascii(path)[1:-1]} has no file {ascii(key)[1:-1]} that can be read") from None

    return value


def _allowed(path: str, allowed: str | None) -> Path:
    """The path, if it is one of the allowed paths or below one of them. Raises OSError."""
    # `Path.resolve` raises a RuntimeError for links that lead in a circle.
    found = Path(os.path.realpath(path))
    roots = [os.path.realpath(root.strip()) for root in (allowed or "").split(",") if root.strip()]
    if not path or (roots and not any(found.is_relative_to(root) for root in roots)):
        raise PermissionError(path)
    return found


_KINDS = ("env", "file", "directory", "dir")
_PARAMETERS = (_ENV_PATTERN, _ALLOWED_PATHS)

"""A Confluent-compatible schema registry. The only file that imports its client.

A registry that is down, refuses the request, or does not answer like a registry (a proxy's page)
fails the run, whatever the run does with bad records. A record with a schema id that the registry
does not know is a bad record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from kafka_formats.errors import InvalidRequest, NotFound, Refused, RetryLater
from kafka_formats.loopback import direct_mounts

TIMEOUT_S = 10
RETRIES_MAX = 2
UNKNOWN_IDS_MAX = 1_000
"""Unknown schema ids that each task remembers."""
_FRAME_BYTES = 5
_NOT_FOUND = range(40_401, 40_500)
"""The registry's own codes for absent subjects, versions and schemas: a bare 404 may come from any
proxy.
"""
_REFUSED = (401, 403)
_TYPES = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
_CONFIG: dict[str, Any] = {"subject.name.strategy": topic_subject_name_strategy}

Deserialise = Callable[[bytes, str], Any]
"""Turns a record's bytes and topic into its value."""


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """The registry's address. `user` is NAME:PASSWORD for basic authentication."""

    url: str
    user: str | None = field(default=None, repr=False)
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class RegisteredText:
    """A schema as registered. For Protobuf, `text` is base64 of the file's descriptor, and
    `references` are those of the imported files, each before the file that needs it.
    """

    subject: str
    version: int
    text: str
    references: tuple[tuple[str, str], ...] = ()


class _OneMessage(ProtobufDeserializer):
    """The client's deserialiser, which by itself accepts any message of any schema."""

    def __call__(self, data: bytes | None, ctx: SerializationContext | None = None) -> Any:
        self._is_checked = False
        return super().__call__(data, ctx)

    def _get_message_desc(self, pool: Any, fd: Any, msg_index: Any) -> Any:
        """A message of a file. The client looks up first the one that the record's schema names,
        then the first one of the file, whatever the record is.
        """
        found = super()._get_message_desc(pool, fd, msg_index)
        if self._is_checked:
            return found
        self._is_checked = True
        wanted = self._msg_class.DESCRIPTOR.full_name
        if found.full_name != wanted:
            raise SerializationError(f"it is a message {found.full_name}, not {wanted}")
        return found


class Registry:
    """A blocking client. RetryLater without an answer; Refused for wrong credentials."""

    def __init__(self, address: RegistryAddress) -> None:
        config: dict[str, Any] = {
            "url": address.url,
            "timeout": TIMEOUT_S,
            "max.retries": RETRIES_MAX,
        }
        if address.user is not None:
            config["basic.auth.user.info"] = address.user
        if address.ca_file is not None:
            config["ssl.ca.location"] = address.ca_file
        self._address = address
        try:
            self._client = SchemaRegistryClient(config)
        except (ValueError, TypeError) as error:
            raise InvalidRequest(str(error), field="--registry") from None
        requests: Any = self._client._rest_client
        requests.send_request = self._answered(requests.send_request)
        mounts = direct_mounts(address.url)
        if mounts:
            requests.session = type(requests.session)(
                verify=requests.verify, auth=requests.auth, timeout=requests.timeout, mounts=mounts
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def schema(
        self, subject: str, version: int | None, kind: Literal["avro", "json", "protobuf", "binary"]
    ) -> RegisteredText:
        """A subject's schema; the latest if `version` is None. NotFound if absent; InvalidRequest
        if it is of another kind.
        """
        fmt = "serialized" if kind == "protobuf" else None
        with self._errors():
            try:
                found = (
                    self._client.get_latest_version(subject, fmt)
                    if version is None
                    else self._client.get_version(subject, version, fmt=fmt)
                )
            except SchemaRegistryError as error:
                if error.error_code in _NOT_FOUND:
                    raise NotFound(
                        f"the schema registry {self._address.url} has no "
                        f"{'subject' if version is None else f'version {version} of'} {subject}: "
                        "name it with --value-subject or --key-subject"
                    ) from error
                raise
        schema = found.schema
        if (schema.schema_type or "AVRO") != _TYPES[kind]:
            raise InvalidRequest(
                f"subject {subject} is {schema.schema_type}, not {_TYPES[kind]}: give the matching "
                "format"
            )
        references = tuple(self._referenced(schema.references or (), fmt))
        return RegisteredText(subject, found.version or 0, schema.schema_str or "", references)

    def _referenced(self, references: Any, fmt: str | None) -> Generator[tuple[str, str]]:
        for each in references:
            with self._errors():
                found = self._client.get_version(each.subject, each.version, fmt=fmt).schema
            yield from self._referenced(found.references or (), fmt)
            yield each.name, found.schema_str or ""

    def avro(self, reader_schema: str, name: str) -> Deserialise:
        """Reads records of any version of the schema, in the form of the reader's version."""
        return self._deserialise(AvroDeserializer(self._client, reader_schema, conf=_CONFIG), name)

    def json(self, name: str) -> Deserialise:
        """Reads records of any JSON schema, and validates them by it."""
        return self._deserialise(
            JSONDeserializer(None, conf=_CONFIG, schema_registry_client=self._client), name
        )

    def protobuf(self, message: Any, name: str) -> Deserialise:
        """Reads records as messages of this class. SerializationError for a record whose own schema
        names a different message: its bytes may parse all the same.
        """
        return self._deserialise(
            _OneMessage(
                message,
                {**_CONFIG, "use.deprecated.format": False},
                schema_registry_client=self._client,
            ),
            name,
        )

    def _deserialise(self, deserialiser: Any, name: str) -> Deserialise:
        field_of = {"key": MessageField.KEY, "value": MessageField.VALUE}[name]
        contexts: dict[str, SerializationContext] = {}
        unknown: dict[bytes, str] = {}

        def deserialise(data: bytes, topic: str) -> Any:
            context = contexts.get(topic)
            if context is None:
                context = contexts[topic] = SerializationContext(topic, field_of)
            if (told := unknown.get(data[:_FRAME_BYTES])) is not None:
                raise LookupError(told)  # the client would ask anew for each record
            with self._errors():
                try:
                    return deserialiser(data, context)
                except SchemaRegistryError as error:
                    if error.error_code in _NOT_FOUND and len(unknown) < UNKNOWN_IDS_MAX:
                        unknown[data[:_FRAME_BYTES]] = str(error)
                    raise

        return deserialise

    def _answered(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """`send` of the client: a deserialiser would treat its errors and odd answers as bad
        records.
        """

        def send_request(*arguments: Any, **named: Any) -> Any:
            try:
                answer = send(*arguments, **named)
            except SchemaRegistryError:
                raise
            except Exception as error:  # of the two HTTP libraries that the client may use
                raise self._down(error) from error
            if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
                raise self._down(ValueError("its answer has no schema; is it a schema registry?"))
            return answer

        return send_request

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            self._raise_if_registry(error)
            raise

    def _raise_if_registry(self, error: BaseException | None) -> None:
        """Raises Refused or RetryLater if the registry is a cause anywhere in the error's chain."""
        while error is not None:
            if isinstance(error, SchemaRegistryError):
                if error.http_status_code in _REFUSED:
                    raise Refused(
                        f"the schema registry {self._address.url} refused: {error}. Give its "
                        "credentials as STRANDLINE_REGISTRY_USER=NAME:PASSWORD in the environment"
                    ) from error
                if error.error_code not in _NOT_FOUND:
                    raise self._down(error) from error
            if isinstance(error, RetryLater):
                raise error
            error = error.__cause__ or error.__context__

    def _down(self, error: BaseException) -> RetryLater:
        return RetryLater(
            f"the schema registry {self._address.url} does not answer: {error}. Nothing was "
            "committed; run the export again when it does"
        )

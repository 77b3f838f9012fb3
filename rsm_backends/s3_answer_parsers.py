"""Parses S3's answers with the library's parsers, and turns their failures into one error. Forms
are checked before (`s3_forms`), times are read by `s3_timestamps`, and a list page is parsed once.

The library would parse each answer a second time, only to look for an error sent with status 200,
and treat an answer that it can't parse, such as a proxy's page, as one with status 500. Here the
first tag decides.
"""

from __future__ import annotations

from typing import Any

from aiobotocore.parsers import AioResponseParserFactory, AioRestXMLParser
from botocore.handlers import _handle_200_error  # type: ignore[attr-defined]  # its stubs lack it
from botocore.parsers import ResponseParser, ResponseParserError

from rsm_backends.s3_forms import check_form, is_error, truth
from rsm_backends.s3_timestamps import parsed_timestamp

_ANSWERED = "before-parse.s3.*"
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RuntimeError)


class AnswerParsers(AioResponseParserFactory):
    """Creates a session's parsers; `_AnswerParser` reads S3's answers."""

    def __init__(self) -> None:
        super().__init__()
        self.set_parser_defaults(timestamp_parser=parsed_timestamp)

    def create_parser(self, protocol_name: str) -> ResponseParser:
        if protocol_name == "rest-xml":
            parser: ResponseParser = _AnswerParser(timestamp_parser=parsed_timestamp)
            return parser
        return super().create_parser(protocol_name)


class _AnswerParser(AioRestXMLParser):
    async def parse(self, response: Any, shape: Any) -> Any:
        """Parse an answer. ResponseParserError for anything that S3 would not send: on a size that
        is not a number, or a repeated element, the library's own code raises other errors.
        """
        try:
            return await super().parse(response, shape)
        except Exception as error:
            if not isinstance(response["body"], bytes):
                response["body"].close()  # an object's body, which no caller will read
            if isinstance(error, _UNREADABLE):
                raise ResponseParserError(
                    f"one of its fields cannot be read: {type(error).__name__}"
                ) from error
            raise

    def _parse_payload(
        self, response: dict[str, Any], shape: Any, member_shapes: Any, final_parsed: dict[str, Any]
    ) -> None:
        check_form(shape.name, response["body"])
        super()._parse_payload(response, shape, member_shapes, final_parsed)  # type: ignore[misc]

    def _handle_boolean(self, shape: Any, text: Any) -> bool:  # noqa: ARG002
        return truth(text if isinstance(text, str) else text.text or "")


def read_answers_once(client: Any) -> None:
    """Make the client treat an answer with status 200 as an error only if it begins as one."""
    client.meta.events.unregister(_ANSWERED, _handle_200_error)
    client.meta.events.register_first(_ANSWERED, _find_error)


def _find_error(operation_model: Any, response_dict: Any, **more: Any) -> None:
    if is_error(response_dict["body"]):
        _handle_200_error(operation_model, response_dict, **more)

"""Answers to requests on the quorum's listener: rights, checks, and the answer's frame."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_formats.errors import InvalidRequest, Refused
from rlmm.quorum.envelopes import Envelope
from rlmm.quorum.network_ports import ProduceAnswer, QuorumServer
from rlmm.raft.messages import (
    AddVoterRequest,
    Error,
    FetchRequest,
    FetchResponse,
    RemoveVoterRequest,
    ReplicaKey,
    VoterChangeResponse,
)
from rlmm.rows.feature_level import FEATURE
from rlmm.wire import frames
from rlmm.wire.anonymous_share import AnonymousShare
from rlmm.wire.authorisation import READS, UNAUTHENTICATED, Authorisation
from rlmm.wire.begun_at_once import begun_at_once
from rlmm.wire.frames import REQUEST_HEAD, VERSIONS, Api, Request, UnsupportedVersionError
from rlmm.wire.hot_codec import FETCH_VERSION, PRODUCE_VERSION, HotCodec, ProducedRecords
from rlmm.wire.names import OUR_TOPICS, PARTITION, directory_text
from rlmm.wire.quorum_codec import Body, QuorumCodec, RequestRefusedError, reachable_voter
from rlmm.wire.read_answers import ReadAnswers
from rlmm.wire.schema import Values
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from rlmm.wire.server_connection import Caller, DisconnectError, ListenerLimits

REMOVE_VOTER_WAIT_MS = 30_000
"""The wait for the removal of a voter: RemoveRaftVoter has no time-out field."""

ADD_VOTER_WAIT_MS_MAX = 60_000
"""The longest wait of an admin: meanwhile no other change of voters may begin."""

Begun = bytes | Awaitable[bytes]

_CLIENT_ID_AT = REQUEST_HEAD.size
_ALL_ACKS = -1


class Answers:
    """The answers of one listener. `refused` logs a refusal: it takes the client and the reason."""

    def __init__(
        self,
        server: QuorumServer,
        served: ServedLog,
        ambient: ListenerAmbient,
        *,
        authorisation: Authorisation,
        limits: ListenerLimits,
        share: AnonymousShare,
        refused: Callable[[str, str], None],
    ) -> None:
        self._server = server
        self._topic_id = served.topic_id
        self._authorisation = authorisation
        self._refused = refused
        self._envelopes = served.envelopes
        self._features = [
            {
                "name": FEATURE,
                "min_version": served.feature_levels.lowest,
                "max_version": served.feature_levels.highest,
            }
        ]
        self._codec = QuorumCodec(served.cluster_id, served.topic_id)
        self._hot = HotCodec(served.cluster_id, served.topic_id)
        self._reads = ReadAnswers(server, self._codec, served, ambient, limits, share)

    def begin(self, caller: Caller, frame: bytes) -> Begun:
        """The answer's frame, or an awaitable of it. Raises FrameError and DisconnectError."""
        if caller.is_peer:
            begun = self._begin_hot(frame)
            if begun is not None:
                return begun
        try:
            request = frames.decode_request(frame)
        except UnsupportedVersionError as error:
            return self._unsupported(error)
        api = request.api
        if api in UNAUTHENTICATED:
            return self._begin_unauthenticated(caller, request)
        try:
            self._authorise(caller, request)
            return self._begin(request)
        except RequestRefusedError as error:
            self._refused(caller.name, f"sent {api.name}, which is refused: {error}")
            return self._encode(request, refusal_body(request, error.code))

    def _begin_hot(self, frame: bytes) -> Begun | None:
        if len(frame) < _CLIENT_ID_AT + 2:
            return None
        api, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
        is_fetch = api == Api.FETCH and version == FETCH_VERSION
        if not is_fetch and (api != Api.PRODUCE or version != PRODUCE_VERSION):
            return None
        at = _CLIENT_ID_AT + 2 + int.from_bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + 2])
        if frame[at : at + 1] != b"\0":
            return None  # tagged fields in the header, or no client id
        if is_fetch:
            fetch = self._hot.decode_fetch(frame, at + 1)
            return None if fetch is None else begun_at_once(self._fetch(fetch, correlation_id))
        produced = self._hot.decode_produce(frame, at + 1)
        if produced is None or produced.acks != _ALL_ACKS:
            return None
        return begun_at_once(self._produce_hot(produced, correlation_id))

    async def _fetch(self, fetch: FetchRequest, correlation_id: int) -> bytes:
        answer = await self._server.answer(fetch)
        assert isinstance(answer.response, FetchResponse)
        if answer.response.leader_at is not None:
            body = self._codec.response_body(answer.response, answer.data)
            return frames.encode_response(Api.FETCH, FETCH_VERSION, correlation_id, body)
        return self._hot.encode_fetched(answer.response, answer.data, correlation_id)

    async def _produce_hot(self, produced: ProducedRecords, correlation_id: int) -> bytes:
        if produced.forwarded:
            answer = await self._server.produce(produced.records)
        else:
            answer = await self._server.propose(produced.records, timeout_ms=produced.timeout_ms)
        return self._hot.encode_produced(answer, correlation_id)

    def _begin_unauthenticated(self, caller: Caller, request: Request) -> bytes:
        if request.api is Api.API_VERSIONS:
            offered = {"api_keys": _api_keys(), "supported_features": self._features}
            return self._encode(request, offered)
        if request.api is Api.SASL_HANDSHAKE:
            mechanism = request.body["mechanism"]
            chosen = caller.sasl.choose(mechanism)
            if not chosen:
                self._refused(
                    caller.name,
                    f"asks for the SASL mechanism {mechanism[:40]!r}; offered here: "
                    f"{', '.join(caller.sasl.mechanisms) or 'none, there is no secret file'}",
                )
            code = ErrorCode.none if chosen else ErrorCode.unsupported_sasl_mechanism
            body: Body = {"error_code": code.value, "mechanisms": list(caller.sasl.mechanisms)}
            return self._encode(request, body)
        try:
            answer = caller.sasl.answer(request.body["auth_bytes"])
        except Refused as error:
            self._refused(caller.name, f"does not log in: {error}")
            code = ErrorCode.sasl_authentication_failed
            return self._encode(
                request, {"error_code": code.value, "error_message": "authentication failed"}
            )
        caller.is_peer = caller.is_peer or caller.sasl.done
        return self._encode(request, {"error_message": None, "auth_bytes": answer})

    def _authorise(self, caller: Caller, request: Request) -> None:
        """Check the caller's rights. RequestRefusedError: only peers may send this request.
        DisconnectError: only peers may send any request.
        """
        if caller.is_peer:
            return
        if not self._authorisation.anonymous_reads:
            raise DisconnectError(
                f"sent {request.api.name} and is not a peer: log in as a peer; reading without a "
                "login is disabled here"
            )
        if request.api not in READS or (request.api is Api.FETCH and replica_id(request.body) >= 0):
            raise RequestRefusedError(
                ErrorCode.cluster_authorization_failed,
                "only peers may: configure its certificate's name, or the quorum's secret",
            )

    def _begin(self, request: Request) -> Begun:
        api = request.api
        if api is Api.PRODUCE:
            return self._produce(request)
        if api is Api.ADD_RAFT_VOTER or api is Api.REMOVE_RAFT_VOTER:
            self._codec.check_cluster(request.body["cluster_id"], told=False)
            return self._change_voters(request)
        if api is Api.ENVELOPE:
            return self._take(request)
        if api in READS and (api is not Api.FETCH or replica_id(request.body) < 0):
            return self._reads.begin(request)
        if request.version != VERSIONS[api][1]:
            raise RequestRefusedError(
                ErrorCode.unsupported_version, f"replicas speak version {VERSIONS[api][1]}"
            )
        return self._ask(request)

    def _ask(self, request: Request) -> Begun:
        try:
            asked = self._codec.read_request(request.api, request.body)
        except InvalidRequest as error:
            raise RequestRefusedError(ErrorCode.invalid_request, str(error)) from error

        async def answered() -> bytes:
            answer = await self._server.answer(asked)
            body = self._codec.response_body(answer.response, answer.data)  # type: ignore[arg-type]  # a peer's request has a peer's response
            return self._encode(request, body)

        return answered()

    def _change_voters(self, request: Request) -> Begun:
        body = request.body
        key = ReplicaKey(body["voter_id"], directory_text(body["voter_directory_id"]))
        change: AddVoterRequest | RemoveVoterRequest
        if request.api is Api.ADD_RAFT_VOTER:
            voter = reachable_voter(key, body["listeners"])
            acknowledge = body.get("ack_when_committed", True)
            wait_ms = min(max(body["timeout"], 0), ADD_VOTER_WAIT_MS_MAX)
            change = AddVoterRequest(voter, wait_ms, acknowledge)
        else:
            change = RemoveVoterRequest(key, REMOVE_VOTER_WAIT_MS)

        async def changed() -> bytes:
            response = (await self._server.answer(change)).response
            assert isinstance(response, VoterChangeResponse)
            said = {
                "error_code": response.error.value,
                "error_message": response.message or None,
            }
            return self._encode(request, said)

        return changed()

    def _take(self, request: Request) -> Begun:
        """Have the HTTP interface answer a peer's envelope."""
        take, body = self._envelopes.take, request.body
        if take is None:
            raise RequestRefusedError(
                ErrorCode.broker_not_available, "the HTTP interface does not serve"
            )
        envelope = Envelope(body["request_data"], body["request_principal"] or b"")

        async def taken() -> bytes:
            return self._encode(request, {"response_data": await take(envelope)})

        return taken()

    def _produce(self, request: Request) -> Begun:
        """Answer a Produce of any version: one list of batches, acknowledged by the quorum.

        Only a different node of the cluster sets `forwarded`. A Produce without it is a client's,
        even that of a stock producer that logs in as a peer.
        """
        body = request.body
        if body["acks"] == 0:
            raise DisconnectError(
                "produces with acks=0, so that it would not learn the outcome; use acks=all"
            )
        topics = body["topic_data"]
        if len(topics) != 1 or len(topics[0]["partition_data"]) != 1:
            raise RequestRefusedError(ErrorCode.invalid_request, "one partition a request")
        partition = topics[0]["partition_data"][0]
        name = topics[0].get("topic_id", topics[0].get("name"))
        if name not in (self._topic_id, OUR_TOPICS[0]) or partition["index"] != PARTITION:
            raise RequestRefusedError(
                ErrorCode.unknown_topic_or_partition, f"this listener has {OUR_TOPICS[0]}-0 only"
            )
        if body["transactional_id"] is not None:
            raise RequestRefusedError(
                ErrorCode.invalid_request, "transactions are not supported here"
            )

        records = partition["records"] or b""

        async def produced() -> bytes:
            if body.get("forwarded"):
                answer = await self._server.produce(records)
            else:
                answer = await self._server.propose(records, timeout_ms=body["timeout"])
            return self._encode(request, produced_body(request.body, answer))

        return produced()

    def _unsupported(self, error: UnsupportedVersionError) -> bytes:
        """The answer to an ApiVersions of an unknown version. Any other request of an unsupported
        version ends the connection (DisconnectError): ApiVersions lists the supported ones.
        """
        if error.api_key != Api.API_VERSIONS:
            raise DisconnectError(
                f"sent API key {error.api_key} in version {error.version}, which ApiVersions "
                "does not offer: use a newer or older client"
            ) from error
        body = {"error_code": ErrorCode.unsupported_version.value, "api_keys": _api_keys()}
        return frames.encode_response(Api.API_VERSIONS, 0, error.correlation_id, body)

    def _encode(self, request: Request, body: Mapping[str, Any]) -> bytes:
        return frames.encode_response(request.api, request.version, request.correlation_id, body)


def replica_id(fetch: Values) -> int:
    """The id of the fetching replica, in any version; -1 for a consumer."""
    state = fetch.get("replica_state")
    found: int = fetch["replica_id"] if state is None else state["replica_id"]
    return found


def produced_body(request: Values, answer: ProduceAnswer) -> Body:
    """The answer to a Produce, equal for each of its partitions."""
    return {
        "responses": [
            {
                "name": topic.get("name"),
                "topic_id": topic.get("topic_id"),
                "partition_responses": [
                    {
                        "index": partition["index"],
                        "error_code": answer.error.value,
                        "base_offset": answer.base_offset,
                        "current_leader": {
                            "leader_id": answer.leader_id,
                            "leader_epoch": answer.leader_epoch,
                        },
                        "appended": answer.appended,
                    }
                    for partition in topic["partition_data"]
                ],
            }
            for topic in request["topic_data"]
        ]
    }


def refusal_body(request: Request, code: ErrorCode) -> Body:
    """The body with `code` for the whole request, in the field that the request's API has."""
    if request.api is not Api.PRODUCE:
        return {"error_code": code.value, "error_message": None}
    body = produced_body(request.body, ProduceAnswer(Error.NONE))
    for topic in body["responses"]:
        for partition in topic["partition_responses"]:
            partition["error_code"] = code.value
    return body


def _api_keys() -> list[Body]:
    return [
        {"api_key": int(api), "min_version": low, "max_version": high}
        for api, (low, high) in VERSIONS.items()
    ]

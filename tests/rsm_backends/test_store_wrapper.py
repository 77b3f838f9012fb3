"""Each method of the port reaches the store within, with all it was given, and tells its name."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, cast

import pytest

from rsm_backends.store import ObjectStore
from rsm_backends.store_wrapper import PortCall, PortCalls, Read, Send, StoreWrapper

PORT: dict[str, Callable[..., Any]] = {
    name: method
    for name, method in vars(ObjectStore).items()
    if inspect.isfunction(method) and not name.startswith("_")
}
STREAMS = [name for name, method in PORT.items() if not inspect.iscoroutinefunction(method)]
GIVEN = {"data": b"four", "keys": ["a", "b"], "number": 3, "start": 5, "end": 9}

_Answer = TypeVar("_Answer")


class Recorder:
    """Has every method of the port, and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, object]]] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        def called(*args: object, **named: object) -> object:
            bound = inspect.signature(PORT[name]).bind(self, *args, **named)
            self.calls.append((name, dict(list(bound.arguments.items())[1:])))
            return self.pieces() if name in STREAMS else self.answer(name)

        return called

    async def answer(self, name: str) -> str:
        return f"answer of {name}"

    async def pieces(self) -> AsyncIterator[bytes]:
        yield b"piece"


class Listening(StoreWrapper):
    """Hears of every call."""

    heard: PortCall

    async def _answer(self, call: PortCall, send: Send[_Answer]) -> _Answer:
        self.heard = call
        return await send(self._store)

    def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        self.heard = call
        return read(self._store, call.start)


def arguments(name: str) -> dict[str, object]:
    """A value of its own for every parameter."""
    parameters = list(inspect.signature(PORT[name]).parameters)[1:]
    return {each: GIVEN.get(each, each) for each in parameters if each != "parts"} | (
        {"parts": []} if "parts" in parameters else {}
    )


async def outcome(made: Any) -> object:
    return [piece async for piece in made] if hasattr(made, "__aiter__") else await made


@pytest.mark.parametrize("name", PORT)
@pytest.mark.parametrize("wrapper", [StoreWrapper, Listening])
async def test_a_call_passes_whole(wrapper: type[StoreWrapper], name: str) -> None:
    recorder = Recorder()
    store = wrapper(cast(ObjectStore, recorder))
    given = arguments(name)
    answer = await outcome(getattr(store, name)(**given))
    assert recorder.calls == [(name, given)]
    if name != "close":
        assert answer == ([b"piece"] if name in STREAMS else f"answer of {name}")


@pytest.mark.parametrize("name", [name for name in PORT if name != "close"])
async def test_a_wrapper_hears_which_call_it_is(name: str) -> None:
    store = Listening(cast(ObjectStore, Recorder()))
    given = arguments(name)
    await outcome(getattr(store, name)(**given))
    heard = store.heard
    assert heard.operation == name
    assert heard.key == given.get("key", given.get("prefix", "a"))
    assert heard.body_bytes == (4 if "data" in given else None)
    assert (heard.start, heard.end) == (given.get("start", 0), given.get("end"))
    assert repr(heard.key) in str(heard) or name == "delete_many"


@pytest.mark.parametrize("name", PORT)
def test_no_method_of_the_port_is_forgotten_or_other_in_its_parameters(name: str) -> None:
    """Where this fails after a change of `ObjectStore`, `PortCalls` needs the same one."""
    ours = inspect.signature(vars(PortCalls)[name]).parameters.values()
    theirs = inspect.signature(PORT[name]).parameters.values()
    assert [str(each) for each in ours] == [str(each) for each in theirs]


async def test_a_delete_of_nothing_has_no_key() -> None:
    store = Listening(cast(ObjectStore, Recorder()))
    await store.delete_many([])
    assert (store.heard.key, str(store.heard)) == ("", "delete of 0 objects")

"""Two admins at once: the page changes what its dry run showed, and nothing that came after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.acting_page import FOLLOWER, act, dry_run, settings, three_nodes, use_token
from tests.e2e.browser import Tab, browser
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import NodeQuorum

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeQuorum]:
    with three_nodes(tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def tab(quorum: NodeQuorum, opened: Browser) -> Iterator[Tab]:
    """With the token of an admin, who is not the only one."""
    found = Tab(opened, quorum.nodes[FOLLOWER].url)
    found.open("actions")
    use_token(found.page, "chief")
    yield found
    assert (found.foreign(), found.console) == ([], [])
    found.close()


def deputy(url: str, path: str, body: dict[str, object]) -> None:
    """What another admin does meanwhile, over HTTP."""
    done = PLAIN.put(f"{url}{path}", json=body, headers={"Authorization": "Bearer deputy"})
    assert done.status_code == 200, done.text


def too_late(tab: Tab, dialog: Locator, word: str, told: str) -> None:
    """It is confirmed after another admin's change: the page says so, and wants to look again."""
    dialog.get_by_label("to confirm", exact=False).fill(word)
    dialog.get_by_role("button", name="Do it").click()
    expect(dialog.get_by_role("alert")).to_contain_text(told)
    expect(dialog.get_by_text("look again, then decide")).to_be_visible()
    expect(dialog.get_by_role("button", name="Do it")).to_have_count(0)
    tab.forgive(409)
    dialog.get_by_role("button", name="Show what it would do").click()
    expect(dialog.get_by_label("What it would do")).to_be_visible()


def leave(dialog: Locator, told: str) -> None:
    expect(dialog.get_by_label("What it would do")).to_contain_text(told)
    dialog.get_by_role("button", name="Leave it").click()


def test_what_another_admin_set_since_the_dry_run_is_not_overwritten(tab: Tab) -> None:
    topic, pause = {"kind": "topic", "name": "web.*"}, "/v1/settings/deleting.paused"
    chosen = {"Topic_name": "web.*", "From_now_on": "not tiered", "Why": "noise"}
    dialog = dry_run(tab, "Tier topics, or end it", **chosen)
    deputy(tab.url, "/v1/settings/topics.tiered", {"scope": topic, "value": True, "why": "needed"})
    too_late(tab, dialog, "web.*", "was set at metadata offset")
    leave(dialog, "tiered, by deputy: needed")
    assert ("topics.tiered", "web.*", "true") in settings(tab.url)
    deputy(tab.url, "/v1/settings/topics.tiered", {"scope": topic, "value": None})
    deputy(tab.url, pause, {"scope": {"kind": "cluster"}, "value": True, "why": "the first"})
    resume = {"What": "deleting", "Then_it_is": "running", "Why": "over"}
    dialog = dry_run(tab, "Pause or resume the cluster", **resume)
    for value, why in ((None, ""), (True, "the second")):
        deputy(tab.url, pause, {"scope": {"kind": "cluster"}, "value": value, "why": why})
    too_late(tab, dialog, "deleting", "was set at metadata offset")
    leave(dialog, "paused by deputy: the second")
    assert ("deleting.paused", "", "true") in settings(tab.url)
    dialog = dry_run(tab, "Pause or resume this node", **resume)
    deputy(tab.url, "/v1/node/switches/deleting", {"paused": True, "why": "a disk"})
    too_late(tab, dialog, "deleting", "was paused meanwhile by deputy: a disk")
    leave(dialog, "paused by deputy: a disk")
    deputy(tab.url, "/v1/node/switches/deleting", {"paused": False})
    deputy(tab.url, pause, {"scope": {"kind": "cluster"}, "value": None})


def test_a_policy_or_mode_set_since_the_dry_run_is_not_overwritten(tab: Tab) -> None:
    tab.open("partitions/orders/0")
    of, policy = f"{tab.url}/v1/topics/orders", "/v1/topics/orders/policy"
    kept: dict[str, object] = {
        "copy_paused": False, "delete_paused": True, "retention_bytes": None,
    }  # fmt: skip
    dialog = dry_run(tab, "Set the topic's retention", Milliseconds="1000", Why="a slip")
    deputy(tab.url, policy, kept | {"retention_ms": 315_360_000_000})
    too_late(tab, dialog, "orders", "was set at metadata offset")
    leave(dialog, "315,360,000,000 ms")
    found = PLAIN.get(f"{of}/policy").json()
    assert (found["retention_ms"], found["delete_paused"]) == (315_360_000_000, True)
    act(tab, "Set the topic's retention", "orders", "1,000 ms", Milliseconds="1000", Why="meant")
    found = PLAIN.get(f"{of}/policy").json()
    assert (found["retention_ms"], found["delete_paused"]) == (1000, True), "its switch stays"
    deputy(tab.url, policy, kept | {"retention_ms": None})
    dialog = dry_run(tab, "Change the mode", Mode="paused")
    deputy(tab.url, "/v1/topics/orders/partitions/0/mode", {"mode": "read_only"})
    too_late(tab, dialog, "orders-0", "mode")
    leave(dialog, "read_only")
    assert PLAIN.get(f"{of}/partitions/0").json()["mode"] == "read_only"
    deputy(tab.url, "/v1/topics/orders/partitions/0/mode", {"mode": "sidecar", "confirm": "orders"})


def test_a_pause_of_the_cluster_pauses_each_node_and_says_so_of_each(tab: Tab) -> None:
    """Exceptions of nodes end with it, as with the command, and the dry run names them."""
    path = "/v1/settings/deleting.paused"
    switch = "Pause or resume the cluster"
    to = {"What": "deleting", "Why": "a wrong policy"}
    act(tab, switch, "deleting", "deleting of all 3 nodes", **to, Then_it_is="paused")
    deputy(tab.url, path, {"scope": {"kind": "node", "name": "3"}, "value": False, "why": "room"})
    deputy(tab.url, path, {"scope": {"kind": "node", "name": "2"}, "value": True, "why": "a disk"})
    dialog = dry_run(tab, switch, **to, Then_it_is="paused")
    shown = dialog.get_by_label("What it would do")
    for told in (
        "deleting of 1 node without a setting of their own",
        "deleting of node 3goes on, an exception by deputy: roompaused",
        "deleting of node 2paused by deputy: a diskstays paused",
        "is paused already, by chief, whose reason stays: only the exceptions end",
    ):
        expect(shown).to_contain_text(told)
    dialog.get_by_label("to confirm", exact=False).fill("deleting")
    dialog.get_by_role("button", name="Do it").click()
    expect(dialog.get_by_text("node 3", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    stands = {("deleting.paused", "", "true"), ("deleting.paused", "2", "true")}
    assert {each for each in settings(tab.url) if each[0] == "deleting.paused"} == stands
    deputy(tab.url, path, {"scope": {"kind": "node", "name": "2"}, "value": None})
    act(tab, switch, "deleting", "paused by chief", **to, Then_it_is="running")
    assert not [each for each in settings(tab.url) if each[0] == "deleting.paused"]


def test_an_exception_made_since_the_dry_run_is_told(tab: Tab) -> None:
    path = "/v1/settings/deleting.paused"
    to = {"What": "deleting", "Then_it_is": "paused", "Why": "a wrong policy"}
    dialog = dry_run(tab, "Pause or resume the cluster", **to)
    deputy(tab.url, path, {"scope": {"kind": "node", "name": "3"}, "value": False, "why": "room"})
    told = "the cluster is paused, but meanwhile node 3 was made an exception by deputy: room"
    too_late(tab, dialog, "deleting", told)
    leave(dialog, "paused: it is no exception any more")
    act(tab, "Pause or resume the cluster", "deleting", "only the exceptions end", **to)
    pauses = {each for each in settings(tab.url) if each[0] == "deleting.paused"}
    assert pauses == {("deleting.paused", "", "true")}
    act(tab, "Pause or resume the cluster", "deleting", **(to | {"Then_it_is": "running"}))

"""The page of /ui in a real browser, at three real nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.acting_page import (
    FOLLOWER,
    act,
    confirm,
    dry_run,
    settings,
    three_nodes,
    use_token,
)
from tests.e2e.browser import PHONE, Tab, browser
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import NodeQuorum

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LEADERSHIP_STAYED_OR_WENT_ELSEWHERE = re.compile(
    "won the election|did not catch up in time|no leader is known"
)


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
    """At a node that copies nothing itself. Whatever the test does: nothing foreign is asked for,
    nothing is complained of.
    """
    found = Tab(opened, quorum.nodes[FOLLOWER].url)
    yield found
    assert (found.foreign(), found.console) == ([], [])
    found.close()


def test_the_overview_says_if_data_is_safe_and_goes_on_saying_it(
    quorum: NodeQuorum, tab: Tab
) -> None:
    page = tab.open()
    expect(page.get_by_role("status")).to_contain_text(f"live from node {FOLLOWER}")
    expect(page.get_by_role("heading", level=2).first).to_contain_text("safe")
    for node_id in (1, 2, 3):
        expect(page.get_by_text(f"node {node_id}: live")).to_be_visible()
    assert tab.violations() == []
    tab.picture("overview")
    before = page.locator("[data-live=high-watermark]").inner_text()
    paused = PLAIN.put(
        f"{quorum.nodes[1].url}/v1/settings/copying.paused",
        json={"scope": {"kind": "cluster"}, "value": True, "why": "the page is tested"},
        headers={"Authorization": "Bearer chief"},
    )
    assert paused.status_code == 200, paused.text
    expect(page.locator("[data-live=high-watermark]")).not_to_have_text(before)
    expect(page.get_by_role("table", name="Problems of the nodes")).to_contain_text("paused")
    expect(page.get_by_role("heading", level=2).first).to_contain_text("look at this")
    tab.picture("overview-paused")
    assert tab.violations() == []


def test_a_partition_is_found_and_zoomed_by_keyboard_down_to_a_segment_and_its_history(
    tab: Tab,
) -> None:
    page = tab.open("partitions")
    table = page.get_by_role("table", name="Partitions by topic and number")
    expect(table).to_contain_text("payments-1")
    page.get_by_label("Part of the topic's name").fill("pay")
    page.keyboard.press("Enter")
    expect(table.get_by_role("row")).not_to_have_count(0)
    expect(table).not_to_contain_text("orders-")
    assert tab.violations() == []
    tab.picture("partitions")
    table.get_by_role("link", name="payments-1").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("payments-1")
    pieces = page.get_by_role("table", name="Segments that serve these offsets")
    expect(pieces.get_by_role("link").nth(1)).to_be_visible()
    expect(page.get_by_text("Retention", exact=True)).to_be_visible()
    assert tab.violations() == []
    tab.picture("partition")
    page.get_by_role("button", name="Zoom in").focus()
    for _ in range(12):
        page.keyboard.press("Enter")
    expect(pieces.get_by_role("row")).to_have_count(2)  # with the one of the names
    tab.picture("partition-zoomed")
    pieces.get_by_role("link").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Segment ")
    history = page.get_by_role("table", name="Records of the metadata log about it, oldest first")
    expect(history).to_contain_text("COPY_SEGMENT_STARTED")
    expect(history).to_contain_text("COPY_SEGMENT_FINISHED")
    expect(page.get_by_role("table", name="In the store main")).to_contain_text(".rsm-manifest")
    assert tab.violations() == []
    tab.picture("segment")


def test_a_view_that_lacks_a_part_is_not_called_safe(tab: Tab) -> None:
    silent = {"node": 3, "answered": False, "reason": "timeout", "text": "no answer within 2 s"}
    told: dict[str, object] = {
        "nodes": [silent], "problems": [], "log_dir_problem_count": 0, "log_dir_problems": [],
    }  # fmt: skip
    page = tab.open("quorum")
    page.route("**/v1/cluster/problems", lambda route: route.fulfill(json=told))
    page.get_by_role("link", name="Overview").click()
    verdict = page.get_by_role("region", name="look at this")
    expect(verdict).to_contain_text("node 3 does not tell its problems (timeout)")
    place = {"node": 3, "path": "/disk2", "kind": "unreadable", "text": "Input/output error"}
    told |= {"nodes": [], "log_dir_problem_count": 1, "log_dir_problems": [place]}
    expect(verdict).to_contain_text("1 problem in log directories, told below")


def test_a_time_that_no_calendar_has_leaves_the_page_standing(quorum: NodeQuorum, tab: Tab) -> None:
    """As with records whose producer counts nanoseconds, and a retention without an end."""
    policy = {"retention_bytes": None, "copy_paused": False, "delete_paused": False}
    url, admin = (
        f"{quorum.nodes[1].url}/v1/topics/payments/policy",
        {"Authorization": "Bearer chief"},
    )
    said = PLAIN.put(url, json={**policy, "retention_ms": 2**62}, headers=admin)
    assert said.status_code == 200, said.text
    page = tab.open("partitions/payments/1")
    plan = page.locator("dl", has_text="Next is due")
    expect(plan).to_contain_text(re.compile(r"Next is due\s*4,611,6[0-9,]+ ms"))
    assert PLAIN.put(url, json={**policy, "retention_ms": None}, headers=admin).status_code == 200


def test_quorum_and_audit_show_what_all_nodes_tell(quorum: NodeQuorum, tab: Tab) -> None:
    page = tab.open("quorum")
    replicas = page.get_by_role("table", name="Replicas of the log")
    expect(replicas.get_by_role("row")).to_have_count(4)
    nodes = page.get_by_role("table", name="Nodes that registered")
    expect(nodes.get_by_role("row")).to_have_count(4)
    expect(page.locator(".chart canvas")).to_be_visible()
    assert tab.violations() == []
    tab.picture("quorum")
    said = PLAIN.put(
        f"{quorum.nodes[3].url}/v1/node/switches/deleting",
        json={"paused": True, "why": "to be seen in the audit"},
        headers={"Authorization": "Bearer operator"},
    )
    assert said.status_code == 200, said.text
    page = tab.open("audit")
    lines = page.get_by_role("table", name="Newest first, times by each node's clock")
    expect(lines).to_contain_text("to be seen in the audit")
    expect(lines).to_contain_text("operator")
    assert tab.violations() == []
    tab.picture("audit")


def test_a_phone_shows_each_view_without_moving_sideways(
    quorum: NodeQuorum, opened: Browser
) -> None:
    tab = Tab(opened, quorum.nodes[FOLLOWER].url, size=PHONE)
    for place in ("", "partitions", "partitions/payments/1", "quorum", "audit"):
        page = tab.open(place)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], place
        assert tab.violations() == [], place
        tab.picture(f"phone-{place.replace('/', '-') or 'overview'}")
    assert (tab.foreign(), tab.console) == ([], [])
    tab.close()


def test_a_token_is_in_this_tab_alone(quorum: NodeQuorum, tab: Tab) -> None:
    page = tab.open()
    expect(page.get_by_text("anonymous: read, reads only")).to_be_visible()
    page.get_by_role("button", name="Use a token").click()
    expect(page.get_by_role("dialog", name="Token")).to_be_visible()
    assert tab.violations() == []
    page.get_by_label("A token of the node's token file").fill("chief")
    page.keyboard.press("Enter")
    expect(page.get_by_text("chief: admin")).to_be_visible()
    page.reload()
    expect(page.get_by_text("chief: admin")).to_be_visible()
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert [each for each in tab.asked if "chief" in each] == []
    other = page.context.new_page()
    other.goto(f"{tab.url}/ui")
    expect(other.get_by_text("anonymous: read, reads only")).to_be_visible()
    page.get_by_role("button", name="Forget the token").click()
    expect(page.get_by_text("anonymous: read, reads only")).to_be_visible()


def test_what_a_role_may_not_do_is_there_with_the_reason(tab: Tab) -> None:
    page = tab.open("actions")
    buttons = page.get_by_role("list").get_by_role("button")
    expect(buttons).to_have_count(7)
    for number in range(7):
        expect(buttons.nth(number)).to_be_disabled()
        expect(buttons.nth(number)).to_have_accessible_description(re.compile("without a token"))
    assert tab.violations() == []
    tab.picture("actions-without-a-token")
    use_token(page, "operator")
    expect(page.get_by_role("button", name="Pause or resume this node")).to_be_enabled()
    handing = page.get_by_role("button", name="Hand over leadership")
    expect(handing).to_be_disabled()
    expect(handing).to_have_accessible_description(re.compile("needs the role admin"))
    tab.picture("actions-of-an-operator")
    act(tab, "Pause or resume this node", "copying", Why="a look at it")
    act(tab, "Limit this node's rates", "limits", Copies="1048576")
    limits = PLAIN.get(f"{tab.url}/v1/node/limits").json()
    assert (limits["copy_bytes_per_s"], limits["read_bytes_per_s"]) == (1_048_576, None)


def refused(tab: Tab, name: str, why: str, **fields: str) -> None:
    """The dry run says that the node would refuse it, and why; nothing can be confirmed."""
    dialog = dry_run(tab, name, **fields)
    expect(dialog.get_by_label("What it would do")).to_contain_text(why)
    expect(dialog.get_by_role("button", name="Do it")).to_have_count(0)
    tab.picture(f"refused-{name.lower().replace(' ', '-')}")
    dialog.get_by_role("button", name="Leave it").click()
    button = tab.page.get_by_role("button", name=name, exact=True)
    expect(button).to_be_focused()  # where a keyboard goes on


def dry_run_fails(tab: Tab, name: str, why: str, **fields: str) -> None:
    """The node's own word of why it can't be done is shown."""
    tab.page.get_by_role("button", name=name, exact=True).click()
    dialog = tab.page.get_by_role("dialog", name=name)
    for label, value in fields.items():
        dialog.get_by_label(label, exact=False).fill(value)
    dialog.get_by_role("button", name="Show what it would do").click()
    expect(dialog.get_by_role("alert")).to_contain_text(why)
    tab.forgive(409)
    dialog.get_by_role("button", name="Leave it").click()


def hand_over(quorum: NodeQuorum, tab: Tab) -> None:
    """To a voter other than the follower. An election decides, which another one may win: then the
    page says so, and it is asked again, as a person would.
    """
    while True:
        leader = quorum.leader()
        other = next(each for each in (1, 3) if each != leader)
        told = f"node {leader}node {other}"
        dialog = confirm(tab, "Hand over leadership", f"{other}", told, Node_id=f"{other}")
        done, lost = dialog.get_by_text("Done."), dialog.get_by_role("alert")
        expect(done.or_(lost)).to_be_visible()
        if done.is_visible():
            dialog.get_by_role("button", name="Close").click()
            return
        expect(lost).to_contain_text(LEADERSHIP_STAYED_OR_WENT_ELSEWHERE)
        tab.forgive(409, 503)
        dialog.get_by_role("button", name="Leave it").click()


def restore_what_a_slip_took(quorum: NodeQuorum, tab: Tab) -> None:
    """A person set the retention too low: the trash shows what went, and gives it back."""
    act(tab, "Set the topic's retention", "payments", Bytes="9000", Why="a slip")
    listed = f"{tab.url}/v1/trash?topic=payments"

    def in_trash() -> set[int]:
        return {each["partition"] for each in PLAIN.get(listed).json()["partitions"]}

    quorum.wait_until(lambda: in_trash() == {0, 1}, "the trash")
    page = tab.open("trash")
    trash = page.get_by_role("table", name="Partitions with something in the trash, or held")
    expect(trash).to_contain_text("taken by retention")
    assert tab.violations() == []
    tab.picture("trash")
    trash.get_by_role("link", name="payments-1").click()
    refused(tab, "Release the hold", "is not held", Why="too early")
    readable = "readers have all of it"
    act(tab, "Restore from the trash", "payments-1", readable, Why="it was a slip")
    found = PLAIN.get(f"{listed}&limit=10").json()["partitions"]
    assert {each["partition"]: each["state"] for each in found} == {0: "expired", 1: "held"}
    act(tab, "Release the hold", "payments-1", "held by chief: it was a slip", Why="the policy")

    def states() -> dict[int, str]:
        listed_now = PLAIN.get(listed).json()["partitions"]
        return {each["partition"]: each["state"] for each in listed_now}

    # Until that pass the partition is in no list at all.
    quorum.wait_until(lambda: states() == {0: "expired", 1: "expired"}, "the next pass")
    act(tab, "Restore from the trash", "payments-1", readable, Why="a slip once more")


def test_each_action_tells_what_it_would_do_and_does_it_at_any_node(
    quorum: NodeQuorum, tab: Tab
) -> None:
    page = tab.open("actions")
    use_token(page, "chief")
    noisy = {"Topic_name": "logs.*", "From_now_on": "not tiered", "Why": "noise"}
    act(tab, "Tier topics, or end it", "logs.*", **noisy)
    switch = "Pause or resume the cluster"
    act(tab, switch, "copying", "paused: nothing new is begun", Then_it_is="paused", Why="a store")
    act(tab, switch, "copying", "paused by chief", Then_it_is="running", Why="over")
    refused(tab, "Hand over leadership", "does not vote", Node_id="77")
    hand_over(quorum, tab)
    refused(tab, "Remove a node", "is a voter of the quorum", Node_id="3")
    act(tab, "Collect orphans", "collect", "0 objects")
    url = quorum.nodes[FOLLOWER].url
    assert settings(url) == {("topics.tiered", "logs.*", "false")}
    page = tab.open("partitions/payments/1")
    of = f"{url}/v1/topics/payments"
    act(tab, "Set the topic's retention", "payments", Milliseconds="315360000000", Why="policy")
    assert PLAIN.get(f"{of}/policy").json()["retention_ms"] == 315_360_000_000
    restore_what_a_slip_took(quorum, tab)
    act(tab, "Delete records", "payments-1", First_offset="15", Why="by mistake")
    assert PLAIN.get(f"{of}/partitions/1").json()["log_start_offset"] == 15
    act(tab, "Delete the topic's tiered data", "payments", "2 partitions")
    act(tab, "Undo the deletion of its tiered data", "payments", "kept; copying goes on")
    states = PLAIN.get(f"{of}/tiered-data").json()["partitions"]
    assert {each["delete_state"] for each in states} == {None}
    act(tab, "Allow gaps", "payments-1", "removed by compaction", Why="a mirror filled it")
    dry_run_fails(tab, "Skip offsets", "no damaged segment stops", Why="a try")
    act(tab, "Change the mode", "payments-1", Mode="paused")
    assert PLAIN.get(f"{of}/partitions/1").json()["mode"] == "paused"
    actions = {each["action"] for each in PLAIN.get(f"{url}/v1/cluster/audit").json()["lines"]}
    assert {"policy_set", "setting_changed", "partition_marked"} <= actions


def test_an_action_that_failed_says_why_and_is_looked_at_anew(quorum: NodeQuorum, tab: Tab) -> None:
    """The dry run that was shown is out of date: by its answer somebody else leads now."""
    page = tab.open("actions")
    use_token(page, "chief")
    leader = quorum.leader()
    other, third = (each for each in quorum.nodes if each != leader)
    why = f"node {third} won the election in epoch 9 and leads now, not node {other}"
    problem = {"kind": "conflict", "detail": why, "reason": "NOT_TRANSFERRED"}
    page.route("**/v1/quorum/transfer", lambda asked: asked.fulfill(status=409, json=problem))
    dialog = confirm(tab, "Hand over leadership", f"{other}", Node_id=f"{other}")
    expect(dialog.get_by_role("alert")).to_contain_text(why)
    expect(dialog.get_by_label("What it would do")).to_have_count(0)
    expect(dialog.get_by_role("button", name="Do it")).to_have_count(0)
    assert tab.violations() == []
    dialog.get_by_role("button", name="Show what it would do").click()
    expect(dialog.get_by_label("What it would do")).to_contain_text(f"node {other}")
    expect(dialog.get_by_role("alert")).to_have_count(0)
    expect(dialog.get_by_label("to confirm", exact=False)).to_have_value("")
    tab.forgive(409)
    dialog.get_by_role("button", name="Leave it").click()


@pytest.mark.parametrize("place", ["%", "partitions/%E0%A4%A/0", "x?%"])
def test_an_address_that_is_cut_off_leaves_the_page_standing(tab: Tab, place: str) -> None:
    page = tab.open(place)
    expect(page.get_by_role("link", name="Overview")).to_be_visible()
    tab.forgive(400, 404, 422)
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", level=2).first).to_be_visible()


def test_what_only_the_leaders_node_can_do_names_it_and_is_done_there(
    quorum: NodeQuorum, opened: Browser, tab: Tab
) -> None:
    page = tab.open("partitions/orders/0")
    use_token(page, "chief")
    for name in ("Repair damaged segments", "Reset the claim"):
        button = page.get_by_role("button", name=name)
        expect(button).to_be_disabled()
        expect(button).to_have_accessible_description(re.compile("only node 1, .* open its page"))
    beside = Tab(opened, quorum.nodes[1].url)
    page = beside.open("partitions/orders/0")
    use_token(page, "chief")
    act(beside, "Repair damaged segments", "orders-0", "0 damaged")
    refused(beside, "Reset the claim", "would refuse it")
    assert (beside.foreign(), beside.console) == ([], [])
    beside.close()

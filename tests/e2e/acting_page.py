"""Three real nodes with their page, and what a person does in it: a token, a dry run, a word."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from kafka_formats.properties import parse_meta_properties
from tests.e2e.browser import Tab
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import NodeQuorum
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS

TOKENS = {"night": "read", "operator": "operate", "chief": "admin", "deputy": "admin"}
"""Names and roles; the token of each is its name."""
FOLLOWER = 2


@contextmanager
def three_nodes(home: Path) -> Iterator[NodeQuorum]:
    """Nodes that have copied the captured segments, with a token for each name of TOKENS."""
    (home / "store").mkdir()
    shutil.copytree(CAPTURED, home / "kafka")
    meta = home / "kafka" / "meta.properties"
    kafka_cluster_id = parse_meta_properties(meta.read_bytes(), source=str(meta)).cluster_id
    tokens = home / "tokens"
    lines = [f"{n} {role} {hashlib.sha256(n.encode()).hexdigest()}" for n, role in TOKENS.items()]
    tokens.write_text("\n".join(lines) + "\n")
    sections: dict[str, dict[str, object]] = {
        "http": {"anonymous_role": "read", "tokens_file": str(tokens)},
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(home / "store")},
        "retention": {"interval_s": 1.0},
    }
    with NodeQuorum(home, str(kafka_cluster_id), sections, home / "kafka") as running:
        url = running.nodes[FOLLOWER].url
        running.wait_until(
            lambda: (
                PLAIN.get(f"{url}/v1/cluster").json()["totals"]["copy_segment_finished"]
                == CAPTURED_SEGMENTS
            ),
            "every segment to be copied",
        )
        yield running


def use_token(page: Page, token: str) -> None:
    page.get_by_role("button", name="Use a token").click()
    page.get_by_label("A token of the node's token file").fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"{token}: {TOKENS[token]}")).to_be_visible()


def dry_run(tab: Tab, name: str, **fields: str) -> Locator:
    """The dialog of an action with its dry run, in which nothing is wrong for axe."""
    tab.page.get_by_role("button", name=name, exact=True).click()
    dialog = tab.page.get_by_role("dialog", name=name)
    for label, value in fields.items():
        field = dialog.get_by_label(label.replace("_", " "), exact=False)
        if field.evaluate("each => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    expect(dialog.get_by_role("button", name="Do it")).to_have_count(0)
    dialog.get_by_role("button", name="Show what it would do").click()
    expect(dialog.get_by_label("What it would do")).to_be_visible()
    assert tab.violations() == []
    return dialog


def confirm(tab: Tab, name: str, word: str, told: str = "", **fields: str) -> Locator:
    """As a person does it: a dry run, which says `told`, and the word. A wrong word is not enough.
    Gives the dialog.
    """
    dialog = dry_run(tab, name, **fields)
    expect(dialog.get_by_label("What it would do")).to_contain_text(told)
    confirmed = dialog.get_by_label("to confirm", exact=False)
    confirmed.fill(f"{word}x")
    expect(dialog.get_by_role("button", name="Do it")).to_be_disabled()
    tab.picture(f"action-{name.lower().replace(' ', '-')}")
    confirmed.fill(word)
    tab.page.keyboard.press("Enter")
    return dialog


def act(tab: Tab, name: str, word: str, told: str = "", **fields: str) -> None:
    """Confirm it, and it is done."""
    dialog = confirm(tab, name, word, told, **fields)
    expect(dialog.get_by_text("Done.")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()


def settings(url: str) -> set[tuple[str, str, str]]:
    """The settings of the cluster that stand: name, scope's name, value."""
    found = PLAIN.get(f"{url}/v1/settings").json()["settings"]
    return {(each["setting"], each["scope"]["name"], each["value"]) for each in found}

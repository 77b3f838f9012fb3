"""Store settings become store configurations; secrets come from a file and show nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest
from strandline.settings.loading import load_settings
from strandline.settings.store_configs import store_configs


def settings_text(credentials: Path | None) -> str:
    line = f'credentials_file = "{credentials}"\n' if credentials else ""
    return f'[stores.main]\nkind = "s3"\nbucket = "tier"\nprefix = "a/"\n{line}'


def load(tmp_path: Path, credentials: Path | None = None) -> str:
    path = tmp_path / "strandline.toml"
    path.write_text(settings_text(credentials))
    return repr(store_configs(load_settings(path, {}).settings)["main"])


def test_credentials_come_from_the_file_and_do_not_show(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text(
        "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = s3cr%et\n"
    )
    path = tmp_path / "strandline.toml"
    path.write_text(settings_text(credentials))
    config = store_configs(load_settings(path, {}).settings)["main"]
    assert (config.access_key_id, config.secret_access_key) == ("AKIDEXAMPLE", "s3cr%et")
    assert "s3cr" not in repr(config)


def test_without_a_file_the_usual_lookup_applies(tmp_path: Path) -> None:
    assert "tier" in load(tmp_path)


@pytest.mark.parametrize("text", ["", "no section", "[default]\naws_access_key_id = x\n", "\0\0"])
def test_a_useless_credentials_file_says_what_it_lacks(tmp_path: Path, text: str) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text(text)
    with pytest.raises(InvalidRequest, match=r"credentials_file .*default"):
        load(tmp_path, credentials)


def test_a_missing_credentials_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="can't be read"):
        load(tmp_path, tmp_path / "absent")


def test_no_store_at_all_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"\[stores\.main\]"):
        store_configs(load_settings(None, {}).settings)

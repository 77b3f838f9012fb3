"""Doctor proves the private keys for Aiven's segments, and no text shows one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from strandline.doctor.aiven_keys import check_aiven_keys
from strandline.doctor.masking import Masker, known_secrets
from strandline.doctor.private_files import check_private_files
from strandline.settings.loading import leaves, load_settings
from strandline.settings.settings import Settings
from strandline.settings.store_configs import store_configs
from tests.rlm.aiven_writer import KEYS


def settings_of(key: Path, tmp_path: Path, environment: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "strandline.toml"
    path.write_text(
        f'[stores.main]\nkind = "filesystem"\npath = "{tmp_path}"\n'
        f'[stores.main.aiven_keys]\nkey1 = "{key}"\n'
    )
    return load_settings(path, environment or {}).settings


@pytest.fixture
def private(tmp_path: Path) -> Path:
    path = tmp_path / "private.pem"
    shutil.copy(KEYS / "private.pem", path)
    path.chmod(0o600)
    return path


def test_a_private_key_is_found_right(tmp_path: Path, private: Path) -> None:
    settings = settings_of(private, tmp_path)
    (proven,) = check_aiven_keys(settings)
    assert proven.ok, proven.detail
    (file,) = check_private_files(settings)
    assert file.ok
    assert "stores.main.aiven_keys.key1" in file.check
    (config,) = store_configs(settings).values()
    assert config.aiven_keys == (("key1", private),)


def test_what_is_no_private_key_or_is_open_to_others_is_told(tmp_path: Path, private: Path) -> None:
    private.chmod(0o644)
    (file,) = check_private_files(settings_of(private, tmp_path))
    assert not file.ok
    for wrong in (KEYS / "public.pem", tmp_path / "absent.pem"):
        (found,) = check_aiven_keys(settings_of(wrong, tmp_path))
        assert not found.ok
        assert str(wrong) in found.detail


def test_the_environment_names_keys_too(tmp_path: Path, private: Path) -> None:
    variable = {"STRANDLINE_STORES__MAIN__AIVEN_KEYS": f'{{"key2": "{private}"}}'}
    settings = settings_of(private, tmp_path, variable)
    assert set(settings.stores["main"].aiven_keys) == {"key1", "key2"}


def test_the_settings_tell_where_each_key_came_from(tmp_path: Path, private: Path) -> None:
    settings_of(private, tmp_path)
    path = tmp_path / "strandline.toml"
    loaded = load_settings(path, {})
    told = {key: value for key, value in leaves(loaded.settings) if "aiven_keys" in key}
    assert told == {"stores.main.aiven_keys.key1": private}
    assert loaded.origins["stores.main.aiven_keys.key1"] == str(path)


def test_the_key_is_masked_in_a_bundle(tmp_path: Path, private: Path) -> None:
    masker = Masker(known_secrets(settings_of(private, tmp_path), {}, ()))
    for line in private.read_text().splitlines()[1:-1]:
        assert line not in masker.mask(f"some log: {line}")

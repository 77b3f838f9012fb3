"""The private keys for segments that Aiven's plug-in encrypted."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_formats.errors import InvalidRequest
from strandline.doctor.finding import Finding
from strandline.settings.settings import Settings


def check_aiven_keys(settings: Settings) -> Iterator[Finding]:
    """A finding for each key file: the file holds a consistent private key, or what is wrong."""
    for name, store in settings.stores.items():
        if not store.aiven_keys:
            continue
        # Imported here: few stores have such keys, and the library is slow to import.
        from rlm.data_plane.aiven_keys import PRIVATE_KEY, AivenKeys

        setting = f"stores.{name}.aiven_keys"
        for key_id, path in store.aiven_keys.items():
            check = f"{setting}.{key_id}"
            try:
                AivenKeys.ring({key_id: path}, setting=setting, skip_proof=False)
            except InvalidRequest as error:
                yield Finding(check, False, str(error).removeprefix(f"{check}: "))
            else:
                yield Finding(check, True, f"{path} holds an {PRIVATE_KEY}")

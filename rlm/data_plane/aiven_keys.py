"""Unwraps the data keys of segments that Aiven's plug-in encrypted; they are wrapped with RSA keys.

The wrapping is RSA-OAEP with SHA3-512 for both digest and mask, which the cryptography library does
not support, so the decryption is done here with the numbers of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha3_512
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPrivateNumbers
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kafka_formats.errors import InvalidRequest, Refused
from rlm.format.manifest_transforms import Encryption

KEY_FILE_BYTES_MAX = 64 * 1024
KEY_FILES_MAX = 100
PRIVATE_KEY = "RSA private key without a passphrase"

_DIGEST_BYTES = 64
_AES_KEY_BYTES = (16, 24, 32)


class AivenKeys:
    """Private keys with the ids that they probably have. `setting` is the setting that names the
    files, for errors. `repr` shows no key.
    """

    def __init__(self, keys: Sequence[tuple[str, RSAPrivateNumbers]], *, setting: str) -> None:
        self._keys = keys
        self._setting = setting

    def __repr__(self) -> str:
        """The number of keys."""
        return f"AivenKeys({len(self._keys)})"

    @classmethod
    def load(cls, paths: Iterable[str], *, setting: str) -> AivenKeys:
        """Load files, or folders of `*.pem`. Raises InvalidRequest if one can't be read, or if none
        has a private key.
        """
        files = [file for path in paths for file in _files(Path(path), setting)]
        if len(files) > KEY_FILES_MAX:
            raise InvalidRequest(
                f"it names {len(files)} key files: name at most {KEY_FILES_MAX}", field=setting
            )
        read = ((file.stem, _read(file, setting)) for file in files)
        keys = [(name, numbers) for name, numbers in read if numbers is not None]
        if files and not keys:
            raise InvalidRequest(
                f"none of the files that it names has an {PRIVATE_KEY}: name one", field=setting
            )
        return cls(keys, setting=setting)

    @classmethod
    def ring(cls, files: Mapping[str, Path], *, setting: str, skip_proof: bool = True) -> AivenKeys:
        """Load the files by the ids of their key pairs. Raises InvalidRequest if a file can't be
        read or has no private key. Without `skip_proof` the key's numbers are checked.
        """
        keys = []
        for key_id, file in files.items():
            numbers = _read(file, f"{setting}.{key_id}", skip_proof=skip_proof)
            if numbers is None:
                raise InvalidRequest(
                    f"{file} has no {PRIVATE_KEY}: name a different file",
                    field=f"{setting}.{key_id}",
                )
            keys.append((key_id, numbers))
        return cls(keys, setting=setting)

    def data_key(self, encryption: Encryption, *, source: str) -> bytes:
        """The key of a segment's chunks. Raises Refused if none of the private keys unwraps it."""
        # Try the key with this id first. Only the right key gives a correct padding.
        likely_first = sorted(self._keys, key=lambda key: key[0] != encryption.key_id)
        for _, numbers in likely_first:
            key = _unwrapped(numbers, encryption.wrapped_data_key)
            if key is not None and len(key) in _AES_KEY_BYTES:
                return key
        raise Refused(
            f"{source}: the segment is encrypted under the key pair {encryption.key_id[:60]!r}: "
            f"name its private key in {self._setting}"
            + (f" (none of its {len(self._keys)} keys fits)" if self._keys else "")
        )


def _files(path: Path, setting: str) -> list[Path]:
    try:
        found = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}", field=setting) from None
    if not found:
        raise InvalidRequest(f"the folder {path} has no *.pem: add the key's file", field=setting)
    return found


def _read(file: Path, setting: str, *, skip_proof: bool = True) -> RSAPrivateNumbers | None:
    """The RSA private key in a file; None for other contents, since folders may have public keys,
    too.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(KEY_FILE_BYTES_MAX)
    except OSError as error:
        raise InvalidRequest(f"{file}: {error.strerror}", field=setting) from None
    try:
        # A check of the primes takes ten times as long as an unwrap, and a wrong key fails there
        # anyway. `doctor` checks them.
        key = load_pem_private_key(data, password=None, unsafe_skip_rsa_key_validation=skip_proof)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key.private_numbers() if isinstance(key, RSAPrivateKey) else None


def _unwrapped(key: RSAPrivateNumbers, wrapped: bytes) -> bytes | None:
    """Decrypt RSA-OAEP (RFC 8017, 7.1.2) with an empty label; None if the padding is wrong."""
    modulus = key.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(wrapped, "big")
    if len(wrapped) != size or number >= modulus or size < 2 * _DIGEST_BYTES + 2:
        return None
    try:
        block = _power(key, number).to_bytes(size, "big")
    except (ValueError, OverflowError):  # the numbers are not those of a key
        return None
    masked_seed, masked = block[1 : 1 + _DIGEST_BYTES], block[1 + _DIGEST_BYTES :]
    seed = _xor(masked_seed, _mask(masked, _DIGEST_BYTES))
    data = _xor(masked, _mask(seed, len(masked)))
    padding, one, message = data[_DIGEST_BYTES:].partition(b"\x01")
    if block[0] or data[:_DIGEST_BYTES] != sha3_512().digest() or any(padding) or not one:
        return None
    return message


def _power(key: RSAPrivateNumbers, number: int) -> int:
    """`number` to the private exponent modulo n, from the two primes: four times as fast."""
    first, second = pow(number, key.dmp1, key.p), pow(number, key.dmq1, key.q)
    return second + key.q * ((first - second) * key.iqmp % key.p)


def _mask(seed: bytes, size: int) -> bytes:
    """The mask of MGF1 (RFC 8017, B.2.1)."""
    blocks = (
        sha3_512(seed + counter.to_bytes(4, "big")).digest()
        for counter in range(-(-size // _DIGEST_BYTES))
    )
    return b"".join(blocks)[:size]


def _xor(first: bytes, second: bytes) -> bytes:
    number = int.from_bytes(first, "big") ^ int.from_bytes(second, "big")
    return number.to_bytes(len(first), "big")

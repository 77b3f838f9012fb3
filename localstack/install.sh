#!/usr/bin/env bash
# Make the Python environment that LocalStack runs in, once (about a minute). Prints its folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools=${STRANDLINE_TOOLS_DIR:-$HOME/.cache/strandline-tools}
environment=$tools/localstack-$(cksum <"$here/requirements.txt" | cut -d' ' -f1)

# The marker comes last: a killed installation is begun again.
if [ ! -e "$environment/.installed" ]; then
    rm -rf "$environment"
    "${PYTHON:-python3}" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        -r "$here/requirements.txt" >&2
    touch "$environment/.installed"
fi
echo "$environment"

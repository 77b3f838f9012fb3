"""`strandline node`: the service."""

from __future__ import annotations

from strandline.cli.config_option import ConfigOption
from strandline.cli.exit_codes import ExitCode
from strandline.node.running import run_node
from strandline.settings.loading import load_settings


def node_command(config: ConfigOption = None) -> int:
    """Run the node until SIGTERM or SIGINT; SIGHUP reloads tokens and keys.

    Example: `strandline node --config strandline.toml`
    """
    run_node(load_settings(config).settings)
    return ExitCode.OK

"""Run uvicorn for a benchmark: `python -m benchmarks.serve APP PORT [SAMPLES_FILE]`.

With a file it samples where CPU time goes and writes that when it is stopped.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import uvicorn

from benchmarks.sampler import Sampler

WS_BYTES_MAX = 4 * 1024 * 1024
# Served by plain uvicorn, so that nothing of ours is in what we are compared with.
CONTROL_APP = "benchmarks.control:application"
GATEWAY_HTTP = "controlplane.bridge.http.connection:SocketProtocol"


def main() -> None:
    """Serve until SIGTERM."""
    app, port, *rest = sys.argv[1:]
    sampler = Sampler() if rest else None
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools" if app == CONTROL_APP else GATEWAY_HTTP,
        ws="controlplane.bridge.fleet.frames:FrameProtocol",
        ws_max_size=WS_BYTES_MAX,
        ws_per_message_deflate=False,
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=5,
    )
    # uvicorn raises the signal that stopped it once more; the samples are still to be written.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sampler is not None:
        sampler.start()
    try:
        uvicorn.Server(config).run()
    finally:
        if sampler is not None:
            sampler.write(Path(rest[0]))


if __name__ == "__main__":
    main()

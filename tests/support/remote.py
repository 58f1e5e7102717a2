"""A node of the remote engine, between a gateway under test and some server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from inference.engines.remote.engine import RemoteEngine
from inference.engines.remote.server import RemoteOptions
from inference.node.assets import Assets, ModelAssets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest
from tests.support.nodes import let_in
from tests.support.waiting import until


@contextlib.asynccontextmanager
async def remote_node(
    under_test: GatewayUnderTest,
    url: str,
    *,
    name: str = "remote",
    folder: Path | None = None,
    **options: Any,
) -> AsyncIterator[Node]:
    """Connected, and proved by one token of the server. `options` are those of the engine; `folder`
    has the model's tokenizer.
    """
    engine = RemoteEngine(RemoteOptions(url=url, **{"name": MODEL, **options}), folder)
    settings = NodeOptions(
        gateways=(under_test.fleet_url,),
        name=name,
        credential=let_in(under_test, name),
        probe_interval_s=0.0,
    )
    node = Node(engine, ModelAssets(folder) if folder else Assets(), settings)
    try:
        await node.start()
        await until(lambda: name in under_test.fleet.nodes())
        yield node
    finally:
        await node.close()

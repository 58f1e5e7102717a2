"""The Batches port on PostgreSQL: each question is a function there that takes and answers JSON."""

import msgspec

from controlplane.bridge.postgres.session import AskingSession
from controlplane.gateway.ports_contents import BatchQuestion


class PostgresBatches(AskingSession):
    """Implements `ports_contents.Batches`; one per event loop."""

    name = "batches"
    unavailable = "batches cannot be read or written now"

    async def ask(self, question: BatchQuestion, **facts: object) -> bytes:
        query = f"SELECT batches_{question}(%s::jsonb)::text"
        ((found,),) = await self._rows(query, [msgspec.json.encode(facts).decode()])
        return b"null" if found is None else str(found).encode()

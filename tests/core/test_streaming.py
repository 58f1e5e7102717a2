"""A streamed file by ASGI: each piece is made when it is asked for."""

from collections.abc import Iterator

from django.test import AsyncRequestFactory, RequestFactory

from controlplane.core.streaming import csv_answer


async def test_pieces_are_made_as_they_are_sent() -> None:
    made = []

    def pieces() -> Iterator[bytes]:
        for piece in (b"a", b"b", b"c"):
            made.append(piece)
            yield piece

    answer = csv_answer(AsyncRequestFactory().get("/audit.csv"), "x.csv", pieces())
    assert answer.is_async and made == []
    sent = aiter(answer)
    assert await anext(sent) == b"a"
    assert made == [b"a"]
    assert [piece async for piece in sent] == [b"b", b"c"]


def test_by_wsgi_it_is_a_plain_iterator() -> None:
    answer = csv_answer(RequestFactory().get("/audit.csv"), "x.csv", iter([b"a"]))
    assert not answer.is_async and b"".join(answer) == b"a"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="x.csv"'

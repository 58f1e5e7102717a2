"""Where servers live: short socket paths, folders of our own, parents left alone."""

import os
from pathlib import Path

import pytest

from controlplane.embedded.layout import (
    POINTER_NAME,
    SOCKET_FOLDER_BYTES_MAX,
    Layout,
    LayoutError,
    ServerAccount,
    embedded_layout,
    prepare,
    reachable,
)
from tests.support.embedded import fresh_layout

STRANGER = ServerAccount("stranger", 54_321, 54_321)


def test_a_long_path_gets_a_short_socket_folder_and_always_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("long-" * 20)
    first, second = embedded_layout(deep), embedded_layout(deep)
    assert first == second
    assert len(os.fsencode(first.sockets)) <= SOCKET_FOLDER_BYTES_MAX
    assert first.sockets != embedded_layout(tmp_path / ("other" * 20)).sockets


def test_a_closed_parent_is_seen_and_not_opened(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not reachable(closed / "var", STRANGER)
    assert closed.stat().st_mode & 0o777 == 0o700


def test_an_earlier_choice_is_kept(tmp_path: Path) -> None:
    (tmp_path / POINTER_NAME).write_text("/srv/elsewhere\n")
    assert embedded_layout(tmp_path).home == Path("/srv/elsewhere")


def test_folders_are_private_and_preparing_twice_is_fine() -> None:
    with fresh_layout() as layout:
        prepare(layout)
        for folder in (layout.sockets, layout.redis):
            assert folder.stat().st_mode & 0o777 == 0o700


def test_a_socket_folder_that_is_a_link_is_refused() -> None:
    with fresh_layout() as layout:
        layout.sockets.rmdir()
        target = layout.data / "target"
        target.mkdir(mode=0o700)
        layout.sockets.symlink_to(target)
        current = Layout(layout.data, layout.home, layout.sockets, account=None)
        with pytest.raises(LayoutError, match="must be owned"):
            prepare(current)

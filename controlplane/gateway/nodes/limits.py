"""Named bounds of the fleet link and the close codes that a node sees."""

import msgspec

from controlplane.gateway.nodes.measured.times import Bound

HELLO_TIMEOUT_S = 10.0
PING_INTERVAL_S = 5.0
PONG_TIMEOUT_S = 15.0
PROGRESS_TIMEOUT_S = 30.0
CANCEL_CONFIRM_S = 15.0
TICK_S = 1.0
ASSET_TIMEOUT_S = 60.0
ACK_DELAY_S = 0.05
QUARANTINE_S = 300.0
# A node that stands still for longer gets no new work; the floor is for a pause of its machine.
QUIET = Bound(floor_s=2.0, cap_s=15.0)
FIRST_TOKEN = Bound(floor_s=3.0, cap_s=60.0)
INTER_TOKEN = Bound(floor_s=10.0, cap_s=60.0)
# A request waits so long for its ids.
TOLD_TOKENS = Bound(floor_s=0.5, cap_s=2.0)
# A job that the node says is worked on is not late for so long after it was said.
KEPT_S = 5.0
# It answers no ping either, from the moment that it was noticed to stand still: it is lost.
FROZEN_S = 4.0
EJECT_S = 10.0
# How long the jobs of a broken link wait for its node to dial again.
RESUME_S = 5.0

STRIKES_MAX = 5
STREAM_OUTPUTS_MAX = 2048
FORGOTTEN_MAX = 1024
FENCED_EPOCHS_MAX = 16
NODES_MAX = 4096
CREDITS_MAX = 4096
KV_BLOCKS_MAX = 4_194_304
BLOCK_SIZE_MAX = 4096
CAPABILITIES_MAX = 64
NAME_CHARS_MAX = 100
PLACE_CHARS_MAX = 50
ASSETS_KEPT_MAX = 32
LATE_REPORTS_AT_ONCE = 256

CLOSE_GOING_AWAY = 1001
CLOSE_PROTOCOL = 1002
CLOSE_UNSUPPORTED = 1003
CLOSE_POLICY = 1008
CLOSE_TOO_BIG = 1009
CLOSE_UNAUTHORIZED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_LOST = 4408
CLOSE_FENCED = 4409
CLOSE_REPLACED = 4410
CLOSE_ELSEWHERE = 4421
CLOSE_VERSION = 4426
CLOSE_OVERLOADED = 4429


class LinkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The times that a link keeps; the defaults are those of production."""

    hello_timeout_s: float = HELLO_TIMEOUT_S
    ping_interval_s: float = PING_INTERVAL_S
    pong_timeout_s: float = PONG_TIMEOUT_S
    progress_timeout_s: float = PROGRESS_TIMEOUT_S
    cancel_confirm_s: float = CANCEL_CONFIRM_S
    tick_s: float = TICK_S
    quarantine_s: float = QUARANTINE_S
    quiet: Bound = QUIET
    first_token: Bound = FIRST_TOKEN
    inter_token: Bound = INTER_TOKEN
    told_tokens: Bound = TOLD_TOKENS
    kept_s: float = KEPT_S
    frozen_s: float = FROZEN_S
    eject_s: float = EJECT_S
    resume_s: float = RESUME_S
    strikes_max: int = STRIKES_MAX
    stream_outputs_max: int = STREAM_OUTPUTS_MAX

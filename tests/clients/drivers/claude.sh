# Claude Code: one prompt of 50 kB, by `/v1/messages`; the model needs a window for that.
set -eu
# docs
export ANTHROPIC_BASE_URL="$SLUICE" ANTHROPIC_AUTH_TOKEN="$KEY" ANTHROPIC_MODEL="$LONG_MODEL"
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 CLAUDE_CODE_MAX_CONTEXT_TOKENS=65536
claude -p "What is a hold?"
# end

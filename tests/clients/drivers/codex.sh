# Codex: one prompt of 40 kB, by `/v1/responses`; the model needs a window for that.
set -eu
export CODEX_HOME="$HOME/.codex"
mkdir -p "$CODEX_HOME"
# docs
cat > "$CODEX_HOME/config.toml" <<END
model = "$LONG_MODEL"
model_provider = "sluice"
model_context_window = 65536

[model_providers.sluice]
name = "Sluice"
base_url = "$SLUICE/v1"
env_key = "KEY"
wire_api = "responses"
END
codex exec --skip-git-repo-check "What is a hold?"
# end

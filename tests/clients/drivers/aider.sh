# aider: one edit of a file in a repository, streamed and whole.
set -eu
git init -q . && git config user.email dev@localhost && git config user.name dev
printf 'print("hello")\n' > hello.py
git add hello.py && git commit -qm "Say hello"
export AIDER_ANALYTICS=false AIDER_CHECK_UPDATE=false AIDER_SHOW_RELEASE_NOTES=false
export AIDER_YES_ALWAYS=true AIDER_SHOW_MODEL_WARNINGS=false AIDER_MAP_TOKENS=0
# docs
export OPENAI_API_BASE="$SLUICE/v1" OPENAI_API_KEY="$KEY"
aider --model "openai/$MODEL" --edit-format whole --message "Say goodbye." hello.py
# end
aider --model "openai/$MODEL" --edit-format whole --no-stream --message "Say nothing." hello.py

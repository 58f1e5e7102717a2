# vLLM's benchmark client with its usual data set, by chat and by text, and embeddings.
set -eu
# docs
export OPENAI_API_KEY="$KEY"
for backend in openai-chat:/v1/chat/completions openai:/v1/completions; do
  vllm bench serve --backend "${backend%%:*}" --base-url "$SLUICE" --endpoint "${backend#*:}" \
    --model "$MODEL" --tokenizer "$TOKENIZER" --dataset-name random --num-prompts 4 \
    --random-input-len 64 --random-output-len 16 --save-result --result-filename "${backend%%:*}.json"
done
# end
for each in openai-chat openai; do
  python -c 'import json, sys; exit(json.load(open(sys.argv[1]))["completed"] != 4)' "$each.json"
done

# lm-eval: generation by chat, and log-likelihood by completions, on two tasks of our own.
set -eu
mkdir -p tasks
printf '{"question": "One plus one?", "answer": "2"}\n{"question": "Two?", "answer": "2"}\n' > data.json
for kind in said chosen; do
  cat > tasks/$kind.yaml <<END
task: rooms_$kind
dataset_path: json
dataset_kwargs: {data_files: {test: $HOME/data.json}}
test_split: test
doc_to_text: "{{question}}"
END
done
cat >> tasks/said.yaml <<END
output_type: generate_until
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\n"], max_gen_toks: 16}
metric_list: [{metric: exact_match}]
END
cat >> tasks/chosen.yaml <<END
output_type: multiple_choice
doc_to_choice: ["1", "2"]
doc_to_target: 1
metric_list: [{metric: acc}]
END
# docs
export OPENAI_API_KEY="$KEY"
lm_eval run --model local-chat-completions --apply_chat_template --include_path tasks \
  --tasks rooms_said --model_args "model=$MODEL,base_url=$SLUICE/v1/chat/completions"
lm_eval run --model local-completions --include_path tasks --tasks rooms_chosen \
  --model_args "model=$MODEL,base_url=$SLUICE/v1/completions,tokenizer=$TOKENIZER"
# end

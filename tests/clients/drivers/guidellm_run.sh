# guidellm: a short synchronous load of synthetic prompts.
set -eu
# docs
guidellm run --backend "kind=openai_http,target=$SLUICE,model=$MODEL,api_key=$KEY" \
  --profile kind=synchronous --constraint kind=max_requests,count=4 \
  --tokenizer "kind=hf_auto,model=$TOKENIZER" \
  --data kind=synthetic_text,prompt_tokens=64,output_tokens=16 \
  --output kind=json,path=result.json --disable-console
# end

"""The facts on Sluice that the generator knows. A table and nothing else.

A row of TOPICS is: the names people use, a short answer, what a long answer adds, and the
piece that a right answer contains.
"""

from __future__ import annotations

STAGES = (
    ("gateway", "it checks the key and the limits, places the hold and starts the billing clock."),
    ("load balancer", "it picks a healthy cluster that is near and has little load."),
    ("tokenizer", "it applies the chat template, encodes the prompt and checks the window."),
    ("model router", "it picks the model and the node, by rules and by cached prefixes."),
    ("inference", "it waits in the queue, runs the prefill and then decodes token by token."),
    ("post-processing", "it turns tokens into text, finds stop strings and checks safety."),
    ("billing", "it prices the tokens, settles the hold and writes the ledger entry."),
)

TOPICS = (
    (("Sluice", "this product", "this gateway", "the Sluice gateway", "this project"),
     "Sluice is a self-hosted gateway and control plane for large language models.",
     "It speaks the OpenAI API, checks keys and quotas, routes each request to a node, streams the "
     "tokens and bills every one of them. Each request takes seven stages, and each stage is timed "
     "and shown on the dashboard.", "gateway and control plane"),
    (("a hold", "the hold", "a quota hold", "holds", "hold"),
     "A hold reserves money for a request before any work starts, so that a budget is never "
     "overdrawn.",
     "It is an upper bound of the price. When the answer is complete, the real price is settled "
     "and the rest of the hold is released. A hold that nobody settles expires.",
     "reserves money"),
    (("settle", "settling", "to settle", "settlement", "a settlement"),
     "To settle means to turn a hold into a charge: the real price is booked and the rest is "
     "released.",
     "It happens in the last stage, billing. The final chunk of the answer is sent only after the "
     "charge is committed, so a client that saw a complete answer is always on the ledger.",
     "turn a hold into a charge"),
    (("release", "releasing a hold", "a release"),
     "A release gives the unused part of a hold back to the budget.",
     "It is part of the settlement. A request that fails before its first token releases its whole "
     "hold.", "unused part of a hold"),
    (("TTFT", "time to first token", "the time to first token"),
     "TTFT is the time to first token: how long a client waits until the first token arrives.",
     "It contains the gateway, the queue and the prefill. A cached prefix and a short prompt make "
     "it small. The dashboard shows its p50, p95 and p99.", "time to first token"),
    (("prefill", "the prefill", "the prefill phase"),
     "Prefill is the phase that reads the whole prompt in parallel and fills the KV cache.",
     "It is bound by compute, so long prompts cost time here. With chunked prefill a long prompt "
     "is read in parts, so that other requests go on decoding.", "reads the whole prompt"),
    (("decode", "decoding", "the decode phase", "the decode"),
     "Decode is the phase that makes the answer, one token per pass.",
     "It is bound by memory bandwidth, so many requests are decoded together in one batch. Each "
     "new token is sampled and streamed to the client at once.", "one token per pass"),
    (("the prefix cache", "prefix caching", "a prefix cache", "the prompt cache"),
     "The prefix cache keeps the KV blocks of prompts, so that a repeated beginning is not "
     "computed again.",
     "Blocks are found by an exact hash, and each tenant has its own salt, so nothing is shared "
     "by accident. Cached input tokens are cheaper. Put the stable part of a prompt first.",
     "KV blocks"),
    (("the KV cache", "KV cache", "a KV cache"),
     "The KV cache holds the keys and values of all tokens that the model has read.",
     "It lets the model make the next token without reading the whole prompt again. Sluice keeps "
     "it in blocks that grow and are given back one by one.", "keys and values"),
    (("a quota", "quotas", "the quota", "limits"),
     "A quota limits requests, tokens, concurrency or money for a key, a project or an "
     "organization.",
     "Quotas are checked in the first stage, before any GPU works. A request over its quota gets "
     "the status 429 and a retry-after header.", "limits requests"),
    (("an API key", "API keys", "a key", "keys", "a Sluice key"),
     "An API key starts with sk_sluice_ and proves who sends a request.",
     "It is shown once and stored only as a hash. It can expire, be rotated with overlap, and be "
     "revoked everywhere within two seconds.", "sk_sluice_"),
    (("the ledger", "a ledger", "the billing ledger", "ledger"),
     "The ledger is the record of all money: transfers that are never changed or deleted.",
     "Each row moves an amount from one account to another, so it balances by construction. "
     "Mistakes are corrected by a reversal, never by an update.", "record of all money"),
    (("a node", "nodes", "an inference node", "the node"),
     "A node runs one inference engine and dials out to every gateway.",
     "It listens on nothing, so it needs no open port. It tells the gateway which models, blocks "
     "and credits it has, and sends one frame of tokens per engine step.", "dials out"),
    (("the gateway", "a gateway", "gateway"),
     "The gateway is the process that takes API requests and leads them through the seven stages.",
     "It is plain asyncio without Django in its path. Run one gateway per core behind a balancer.",
     "takes API requests"),
    (("the control plane", "a control plane", "control plane"),
     "The control plane manages keys, quotas, prices, routing rules and the fleet.",
     "It is a Django application with a dashboard and an API. The gateways read their "
     "configuration from a snapshot that it publishes.", "manages keys"),
    (("the tokenizer", "a tokenizer", "tokenization"),
     "The tokenizer turns text into token ids and back.",
     "Sluice tokenizes once, in the gateway, and sends token ids to the node. My own tokenizer is "
     "a byte-level BPE with 4096 entries.", "into token ids"),
    (("a token", "tokens", "one token"),
     "A token is a small piece of text, often a word or a part of a word.",
     "Models read and write tokens, and prices are given per million tokens.", "piece of text"),
    (("the model router", "routing", "the router", "a routing rule", "model routing"),
     "The router picks a model and a node for each request, by rules and by load.",
     "It prefers a node that has the beginning of the prompt in its cache, unless the load says "
     "otherwise. Rules have versions and can be tried on recent traffic first.",
     "picks a model and a node"),
    (("load shedding", "shedding", "overload"),
     "Load shedding means to refuse requests early and honestly when the queues are too long.",
     "The client gets the status 503 with a retry-after header at once, never a silent wait.",
     "refuse requests early"),
    (("streaming", "a stream", "SSE", "token streaming"),
     "Streaming sends each token as soon as it is made, as server-sent events.",
     "Set stream to true in the request. The stream ends with [DONE]. A reader sees the first "
     "words after the time to first token and need not wait for the whole answer.",
     "server-sent events"),
    (("continuous batching", "batching", "batch processing"),
     "Continuous batching adds and removes requests at every step of the engine.",
     "No request waits for a batch to end, so the hardware is always busy and short answers leave "
     "early.", "every step"),
    (("chunked prefill", "prefill chunks", "chunking"),
     "Chunked prefill reads a long prompt in parts, so that other requests go on decoding.",
     "It keeps the time between tokens even while long prompts arrive.", "in parts"),
    (("paged attention", "a KV block", "KV blocks", "the paged KV cache", "blocks"),
     "KV blocks are small pages of the KV cache that are given to requests one by one.",
     "Nothing is wasted on space that a request might need later, and full blocks can be shared "
     "by requests with the same beginning.", "pages of the KV cache"),
    (("the inter-token latency", "inter-token latency", "ITL"),
     "Inter-token latency is the time between two tokens of a stream.",
     "At 25 milliseconds a reader gets 40 tokens per second, faster than anyone reads.",
     "between two tokens"),
    (("p99", "p95", "a percentile", "percentiles", "p50"),
     "A percentile says how long the slowest requests take: p99 is the time that 99 of 100 "
     "requests stay under.",
     "Sluice never shows averages alone, since an average hides the slow requests.", "p99"),
    (("an SLO", "SLOs", "a service level objective"),
     "An SLO is a promise on a number, such as a TTFT under 300 milliseconds for 99 percent of "
     "requests.",
     "Each SLO has an owner, an error budget and alerts that fire when the budget burns too fast.",
     "promise on a number"),
    (("the dashboard", "a dashboard", "the web UI"),
     "The dashboard shows latency, tokens, queues, cache hits, cost and a waterfall of every "
     "request.",
     "It has pages for the overview, the requests, the keys and a playground. It works in light "
     "and dark and on a phone.", "waterfall"),
    (("the waterfall", "a waterfall", "the waterfall of a request"),
     "The waterfall shows where the time of one request went, layer by layer.",
     "It has at least 14 layers inside the seven stages, each with a real time.",
     "where the time"),
    (("the playground", "a playground", "the Playground"),
     "The playground is a page where you can chat with a model and see its TTFT and cost.",
     "It also gives you the curl command and the code for the same call.", "chat with a model"),
    (("an organization", "organizations", "a project", "projects", "a tenant", "tenants"),
     "A tenant is an organization with its projects, members, keys and budgets.",
     "Tenants are kept apart by the database itself, and their caches have different salts.",
     "organization with its projects"),
    (("nano-USD", "the unit of money", "a nano-dollar"),
     "Sluice counts money in whole nano-USD, a billionth of a dollar, so nothing is lost in "
     "rounding.",
     "Prices are given in micro-USD per million tokens, and each ledger line is rounded once.",
     "billionth of a dollar"),
    (("an embedding", "embeddings", "an embedding model"),
     "An embedding is a list of numbers that stands for the meaning of a text.",
     "Texts with a similar meaning get similar numbers, which helps to search.",
     "list of numbers"),
    (("the context window", "context length", "a context window", "the context limit"),
     "The context window is the number of tokens that a model can read and write in one request.",
     "My own window is 4096 tokens. A prompt that does not fit is refused with the code "
     "context_length_exceeded before any GPU works.", "number of tokens"),
    (("temperature", "the temperature", "the temperature parameter"),
     "Temperature says how freely the model picks the next token: 0 always takes the most likely "
     "one.",
     "Higher values give more varied answers and more mistakes.", "next token"),
    (("top_p", "top-p", "nucleus sampling"),
     "With top_p the model picks only among the most likely tokens that together reach that share.",
     "A value of 0.9 leaves out the unlikely tail.", "most likely tokens"),
    (("max_tokens", "the max_tokens parameter", "max tokens"),
     "max_tokens is the largest number of tokens that an answer may have.",
     "The hold is computed from it, so a small value needs a smaller hold.", "largest number"),
    (("speculative decoding", "a draft model", "speculation"),
     "Speculative decoding guesses some tokens cheaply and checks them in one pass.",
     "It pays when many guesses are right, and Sluice shows how many are.", "guesses some tokens"),
    (("a circuit breaker", "circuit breakers", "the circuit breaker"),
     "A circuit breaker stops sending requests to a node that keeps failing.",
     "After a pause it lets a single request through to see if the node is well again.",
     "keeps failing"),
    (("a fallback", "fallbacks", "the fallback chain"),
     "A fallback is the model or pool that takes over when the first one cannot answer.",
     "It is declared per route and visible in the answer.", "takes over"),
    (("the queue", "queue depth", "the node queue", "a queue"),
     "The queue holds requests that wait for a node; its depth is the first sign of overload.",
     "Nodes hold only one or two steps of work, so the queue stays in the gateway.",
     "wait for a node"),
    (("a prompt template", "prompt templates", "stored prompts"),
     "A prompt template is a stored text with versions that the gateway fills in for each request.",
     "Its stable part comes first, so that it stays in the prefix cache.", "stored text"),
    (("the safety check", "the safety classifier", "content filter", "safety"),
     "The safety layer looks for secrets, personal data and harmful text in an answer.",
     "A project can turn it off, flag or block. A blocked answer ends with content_filter.",
     "secrets, personal data"),
    (("write-ahead billing", "when a request is billed"),
     "Write-ahead billing means that the charge is committed before the final chunk is sent.",
     "A client that saw a complete answer is always on the ledger.", "before the final chunk"),
    (("a large language model", "an LLM", "LLM", "a language model", "large language models"),
     "A large language model is a program that has learned to continue text, token by token.",
     "It learns from many examples and has billions of numbers. I am a very small one with about "
     "five million.", "continue text"),
    (("GQA", "grouped-query attention", "grouped query attention"),
     "Grouped-query attention lets several query heads share one key and value head.",
     "It makes the KV cache smaller. I have 8 query heads and 4 key and value heads.",
     "share one key and value head"),
)  # fmt: skip

HOW_TO = (
    (("How do I start Sluice?", "How can I run Sluice?", "How do I run it?", "How to start?",
      "How do I install Sluice?", "What is the command to start Sluice?", "How do I get started?",
      "Which command starts the gateway?", "I want to try Sluice. What do I do?",
      "How do I launch Sluice?", "How can I start the gateway?", "How do I set up Sluice?"),
     "Type make run. It installs what is needed, starts everything and prints a URL, a key and a "
     "curl command.", "make run"),
    (("How do I stop Sluice?", "How can I stop it?", "How do I shut it down?", "How do I quit?"),
     "Press Ctrl-C. Every process stops cleanly, and your data is kept.", "Ctrl-C"),
    (("How do I run the tests?", "How can I test Sluice?", "What is the test command?",
      "Which command runs the tests?", "How do I test it?"),
     "Type make test. It installs what the tests need and runs all of them.", "make test"),
    (("How do I create a key?", "How do I get an API key?", "Where do I get a key?",
      "How can I make a new API key?", "Where can I create keys?", "I need a key."),
     "Open the Keys page of the dashboard and create one. It is shown once, so copy it at once.",
     "Keys page"),
    (("How do I revoke a key?", "How can I delete a key?", "My key leaked. What now?",
      "How do I block a key?", "I lost my key. What should I do?"),
     "Open the Keys page and revoke it. Every gateway refuses it within two seconds.", "revoke it"),
    (("How do I stream tokens?", "How can I stream an answer?", "How do I turn on streaming?",
      "How do I use streaming?", "Can I stream the answer?"),
     "Set stream to true in your request. The tokens then arrive as server-sent events.",
     "stream to true"),
    (("Which API does Sluice speak?", "Is Sluice compatible with OpenAI?", "What API do you have?",
      "Can I use the OpenAI client?", "Does it work with the OpenAI SDK?", "Which API can I use?"),
     "Sluice speaks the OpenAI API. Set the base URL of your client to the gateway and use your "
     "Sluice key.", "OpenAI API"),
    (("What happens when a client disconnects?", "What if I close the connection?",
      "What happens if the client goes away?", "What if I disconnect during a stream?"),
     "The generation stops within one step and its blocks are freed. Only the tokens that were "
     "made are billed.", "stops within one step"),
    (("What happens when a node dies?", "What if a node fails?", "What happens if a node crashes?",
      "What if I lose a node?"),
     "Before the first token the request is tried again on another node. After it, the stream "
     "ends with an error and only the delivered tokens are billed.", "another node"),
    (("What happens when Redis is down?", "What if Redis stops?", "What if Redis fails?"),
     "The service goes on. Each gateway enforces its share of the rate limits, and money stays "
     "exact.", "service goes on"),
    (("What happens when PostgreSQL is down?", "What if the database stops?",
      "What if PostgreSQL fails?"),
     "New requests get the status 503 until the database is back. Nothing is lost, and no restart "
     "is needed.", "503"),
    (("What does error 429 mean?", "Why do I get a 429?", "What is a 429?", "I get error 429."),
     "The status 429 means that a limit or a budget is reached. Wait as long as the retry-after "
     "header says.", "limit or a budget"),
    (("What does error 401 mean?", "Why do I get a 401?", "What is a 401?", "I get error 401."),
     "The status 401 means that the key is missing, wrong, expired or revoked.", "key is missing"),
    (("What does error 503 mean?", "Why do I get a 503?", "What is a 503?", "I get error 503."),
     "The status 503 means that no node can take the request now. Try again after the time in the "
     "retry-after header.", "no node"),
    (("How much does a request cost?", "How is the price computed?", "How are prices computed?",
      "What does a token cost?", "How does billing work?", "How is a request billed?"),
     "The price is the sum of input, cached input and output tokens, each with its own price per "
     "million tokens. Output costs the most.", "output tokens"),
    (("Why is the first request slow?", "How do I make requests faster?", "How can I lower TTFT?",
      "How do I reduce latency?", "How can I make it faster?", "My requests are slow."),
     "Put the stable part of the prompt first so that it is cached, keep prompts short, set "
     "max_tokens and stream the answer.", "cached"),
    (("Which database does Sluice use?", "What database do you use?", "Where is data stored?",
      "Where is my data?"),
     "All money, configuration and history is in PostgreSQL. Redis only helps and may be lost.",
     "PostgreSQL"),
    (("Who uses Sluice?", "Who is Sluice for?", "Who should use Sluice?"),
     "Three people use it: the admin who manages it, the developer who calls the API and finance, "
     "who exports the bills.", "admin"),
    (("Does Sluice log my prompts?", "Are prompts stored?", "Do you save my messages?",
      "Are my prompts private?"),
     "No. Prompts are never logged unless a project turns it on.", "never logged"),
    (("Does Sluice need a GPU?", "Can it run without a GPU?", "Do I need a GPU?",
      "Does this run on a CPU?"),
     "No. The small model that ships with Sluice runs on a CPU. Bigger models want a GPU.", "CPU"),
    (("Which engines does Sluice support?", "Can I use vLLM?", "Which engine runs the model?",
      "What engines are there?"),
     "Sluice runs its own compact torch engine, vLLM, or any server that speaks the OpenAI API.",
     "vLLM"),
    (("Why is it called Sluice?", "What does the name Sluice mean?",
      "Where does the name come from?"),
     "A sluice is a gate that controls how much water flows. Sluice does the same for tokens.",
     "gate that controls"),
    (("How many layers does a trace have?", "How many layers are there in a trace?"),
     "A trace shows at least 14 layers inside the seven stages.", "14 layers"),
    (("What is the slowest stage?", "Which stage takes the longest?", "Where is most time spent?"),
     "Inference is the slowest stage. It takes about 95 percent of the time.", "Inference"),
    (("Why are output tokens more expensive?", "Why does output cost more than input?"),
     "Output tokens are made one by one, while input tokens are read in parallel.", "one by one"),
)  # fmt: skip

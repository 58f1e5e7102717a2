# One node with the compact engine. Build it from the repository's root:
#   docker build -f docker/node.Dockerfile -t sluice-node .
# Without TORCH_LOCKS it takes torch's build for CPUs: of x86-64 from that index, else the public one.
# For GPUs take the public index' own build, and the libraries that it needs:
#   --build-arg TORCH_INDEX= --build-arg "TORCH_LOCKS=torch.txt torch-cuda.txt"
FROM python:3.11.13-slim-bookworm

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG TORCH_LOCKS=
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/data
# The engine's kernels are C code that the machine's own compiler builds at the first start.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /srv/sluice
COPY requirements/node.txt requirements/torch.txt requirements/torch-cpu.txt \
     requirements/torch-cuda.txt requirements/
RUN if [ -z "$TORCH_LOCKS" ] && [ "$(uname -m)" != x86_64 ]; then TORCH_LOCKS=torch.txt TORCH_INDEX=; fi; \
    for lock in ${TORCH_LOCKS:-torch-cpu.txt}; do pip install --no-cache-dir --require-hashes --no-deps \
        -r "requirements/$lock" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} || exit 1; done \
    && pip install --no-cache-dir --require-hashes -r requirements/node.txt
COPY inference inference
RUN useradd --system --uid 10001 --home-dir /data sluice \
    && install -d -o sluice -g sluice -m 0750 /data
USER sluice
VOLUME /data

# A node listens on nothing, so nobody can probe it: one that cannot serve ends by itself, and its
# exit status says whether to start it again (docs/operations.md).
STOPSIGNAL SIGTERM
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "inference", "--log-format", "json"]
CMD ["--model", "inference/assets/sluice-5m"]

# One node. Build it from the repository's root, for what it is to run on:
#   docker build -f docker/node.Dockerfile -t sluice-node .                                the built-in engine on CPUs
#   docker build -f docker/node.Dockerfile --build-arg PACKAGES=cuda -t sluice-node-cuda . the same on GPUs
#   docker build -f docker/node.Dockerfile --build-arg PACKAGES=vllm -t sluice-node-vllm . vLLM on GPUs, x86-64
FROM python:3.11.13-slim-bookworm

ARG PACKAGES=cpu
# Of x86-64 it has builds of torch for CPUs alone; elsewhere the public index has no others.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/data \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Kernels in C are built at the first start, those of Triton when they are first used. The
# distribution keeps no older versions, so none can be named.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 sluice \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data sluice \
    && install -d -o sluice -g sluice -m 0750 /data
WORKDIR /srv/sluice
COPY requirements/node.txt requirements/torch.txt requirements/torch-cpu.txt \
     requirements/torch-cuda.txt requirements/vllm.txt requirements/
RUN case "$PACKAGES-$(uname -m)" in \
        cpu-x86_64) locks="torch-cpu node" ;; \
        cpu-*) locks="torch node" ;; \
        cuda-*) locks="torch torch-cuda node" ;; \
        vllm-x86_64) locks=vllm ;; \
        *) echo "PACKAGES is cpu, cuda or, on x86-64, vllm." && exit 1 ;; \
    esac; \
    for lock in $locks; do \
        index=; [ "$lock" != torch-cpu ] || index=$TORCH_INDEX; \
        pip install --no-cache-dir --require-hashes --no-deps ${index:+--index-url "$index"} \
            -r "requirements/$lock.txt" || exit 1; \
    done
COPY LICENSE ./
COPY inference inference
RUN python -m compileall -q inference
USER 10001:10001
VOLUME /data

# A node listens on nothing, so nobody can probe it: one that cannot serve ends by itself, and its
# exit status says whether to start it again (docs/operations.md).
STOPSIGNAL SIGTERM
HEALTHCHECK NONE
ENTRYPOINT ["python", "-m", "inference", "--log-format", "json"]
CMD ["--model", "inference/assets/sluice-5m"]

# A client with the tools of libnbd, QEMU and the kernel, for compose and Kubernetes: it stands for the program that uses
# the memory.
ARG RUN_BASE=debian:12-slim
FROM ${RUN_BASE}
# nbdinfo says what is in an export by `file`, and nonsense without it.
RUN apt-get update && apt-get install -y --no-install-recommends libnbd-bin file qemu-utils nbd-client e2fsprogs \
    && rm -rf /var/lib/apt/lists/*
USER 10809:10809
CMD ["sleep", "infinity"]

# mrc-testbed in a container; what the rights are for stands in docs/install.md.
#   docker build -t mrc-testbed .
#   docker run --rm -it --cap-add NET_ADMIN --cap-add NET_RAW --cap-add SYS_ADMIN --cap-add SYS_NICE \
#     --security-opt apparmor=unconfined mrc-testbed
# Another release:  docker build --build-arg BASE=ubuntu:24.04 -t mrc-testbed .
ARG BASE=debian:13
FROM ${BASE}
COPY . /mrc-testbed
WORKDIR /mrc-testbed
RUN scripts/provision --no-bmv2
ENV PATH="/mrc-testbed/.venv/bin:${PATH}"
CMD ["make", "demo"]

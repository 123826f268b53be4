# Tilesmith with NVIDIA's GPUs, from a wheel:
#     python scripts/wheels.py dist && docker build -f docker/cuda.Dockerfile -t tilesmith-cuda .
#     docker run --gpus all -v $PWD:/models tilesmith-cuda bench /models/resnet50.onnx --target cuda
# Compiled models need the driver only, which NVIDIA's container runtime mounts, and no toolkit.
FROM python:3.12-slim

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY dist/tilesmith-*-manylinux_2_17_*.whl /tmp/dist/
RUN pip install --no-cache-dir /tmp/dist/tilesmith-*_$(uname -m).whl && rm -r /tmp/dist
RUN useradd --create-home tilesmith
USER tilesmith
WORKDIR /home/tilesmith

ENTRYPOINT ["tilesmith"]
CMD ["doctor"]

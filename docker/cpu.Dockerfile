# Tilesmith on a CPU, from a wheel:
#     python scripts/wheels.py dist && docker build -f docker/cpu.Dockerfile -t tilesmith .
#     docker run -v $PWD:/models tilesmith run /models/resnet50.onnx
# The package ziglang is the C compiler of `tilesmith export` and `tilesmith op`; models are compiled without one.
FROM python:3.12-slim

COPY dist/tilesmith-*-manylinux_2_17_*.whl /tmp/dist/
RUN pip install --no-cache-dir /tmp/dist/tilesmith-*_$(uname -m).whl ziglang && rm -r /tmp/dist
RUN useradd --create-home tilesmith
USER tilesmith
WORKDIR /home/tilesmith

ENTRYPOINT ["tilesmith"]
CMD ["doctor"]

# Tilesmith inside ONNX Runtime and ncnn, with a notebook, from a wheel:
#     python scripts/wheels.py dist && docker build -f docker/engines.Dockerfile -t tilesmith-engines .
#     docker run -p 8888:8888 tilesmith-engines
# The notebook engines.ipynb shows both engines.  `make_resnet.py` writes the model of README's first command.
FROM python:3.12-slim

COPY dist/tilesmith-*-manylinux_2_17_*.whl /tmp/dist/
RUN pip install --no-cache-dir /tmp/dist/tilesmith-*_$(uname -m).whl onnxruntime ncnn jupyterlab && rm -r /tmp/dist
RUN useradd --create-home tilesmith
USER tilesmith
WORKDIR /home/tilesmith
COPY examples/engines.ipynb benchmarks/make_resnet.py /home/tilesmith/

ENTRYPOINT ["jupyter"]
CMD ["lab", "--ip=0.0.0.0", "--no-browser"]

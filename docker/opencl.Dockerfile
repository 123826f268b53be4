# Tilesmith with OpenCL on the CPU (PoCL), from a wheel:
#     python scripts/wheels.py dist && docker build -f docker/opencl.Dockerfile -t tilesmith-opencl .
#     docker run -v $PWD:/models tilesmith-opencl bench /models/resnet50.onnx --target opencl
# For a GPU, put its OpenCL driver in the place of the package pocl-binary-distribution, which is for x86-64.
FROM python:3.12-slim

COPY dist/tilesmith-*-manylinux_2_17_*.whl /tmp/dist/
RUN pip install --no-cache-dir /tmp/dist/tilesmith-*_$(uname -m).whl pyopencl pocl-binary-distribution && rm -r /tmp/dist
RUN useradd --create-home tilesmith
USER tilesmith
WORKDIR /home/tilesmith

ENTRYPOINT ["tilesmith"]
CMD ["doctor"]

# Tilesmith on a CPU, from a wheel: `python scripts/wheels.py dist && docker build -f docker/cpu.Dockerfile .`
# The image has no C compiler.  Models are compiled in it; `tilesmith export` needs one: pip install ziglang.
FROM python:3.12-slim

COPY dist/tilesmith-*-manylinux_2_17_*.whl /tmp/dist/
RUN pip install --no-cache-dir /tmp/dist/tilesmith-*_$(uname -m).whl && rm -r /tmp/dist
RUN useradd --create-home tilesmith
USER tilesmith
WORKDIR /home/tilesmith

ENTRYPOINT ["tilesmith"]
CMD ["doctor"]

"""The steps of the images' files: what they name exists, and each step runs.

Docker is not at hand.  `TILESMITH_IMAGES=1` runs the steps of each file in a fresh virtual
environment in place of the base image, which takes minutes and installs packages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = sorted((ROOT / "docker").glob("*.Dockerfile"))
HOME = "/home/tilesmith"

slow = pytest.mark.skipif(
    os.environ.get("TILESMITH_IMAGES") != "1" or sys.platform != "linux",
    reason="takes minutes: set TILESMITH_IMAGES=1",
)


@dataclass(slots=True)
class Image:
    """The steps of a file.

    base: the image that it begins with.
    steps: pairs of an instruction and its text, in order, but for those below.
    entry, command: what a container runs.
    """

    base: str = ""
    steps: list[tuple[str, str]] = field(default_factory=list)
    entry: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def parsed(path: Path) -> Image:
    image = Image()
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, text = line.partition(" ")
        if word == "FROM":
            image.base = text
        elif word == "ENTRYPOINT":
            image.entry = json.loads(text)
        elif word == "CMD":
            image.command = json.loads(text)
        else:
            image.steps.append((word, text))
    return image


@pytest.mark.parametrize("path", IMAGES, ids=lambda p: p.stem)
def test_what_an_image_copies_exists(path: Path) -> None:
    image = parsed(path)
    assert image.base == "python:3.12-slim"
    assert image.entry and image.command
    assert {word for word, _ in image.steps} <= {"COPY", "RUN", "USER", "WORKDIR", "ENV"}
    assert ("USER", "tilesmith") in image.steps
    for word, text in image.steps:
        if word == "COPY":
            *sources, target = text.split()
            assert target.endswith("/")
            for source in sources:
                assert source.startswith("dist/tilesmith-") or (ROOT / source).is_file()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel for this machine, made as the files say."""
    folder = tmp_path_factory.mktemp("dist")
    platform = f"manylinux-{os.uname().machine}"
    command = [sys.executable, str(ROOT / "scripts" / "wheels.py"), str(folder), platform]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@dataclass(frozen=True, slots=True)
class Container:
    """A virtual environment and a folder in place of an image's file system.

    root: the folder.  The paths /tmp/dist and the home of the image are in it.
    variables: the environment.
    """

    root: Path
    variables: dict[str, str]

    def inside(self, text: str) -> str:
        """A command or path with the image's paths replaced."""
        return re.sub(r"(?<![\w/])(/tmp/dist|/home/tilesmith)", rf"{self.root}\1", text)

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.inside(command)],
            env=self.variables,
            cwd=self.inside(HOME),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout


def started(path: Path, dist: Path, root: Path) -> Container:
    """A container in which all steps of a file were run.  Its PATH has no C compiler."""
    environment, tools = root / "env", root / "tools"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    tools.mkdir()
    for name in ("bash", "rm", "ls", "uname", "env"):
        (tools / name).symlink_to(shutil.which(name) or name)
    keep = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.endswith("_proxy")}
    container = Container(root, {**keep, "PATH": f"{environment / 'bin'}:{tools}"})
    home = Path(container.inside(HOME))
    home.mkdir(parents=True)
    container.variables["HOME"] = str(home)
    for word, text in parsed(path).steps:
        if word == "COPY":
            *sources, target = text.split()
            into = Path(container.inside(target))
            into.mkdir(parents=True, exist_ok=True)
            for source in sources:
                folder, pattern = (
                    (dist, source.removeprefix("dist/"))
                    if source.startswith("dist/")
                    else (ROOT, source)
                )
                copied = list(folder.glob(pattern))
                assert copied, source
                for file in copied:
                    shutil.copy(file, into)
        elif word == "ENV":
            container.variables.update(pair.split("=", 1) for pair in text.split())
        elif word == "RUN" and text.startswith("useradd"):
            continue  # the virtual environment belongs to the user who runs this
        elif word == "RUN":
            container.run(text)
    return container


EMPTY_KERNEL = (
    "import pyopencl as cl; context = cl.Context(cl.get_platforms()[0].get_devices()); "
    'cl.Program(context, "__kernel void f() {}").build()'
)


@slow
@pytest.mark.parametrize("path", IMAGES, ids=lambda p: p.stem)
def test_every_step_of_an_image_runs(path: Path, dist: Path, tmp_path: Path) -> None:
    container = started(path, dist, tmp_path)
    image = parsed(path)
    if path.stem != "engines":
        assert "tilesmith" in container.run(" ".join([*image.entry, *image.command]))
        shutil.copy(ROOT / "benchmarks" / "make_resnet.py", container.inside(HOME))
    container.run("python make_resnet.py resnet50.onnx && tilesmith run resnet50.onnx")
    if path.stem == "cpu":
        container.run("tilesmith export resnet50.onnx -o library")
        assert list(Path(container.inside(HOME)).glob("library/lib/*.so"))
    if path.stem == "opencl":
        try:
            container.run(f"python -c '{EMPTY_KERNEL}'")
        except AssertionError as e:
            pytest.skip(f"PoCL's compiler does not know this processor: {str(e)[-200:]}")
        container.run("tilesmith run resnet50.onnx --target opencl")
    if path.stem == "engines":
        container.run("jupyter lab --version")
        container.run("jupyter nbconvert --to notebook --execute engines.ipynb --output run.ipynb")


def test_the_notebook_of_the_engines_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ncnn")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / "engines.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "engines.ipynb", "exec"), names)


def test_the_recipe_of_conda_needs_what_the_package_needs() -> None:
    """rattler-build is not at hand: what the recipe repeats has to be what pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "conda" / "recipe.yaml").read_text()
    run = re.search(r"^  run:\n((?:    - .*\n)+)", text, re.M)
    assert run is not None
    needed = [line.removeprefix("    - ").replace(" ", "") for line in run[1].splitlines()]
    assert needed == [f"python{project['requires-python']}", *project["dependencies"]]
    assert f'version: "{project["version"]}"' in text
    assert project["description"] in text
    [(name, target)] = project["scripts"].items()
    assert f"- {name} = {target}" in text

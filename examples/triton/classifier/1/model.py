"""A compiled model in Triton's Python backend: this file and `model.tsm` in a folder of a version.

Triton joins requests to batches (`dynamic_batching` in config.pbtxt); each call here has a list of
them.  The rows of all requests are one call of the model, whose first dimension is open.
"""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb

import tilesmith as ts


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        self.exe = ts.load(folder / config["parameters"]["file"]["string_value"])

    def execute(self, requests):
        columns = [
            [pb.get_input_tensor_by_name(r, i.name).as_numpy() for r in requests]
            for i in self.exe.inputs
        ]
        try:
            results = self.exe.run(
                {i.name: np.concatenate(c) for i, c in zip(self.exe.inputs, columns)}
            )
        except ts.TilesmithError as e:
            error = pb.TritonError(str(e))
            return [pb.InferenceResponse(output_tensors=[], error=error) for _ in requests]
        edges = np.cumsum([len(rows) for rows in columns[0]])[:-1]
        parts = {name: np.split(y, edges) for name, y in results.items()}
        return [
            pb.InferenceResponse([pb.Tensor(name, rows[k]) for name, rows in parts.items()])
            for k in range(len(requests))
        ]

"""Quantisation after training: from a graph of floats and samples of its inputs to a graph whose
products have operands of few bits.

`entry.quantize` reads from top to bottom:

    load, fold                          the layers that may be quantised
    calibrate on the samples            what values each layer reads
    sensitivity of each layer           the model's error with that layer alone quantised
    predicted time of each layer        in each scheme, by the performance model
    assign schemes                      the cheapest ones within the limit of loss, checked together
    rewrite                             a graph of quantise and dequantise nodes

The result is an ordinary graph: it is compiled like any other, or written as ONNX.
"""

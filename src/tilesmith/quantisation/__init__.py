"""Quantisation after training: it turns a graph of floats, with samples of its inputs, into a graph
whose products have operands of few bits.

`entry.quantize` does these steps, in this order:

    load, fold                          the layers that may be quantised
    calibrate on the samples            statistics of the values that each layer reads
    sensitivity of each layer           the model's error with that layer alone quantised
    predicted time of each layer        in each scheme, by the performance model
    assign schemes                      the fastest ones within the limit of loss, measured together
    rewrite                             a graph of quantise and dequantise nodes

The result is an ordinary graph, which can be compiled or written as ONNX.
"""

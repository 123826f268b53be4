"""An accelerator of our own: its description, and the instructions that it runs.

`machine` holds the parameters, `instructions` the table from which the encoding, the text and the
checks of `program` follow.
"""

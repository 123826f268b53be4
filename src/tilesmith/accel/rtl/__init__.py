"""The accelerator as hardware, in Amaranth: `pip install 'tilesmith[rtl]'`.

`accelerator` puts the machine together, `copies` moves tiles, `compute` runs steps, `expressions`
and `floats` make logic of the ALU's operations.  `verilate` builds a simulation of it.
"""

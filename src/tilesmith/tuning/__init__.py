"""The tuner: everything that measures, searches, learns and reports.

`model` tunes a whole model, `template` one tensor expression or template.  Both read from top to
bottom:

    compile untuned, profile            how long each kernel takes in its place
    choose algorithms                   whole variants of the model, profiled
    tasks of the kernels --search-->    trials, each in the records at once
    compile with the records
    tuned against untuned, in turns     the better one is kept

The package is not called `tune`, since `tilesmith.tune` is the function.
"""

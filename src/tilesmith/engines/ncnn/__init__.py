"""Networks of ncnn with layers of compiled code."""

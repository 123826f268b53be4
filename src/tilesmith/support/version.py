"""The version of this package, for rooms below the public surface."""

VERSION = "0.1.0"

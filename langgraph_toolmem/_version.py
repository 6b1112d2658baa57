"""The package's version, read by the build and by `toolmem --version`."""

__version__ = "0.1.0"

"""Who may include whom: the table of docs/ARCHITECTURE.md, section 4, as data."""

ARROWS = {
    "base": [],
    "container": ["base"],
    "format": ["base"],
    "text": ["base"],
    "transcode": ["base", "format"],
    "checkpoint": ["base", "container", "format", "text"],
    "quantize": ["base", "format", "transcode"],
    "kernel": ["base", "format", "transcode"],
    "weight": ["base", "format", "transcode", "quantize", "kernel"],
    "model": ["base", "format", "checkpoint", "kernel", "text"],
    "cli": [
        "base",
        "container",
        "format",
        "text",
        "transcode",
        "checkpoint",
        "quantize",
        "kernel",
        "model",
    ],
}

# Headers that device and instruction-set files may include: C++20, no allocation, no exceptions.
# The headers of format/ belong to them too, but for those that speak of formats at run time.
HOST_FORMAT = ["registry.h", "packed_weight.h", "variants.h"]
DEVICE_SAFE = [
    "src/packstone/base/bits.h",
    "src/packstone/base/small_float.h",
    "src/packstone/format/scheme.h",
    "src/packstone/format/layout.h",
    "src/packstone/format/format.h",
]

# Directories of hand-written code; everything else is data or text.
CODE_SUFFIXES = (".h", ".cc", ".cu", ".inc", ".py", ".sh", ".cmake")

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
FILE_BYTES_MAX = 1 << 20
# Files that no script can make again, each with its own limit.
LARGE_FILES = {"models/packstone-17m/model.safetensors": 40_000_000}
# Text of other projects, kept as it is.
QUOTED_TEXT = ["models/packstone-17m/heldout.txt"]

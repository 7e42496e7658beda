#include "packstone/transcode/format_ops_body.inc"

PACKSTONE_FAMILY_OPS(GgufSmallFormats)

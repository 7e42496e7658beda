// Compiled only to make the precompiled header.

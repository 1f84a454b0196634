# Included right after llama.cpp's own project() call: build the library alone, without the common
# utilities of its programs, which Cohabit does not use. It takes a fifth of the full build's time.
set(LLAMA_BUILD_COMMON OFF)

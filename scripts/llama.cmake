# Included right after llama.cpp's own project() call.

# Build the library alone, without the common utilities of its programs, which Cohabit does not use.
# It takes a fifth of the full build's time.
set(LLAMA_BUILD_COMMON OFF)

# A GCC that is older than an AMD processor with AVX-512 takes it for a Zen 3, which has none, and
# schedules for that: decoding 8 streams of a small model is then 7 % slower. What the processor can
# do is not touched, only for which one the code is arranged.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND NOT (DEFINED GGML_NATIVE AND NOT GGML_NATIVE))
  execute_process(
    COMMAND ${CMAKE_C_COMPILER} -march=native -Q --help=target
    OUTPUT_VARIABLE native_target ERROR_QUIET)
  if(native_target MATCHES "-mtune=[ \t]+znver[123][ \t\r\n]"
     AND native_target MATCHES "-mavx512f[ \t]+\\[enabled\\]")
    add_compile_options(
      "$<$<COMPILE_LANGUAGE:C,CXX>:-mtune=icelake-server;-mprefer-vector-width=512>")
  endif()
endif()

# How every folder of src/ becomes a target. A folder declares once what it may include (DEPENDS);
# tools/check_layers reads the same declarations and compares them with the real includes.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# "", "address" (with undefined behaviour) or "thread".
set(FOREBAY_SANITIZE "" CACHE STRING "Sanitizer to build with: address, thread or empty")

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Werror=return-type
                    -fno-omit-frame-pointer -fPIC)
# g++ 12 warns falsely of overlapping and outlying copies in plain string assignments (GCC bugs 105329,
# 105651).
add_compile_options("$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow>")
add_compile_definitions(_FILE_OFFSET_BITS=64 _GNU_SOURCE)
if(FOREBAY_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -O1 -g1)
  add_link_options(-fsanitize=address,undefined)
  # Half of the compile time, for what AddressSanitizer sees as well; the fuzzers' compiler keeps them.
  add_compile_options(
    "$<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=null;-fno-sanitize=vptr;-fno-sanitize=object-size;-fno-sanitize=alignment>")
elseif(FOREBAY_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -O1 -g1)
  add_link_options(-fsanitize=thread)
endif()

if(FOREBAY_SANITIZE)
  # Ten sources in one compilation: 60 % of the time. The release build compiles each alone.
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 10)
  # To g++ what is included is a header, whose classes should not hold what is in a nameless namespace.
  add_compile_options("$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
endif()

find_program(FOREBAY_CCACHE ccache)
if(FOREBAY_CCACHE)
  # ccache takes a precompiled header only if told that nobody uses __TIME__ and the like with it.
  # Paths below the base are the same wherever the sources lie: a new clone finds what another built.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=true
      ${FOREBAY_CCACHE})
endif()
find_program(FOREBAY_MOLD mold)
if(FOREBAY_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Precompiled headers: the standard library's, fmt's and, for tests, GoogleTest's are half of what
# there is to compile. Other compilers than g++ (the fuzzers') go without.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)
  set(common <algorithm> <array> <atomic> <chrono> <cstring> <deque> <functional> <map>
      <memory> <mutex> <optional> <span> <string> <thread> <unordered_map> <variant> <vector>
      <fmt/format.h>)
  file(WRITE ${CMAKE_BINARY_DIR}/pch.cc "")
  foreach(kind library test)
    add_library(forebay_${kind}_headers OBJECT ${CMAKE_BINARY_DIR}/pch.cc)
    target_link_libraries(forebay_${kind}_headers PRIVATE fmt::fmt spdlog::spdlog Threads::Threads)
  endforeach()
  target_precompile_headers(forebay_library_headers PRIVATE ${common})
  target_link_libraries(forebay_test_headers PRIVATE GTest::gtest)
  target_precompile_headers(forebay_test_headers PRIVATE ${common} <gtest/gtest.h>)
endif()

# forebay_headers(TARGET library|test): compiles the target's sources with such a header.
function(forebay_headers target kind)
  if(TARGET forebay_${kind}_headers)
    target_precompile_headers(${target} REUSE_FROM forebay_${kind}_headers)
  endif()
endfunction()

include(GoogleTest)

# forebay_module(NAME SOURCES x.cc ... [DEPENDS core plan ...] [LIBS fmt::fmt ...] [TESTS x_test.cc ...]
#                [THREADS x_test.cc ...])
# makes the static library forebay_NAME and, with TESTS, the program NAME_test. THREADS: those of the
# tests that have threads, all that the thread sanitizer is built for.
function(forebay_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBS;TESTS;THREADS" ${ARGN})
  add_library(forebay_${name} STATIC ${ARG_SOURCES})
  target_include_directories(forebay_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  list(TRANSFORM ARG_DEPENDS PREPEND forebay_)
  target_link_libraries(forebay_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LIBS})
  forebay_headers(forebay_${name} library)
  if(FOREBAY_SANITIZE STREQUAL "thread" AND ARG_THREADS)
    forebay_test(${name}_test SOURCES ${ARG_THREADS} LIBS forebay_${name} THREADS)
  elseif(ARG_TESTS)
    forebay_test(${name}_test SOURCES ${ARG_TESTS} LIBS forebay_${name})
  endif()
endfunction()

# forebay_test(NAME SOURCES x_test.cc ... [LIBS ...] [TIMEOUT s] [LABELS l ...] [THREADS] [SHARDS n])
# Every test has a time limit. Cases are registered one by one, so that one failure is one line; with
# SHARDS, in that many parts, for programs of a thousand short cases. THREADS: it has threads, and so
# is one of those that the thread sanitizer is built for.
function(forebay_test name)
  cmake_parse_arguments(ARG "THREADS" "TIMEOUT;SHARDS" "SOURCES;LIBS;LABELS" ${ARGN})
  if(FOREBAY_SANITIZE STREQUAL "thread" AND NOT ARG_THREADS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  forebay_headers(${name} test)
  if(ARG_SHARDS)
    math(EXPR last "${ARG_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME ${name}.${shard} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT
        "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}" LABELS "${ARG_LABELS}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

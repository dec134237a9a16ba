// What an input of session_fuzz is: one byte of Mode bits, then frames and marks, played in turn.
//
// A frame is sent as it is, however broken; its header only says how many bytes are sent before the
// next step. What a client cannot know before it runs is filled in: in a request that decodes, a
// handle "@n" is the nth handle that the server gave (0 is the root), a right "#n" the nth right,
// and a cookie of kLastLease the number of the last lease.
//
// A mark is the size of a frame's header, and begins with one of the words below.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "wire/frame.h"

namespace forebay::fuzz {

enum Mode : unsigned char {
  kAtOnce = 1,     // after the first frame everything is sent without waiting for the server
  kSlowStore = 2,  // calls of the store take a while
  kFailing = 4,    // some calls of the store fail
  kRude = 8,       // as kAtOnce, and the first frame is not waited for either
};

inline constexpr size_t kMarkSize = wire::kHeaderSize;
inline constexpr std::string_view kCut = "CUT!";     // the next connection, without a hello
inline constexpr std::string_view kResume = "BACK";  // the next connection, resuming the session
inline constexpr std::string_view kWait = "WAIT";    // a while, longer than the store takes

inline constexpr uint64_t kLastLease = 0x1ea5e;

inline constexpr uint32_t kEagerMax = 256;
inline constexpr uint32_t kChunk = 4096;

// seeds.cc: valid conversations, by name.
std::map<std::string, std::string> seeds();

}  // namespace forebay::fuzz

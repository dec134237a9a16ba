// The version of what is built, from CMakeLists.txt.
#pragma once

namespace forebay {

inline constexpr const char* kVersionText = FOREBAY_VERSION;

}  // namespace forebay

// What is wrong with a command line, in our words: an unknown verb or option comes first, with the
// nearest known one, because whatever else is wrong often follows from it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace forebay {

// After `app.parse()` threw `e`.
std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& e);

// "unknown verb 'lss'; did you mean 'ls'?"
std::string unknown_verb(const CLI::App& app, const std::string& wrong);

}  // namespace forebay

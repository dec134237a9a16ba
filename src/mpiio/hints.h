// Hints: what a program, its user or its site says about a file (MPI-4.0, 14.2.8), and what became
// of it. A value that makes no sense is not taken, as MPI asks; a hint that is known and does
// nothing here is remembered as ignored.
//
// Sources, each overriding the one before: /etc/romio-hints or the file that ROMIO_HINTS names
// (lines "key value"), MPI_Info, FOREBAY_HINTS ("key=value;key=value").
//
// No MPI here; a value, of one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::mpiio {

class Hints {
 public:
  enum class Taken { yes, bad_value, ignored, unknown };

  Hints();  // the defaults

  Taken set(std::string_view key, std::string_view value);
  // In effect unless somebody says otherwise: another default for this file.
  void assume(std::string_view key, std::string_view value);
  // It cannot apply to this file: from now on it is not in effect, whatever was given.
  void ignore(std::string_view key, std::string_view why);
  // Every effective value, by name: what MPI_File_get_info returns.
  const std::map<std::string, std::string, std::less<>>& all() const { return values_; }
  const std::string& operator[](std::string_view key) const;
  uint64_t number(std::string_view key) const;  // 0 if it is not set
  bool is(std::string_view key, std::string_view value) const { return (*this)[key] == value; }
  bool given(std::string_view key) const { return given_.contains(key); }  // not only the default

  // "key=value (why)" of those that were given and did nothing.
  const std::set<std::string>& ignored() const { return ignored_; }

  // Names of hints with what they do, for documentation and its test.
  struct About {
    std::string_view name, fallback, what;
  };
  static const std::vector<About>& honoured();
  static const std::vector<std::string_view>& known_and_ignored();

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::set<std::string, std::less<>> given_;
  std::set<std::string> ignored_;
};

// "key value" lines, with # for comments, the last first; and "key=value;key=value". To be set in
// the order of the list.
using HintList = std::vector<std::pair<std::string, std::string>>;
HintList parse_hint_file(std::string_view text);
HintList parse_hint_variable(std::string_view text);

}  // namespace forebay::mpiio

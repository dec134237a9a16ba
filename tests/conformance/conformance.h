// The conformance suite: one set of cases, run over every Store (store/store.h is the contract).
//
// A Subject makes a fresh Store for each run. To bring in a store, write a subjects_x.cc that
// returns its Subjects, declare that function here and name it in subjects.cc. What a store lacks
// is said with its reason, and shows as a skipped test.
//
// A Case is a function on an Env (env.h). Each runs plainly, and under faults: call k of the lowest
// store fails with EIO, for k = 0, 1, 2 ... until the case meets no fault. Every such run must end
// in success or surface that error, and leave a tree that fsck (fsck.h) finds whole.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "store/store.h"

namespace forebay::conformance {

class Env;

enum class Feature {
  folders,     // directories below the top, rename, links
  content,     // reads give what was written
  seals,       // forged and foreign handles and rights are refused
  unlinked,    // an unlinked file stays while it is open
  attributes,  // setattr is kept
  others,      // callers other than this process, each with its own access
  xattr,       // extended attributes
  any_link,    // a handle is good while any hard link of its file is left
  fallocate,   // punching holes and zeroing ranges
  threads,     // several threads call at once
  set_id,      // a write clears set-id bits, whoever writes
  shared,      // what servers keep for many clients: attributes, places of appends
  told,        // what fails after it was acknowledged is told by the next call; faults are injected
};

// One store, alive. The destructor leaves nothing behind.
class Fixture {
 public:
  virtual ~Fixture() = default;
  virtual Store& store() = 0;
  // How many rights the store holds open, if it can say.
  virtual std::optional<size_t> open_rights() { return std::nullopt; }
};

// Put around the lowest store of a fixture: a fault injector, a trace, or nothing.
using Wrap = std::function<std::unique_ptr<Store>(std::unique_ptr<Store>)>;

struct Subject {
  std::string name;
  std::function<std::unique_ptr<Fixture>(const Wrap&)> make;
  std::map<Feature, std::string> lacks = {};  // with the reason
  // Under faults every call up to this one fails once; beyond, ever larger steps are taken, because
  // a case of thousands of like calls would take hours.
  uint64_t every_call = 48;
};

inline void PrintTo(const Subject& subject, std::ostream* out) {
  *out << subject.name;
}

struct Case {
  const char* name;
  std::vector<Feature> needs;
  void (*run)(Env&);
};

// subjects.cc: all of them, and each part.
std::vector<Subject> subjects();
std::vector<Subject> memory_subjects();
std::vector<Subject> posix_subjects();
std::vector<Subject> remote_subjects();
// The same store under a decorator that must not be noticed.
Subject under_trace(Subject subject);
Subject under_idle_faults(Subject subject);
Subject under_scheduler(Subject subject);

// All cases, and each part.
std::vector<Case> cases();
std::vector<Case> name_cases();
std::vector<Case> rename_cases();
std::vector<Case> directory_cases();
std::vector<Case> data_cases();
std::vector<Case> list_cases();
std::vector<Case> access_cases();
std::vector<Case> attribute_cases();
std::vector<Case> shared_cases();

}  // namespace forebay::conformance

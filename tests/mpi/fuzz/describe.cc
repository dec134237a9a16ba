// A script in words.
#include "script.h"

namespace fuzz {
namespace {

std::string amode_text(int amode) {
  static const std::pair<int, const char*> names[] = {{MPI_MODE_RDONLY, "RDONLY"},
                                                      {MPI_MODE_RDWR, "RDWR"},
                                                      {MPI_MODE_WRONLY, "WRONLY"},
                                                      {MPI_MODE_CREATE, "CREATE"},
                                                      {MPI_MODE_EXCL, "EXCL"},
                                                      {MPI_MODE_DELETE_ON_CLOSE, "DELETE_ON_CLOSE"},
                                                      {MPI_MODE_UNIQUE_OPEN, "UNIQUE_OPEN"},
                                                      {MPI_MODE_APPEND, "APPEND"}};
  std::string s;
  for (auto [bit, name] : names)
    if (amode & bit) s += (s.empty() ? "" : "|") + std::string(name);
  return s;
}

std::string spans_text(const Spans& spans) {
  std::string s;
  for (size_t i = 0; i < spans.size() && i < 6; ++i)
    s += " " + std::to_string(spans[i].at) + "+" + std::to_string(spans[i].length);
  if (spans.size() > 6)
    s += " ... (" + std::to_string(spans.size()) + " pieces to " + std::to_string(end_of(spans)) +
         ")";
  return s;
}

std::string call_text(const Access& a) {
  std::string s = a.how == How::nonblocking ? "i" : "";
  s += a.write ? "write" : "read";
  if (a.where == Where::at) s += "_at";
  if (a.where == Where::shared) s += "_shared";
  if (a.where == Where::ordered)
    s += "_ordered";
  else if (a.collective)
    s += "_all";
  if (a.how == How::split) s += "_begin";
  return s;
}

const char* whence_text(int whence) {
  return whence == MPI_SEEK_SET ? "SET" : whence == MPI_SEEK_CUR ? "CUR" : "END";
}

const char* wait_text(WaitHow how) {
  static const char* names[] = {"Wait",    "Test",     "Waitall",
                                "Waitany", "Waitsome", "Request_get_status"};
  return names[static_cast<int>(how)];
}

std::string expected_text(const Turn& turn) {
  std::string s = " expects";
  for (int64_t e : turn.expected) s += " " + std::to_string(e);
  return s;
}

std::string turn_text(const Step& step, const Turn& turn) {
  std::string s;
  switch (step.verb) {
    case Verb::set_view:
      return "set_view disp " + std::to_string(turn.view.disp) + " etype " + turn.view.etype->text +
             " filetype " + turn.view.filetype->text;
    case Verb::seek:
      return std::string("seek ") + std::to_string(turn.number) + " " + whence_text(turn.whence);
    case Verb::position:
      return "get_position" + expected_text(turn);
    case Verb::byte_offset:
      return "get_byte_offset " + std::to_string(turn.number) + expected_text(turn);
    case Verb::wait:
      s = wait_text(turn.how);
      for (const AccessPtr& a : turn.accesses) s += " #" + std::to_string(a->id);
      return s;
    case Verb::end_split:
      return "end of #" + std::to_string(turn.accesses[0]->id);
    default:
      for (const AccessPtr& a : turn.accesses) s += (s.empty() ? "" : "; ") + describe(*a);
      return s;
  }
}

// What all ranks do alike; empty if each has its own line.
std::string common_text(const Step& step) {
  const Turn& turn = step.turns[0];
  std::string s;
  switch (step.verb) {
    case Verb::open:
      s = "open " + amode_text(step.amode);
      for (const auto& [key, value] : step.hints) s += " " + key + "=" + value;
      return s;
    case Verb::close:
      return "close";
    case Verb::seek_shared:
      return "seek_shared " + std::to_string(turn.number) + " " + whence_text(turn.whence);
    case Verb::position_shared:
      return "get_position_shared" + expected_text(turn);
    case Verb::size:
      return "get_size expects " + std::to_string(turn.number);
    case Verb::set_size:
      return "set_size " + std::to_string(turn.number);
    case Verb::preallocate:
      return "preallocate " + std::to_string(turn.number);
    case Verb::fence:
      return step.flag ? "sync, barrier, sync" : "barrier (atomic mode)";
    case Verb::barrier:
      return "barrier";
    case Verb::atomicity:
      return step.flag ? "set_atomicity true" : "set_atomicity false";
    case Verb::race_shared:
      return "in any order:";
    case Verb::race_atomic:
      return "at once, in atomic mode:";
    default:
      return "";
  }
}

}  // namespace

std::string describe(const Access& a) {
  std::string s = call_text(a) + " #" + std::to_string(a.id) + " at etype " +
                  std::to_string(a.offset) + ", " + std::to_string(a.count) + " of " +
                  a.memory->text;
  if (!a.spans.empty()) s += " -> file" + spans_text(a.spans);
  if (!a.write && !a.race && static_cast<int64_t>(a.data.size()) < a.bytes())
    s +=
        " (gives " + std::to_string(a.data.size()) + " of " + std::to_string(a.bytes()) + " bytes)";
  return s;
}

std::string describe(const Session& session) {
  std::string out;
  for (size_t i = 0; i < session.steps.size(); ++i) {
    const Step& step = session.steps[i];
    out += "  step " + std::to_string(i) + ": " + common_text(step) + "\n";
    for (size_t r = 0; r < step.turns.size(); ++r) {
      if (!step.turns[r].takes_part) continue;
      std::string mine = turn_text(step, step.turns[r]);
      if (!mine.empty()) out += "    rank " + std::to_string(r) + ": " + mine + "\n";
    }
  }
  return out;
}

}  // namespace fuzz

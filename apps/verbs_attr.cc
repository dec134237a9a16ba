// `forebay attr`: the numbers that clients share about a file.
#include <fcntl.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "store/open_path.h"
#include "verbs.h"

namespace forebay {
namespace {

struct AttrOptions {
  std::string what, path, name;
  std::vector<std::string> numbers;
  bool json = false;
};

struct Form {
  std::string_view what;
  Op op;
  size_t least, most;  // numbers
  std::string_view numbers;
};
constexpr Form kForms[] = {{"get", Op::attr_get, 0, 0, ""},
                           {"set", Op::attr_set, 1, 1, " VALUE"},
                           {"create", Op::attr_create, 0, 1, " [VALUE]"},
                           {"remove", Op::attr_remove, 0, 0, ""},
                           {"add", Op::attr_fetch_add, 1, 1, " STEP"},
                           {"cas", Op::attr_cas, 2, 2, " EXPECTED DESIRED"},
                           {"list", Op::attr_list, 0, 0, ""},
                           {"holes", Op::attr_list, 0, 0, ""}};

// "-3" is 2^64 - 3: numbers count modulo 2^64.
Result<uint64_t> value_of(std::string_view text) {
  const bool minus = text.starts_with('-');
  const std::string_view digits = text.substr(minus ? 1 : 0);
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failed != std::errc() || end != digits.data() + digits.size()) {
    return Error(EINVAL, fmt::format("'{}' is not a whole number of 64 bits", text));
  }
  return minus ? 0 - value : value;
}

void show_list(const std::string& data, bool json) {
  Json::Object all;
  for (size_t at = 0; at + sizeof(uint64_t) < data.size();) {
    uint64_t value;
    std::memcpy(&value, data.data() + at, sizeof value);
    const std::string name = data.c_str() + at + sizeof value;
    at += sizeof value + name.size() + 1;
    if (!json) fmt::print("{} {}\n", printable(name), value);
    all.emplace_back(name, std::to_string(value));
  }
  if (json) print_json(all);
}

// Each is 16 bytes: offset and length.
void show_holes(Cli& cli, const Reply& reply, bool json) {
  Json::Array all;
  for (size_t at = 0; at + 2 * sizeof(uint64_t) <= reply.data.size(); at += 2 * sizeof(uint64_t)) {
    uint64_t hole[2];
    std::memcpy(hole, reply.data.data() + at, sizeof hole);
    if (!json) fmt::print("{} {}\n", hole[0], hole[1]);
    all.push_back(
        Json::Object{{"offset", std::to_string(hole[0])}, {"length", std::to_string(hole[1])}});
  }
  if (reply.value > all.size()) {
    cli.complain(fmt::format("{} more are not listed", reply.value - all.size()));
  }
  if (json) print_json(all);
}

Result<void> perform(Cli& cli, const AttrOptions& o, const Form& form) {
  std::vector<uint64_t> numbers;
  for (const std::string& text : o.numbers) {
    auto value = value_of(text);
    if (!value) return value.error();
    numbers.push_back(*value);
  }
  auto file = open_path(cli.store(), cli.caller(), o.path, {O_RDONLY});
  if (!file && file.error().code() == EACCES) {
    file = open_path(cli.store(), cli.caller(), o.path, {O_WRONLY});
  }
  if (!file) return file.error();
  Request r;
  r.op = form.op;
  r.caller = cli.caller();
  r.handle = file->handle;
  r.right = file->right;
  if (form.op != Op::attr_list) r.name = o.name;
  const bool holes = form.what == "holes";
  if (holes) r.flags = kFlagPlus;
  if (!numbers.empty()) r.value = numbers.back();
  if (form.op == Op::attr_cas) r.expected = numbers.front();
  Result<Reply> reply = cli.store().call(std::move(r));
  Request close;
  close.op = Op::close;
  close.caller = cli.caller();
  close.handle = file->handle;
  close.right = file->right;
  (void)cli.store().call(std::move(close));
  if (!reply) return std::move(reply).error();
  const bool shows =
      form.op == Op::attr_get || form.op == Op::attr_fetch_add || form.op == Op::attr_cas;
  if (holes) show_holes(cli, *reply, o.json);
  if (form.op == Op::attr_list && !holes) show_list(reply->data, o.json);
  if (shows) fmt::print("{}\n", reply->value);
  if (form.op == Op::attr_cas && reply->value != numbers.front()) {
    return Error(EAGAIN, "not swapped: it was another value");
  }
  return {};
}

int run_attr(Cli& cli, const AttrOptions& o) {
  for (const Form& form : kForms) {
    if (form.what != o.what) continue;
    const bool named = form.op != Op::attr_list;
    if (o.name.empty() == named || o.numbers.size() < form.least || o.numbers.size() > form.most) {
      cli.complain(fmt::format("usage: forebay attr {} FILE{}{}", form.what, named ? " NAME" : "",
                               form.numbers));
      return kExitUsage;
    }
    if (auto done = perform(cli, o, form); !done) {
      cli.complain(done.error(), o.name.empty() ? o.path : fmt::format("{}: {}", o.path, o.name));
      return kExitFailed;
    }
    return kExitOk;
  }
  cli.complain(
      fmt::format("'{}' is not one of get, set, create, remove, add, cas, list, holes", o.what));
  return kExitUsage;
}

}  // namespace

void add_attr_verbs(Cli& cli) {
  auto options = std::make_shared<AttrOptions>();
  CLI::App* sub = cli.add("attr", "numbers that clients share about a file",
                          [options](Cli& c) { return run_attr(c, *options); });
  sub->add_option("what", options->what,
                  "get NAME, set NAME VALUE, create NAME [VALUE], remove NAME, add NAME STEP and "
                  "cas NAME EXPECTED DESIRED (which print the value before), list, or holes (the "
                  "places, offset and length, of appends that were not written)")
      ->required();
  sub->add_option("file", options->path, "in the export")->required();
  sub->add_option("name", options->name, "of the attribute");
  sub->add_option("number", options->numbers, "64 bits; negative ones count from 2^64 down");
  sub->add_flag("--json", options->json, "a list for programs");
}

}  // namespace forebay

// Rules of irregular views in collective calls that go together: what aggregators are told of them,
// and what they know of the calls before. Two ranks.
#include "cases.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace cases {

namespace {

// A view of many irregular pieces, of which a call names few: described by these; and then all.
void irregular_views(const char* name, MPI_Info info) {
  constexpr int kBlocks = 5000;
  MPI_File file = open(MPI_COMM_WORLD, path(name), kNew, info);
  std::vector<int> places(kBlocks);
  for (int i = 0, at = 0; i < kBlocks; ++i, at += 2 + i * i % 7) places[size_t(i)] = 2 * at + rank;
  MPI_Datatype type;
  MPI_Type_create_indexed_block(kBlocks, 1, places.data(), MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL);
  std::vector<int> few(100, 100 + rank), back(100);
  for (const int at : {0, 2000, 4900}) {
    MPI_Status status;
    int count = 0;
    MPI_File_write_at_all(file, at, few.data(), 100, MPI_INT, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    check(count == 100, "the count of an irregular write");
    MPI_File_read_at_all(file, at, back.data(), 100, MPI_INT, MPI_STATUS_IGNORE);
    check(back == few, "an irregular collective write");
    std::fill(back.begin(), back.end(), 0);
    MPI_File_read_at(file, at, back.data(), 100, MPI_INT, MPI_STATUS_IGNORE);
    check(back == few, "an irregular collective write, as each rank reads it");
  }
  std::vector<int> all(kBlocks), all_back(all.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = int(i) * 2 + rank;
  MPI_File_write_at_all(file, 0, all.data(), int(all.size()), MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_read_at_all(file, 0, all_back.data(), int(all.size()), MPI_INT, MPI_STATUS_IGNORE);
  check(all_back == all, "all of an irregular view");
  std::fill(all_back.begin(), all_back.end(), 0);
  MPI_File_read_at(file, 0, all_back.data(), int(all.size()), MPI_INT, MPI_STATUS_IGNORE);
  check(all_back == all, "all of an irregular view, as each rank reads it");
  MPI_File_close(&file);
  MPI_Type_free(&type);
  MPI_Info_free(&info);
}

}  // namespace

// Too long to be sent as a whole: each aggregator is told what lies in its realm, which may be one
// part of the file or many.
void irregular_views() {
  irregular_views("irregular", hinted({{"romio_cb_write", "enable"},
                                       {"romio_cb_read", "enable"},
                                       {"cb_config_list", "*:*"},
                                       {"cb_nodes", "2"}}));
  irregular_views("irregular_stripes", hinted({{"romio_cb_write", "enable"},
                                               {"romio_cb_read", "enable"},
                                               {"cb_config_list", "*:*"},
                                               {"cb_nodes", "2"},
                                               {"forebay_realms", "striped"},
                                               {"striping_unit", "4096"},
                                               {"striping_factor", "2"}}));
}

namespace {

// Ints at irregular places, others for each kind and for each rank.
struct Kind {
  std::vector<int> places[2];  // by rank
  MPI_Datatype type = MPI_DATATYPE_NULL;
};
Kind kind_of(int number, int blocks) {
  Kind kind;
  for (int of = 0; of < 2; ++of)
    for (int i = 0, at = 0; i < blocks; ++i, at += 1 + (i % 999 + number) * i % 3)
      kind.places[of].push_back(2 * at + of);
  MPI_Type_create_indexed_block(blocks, 1, kind.places[rank].data(), MPI_INT, &kind.type);
  MPI_Type_commit(&kind.type);
  return kind;
}

// What both ranks know to be in a file that they write, call by call, through views that come and
// go, each its own.
class AgainAndAgain {
 public:
  AgainAndAgain(MPI_File file, std::vector<Kind> kinds) : file_(file), kinds_(std::move(kinds)) {
    for (const Kind& kind : kinds_)
      model_.resize(std::max(model_.size(), size_t(kind.places[1].back()) + 1));
  }

  void step(int number) {
    const size_t count = kinds_.size();
    const size_t of[2] = {size_t(number) % count, size_t(number / 5 + number % 3) % count};
    std::vector<int> mine, back;
    for (int who = 0; who < 2; ++who) {
      const std::vector<int>& places = kinds_[of[who]].places[who];
      if (number % 13 == 5 * who) continue;  // has nothing
      const size_t n = std::min<size_t>(places.size(), 3000), from = (places.size() - n) / 2;
      for (size_t i = from; i < from + n; ++i) {
        model_[size_t(places[i])] = number * 10000 + int(i % 5000) * 2 + who;
        if (who == rank) mine.push_back(model_[size_t(places[i])]);
      }
    }
    const Kind& kind = kinds_[of[rank]];
    const size_t blocks = kind.places[rank].size();
    const auto at = MPI_Offset((blocks - std::min<size_t>(blocks, 3000)) / 2);
    back.resize(mine.size());
    MPI_File_set_view(file_, 0, MPI_INT, kind.type, "native", MPI_INFO_NULL);
    MPI_File_write_at_all(file_, at, mine.data(), int(mine.size()), MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file_, at, back.data(), int(back.size()), MPI_INT, MPI_STATUS_IGNORE);
    check(back == mine, "a view that comes again");
  }

  void compare() {
    std::vector<int> all(model_.size());
    MPI_File_sync(file_);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_set_view(file_, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_read_at(file_, 0, all.data(), int(all.size()), MPI_INT, MPI_STATUS_IGNORE);
    check(all == model_, "a file written through views that come again");
  }

 private:
  MPI_File file_;
  std::vector<Kind> kinds_;
  std::vector<int> model_;  // zeros where nobody writes
};

}  // namespace

// More views than aggregators keep, short ones, long ones, and one that is too long to be kept,
// while buffers and ways change; and one view all the time.
void views_that_come_again() {
  MPI_Info info = hinted({{"romio_cb_write", "enable"},
                          {"romio_cb_read", "enable"},
                          {"cb_config_list", "*:*"},
                          {"cb_nodes", "2"}});
  MPI_File file = open(MPI_COMM_WORLD, path("again"), kNew, info);
  std::vector<Kind> kinds;
  for (int i = 0; i < 11; ++i) kinds.push_back(kind_of(i, i % 4 == 0 ? 50 : 2500 + 300 * i));
  kinds.push_back(kind_of(11, 600'000));
  AgainAndAgain calls(file, kinds);
  for (int number = 0; number < 150; ++number) {
    if (number % 40 == 39) MPI_Info_set(info, "cb_buffer_size", number == 39 ? "65536" : "131072");
    if (number % 9 == 8) MPI_Info_set(info, "romio_cb_write", number % 2 ? "disable" : "enable");
    if (number % 40 == 39 || number % 9 == 8) MPI_File_set_info(file, info);
    calls.step(number);
  }
  calls.compare();
  MPI_File_close(&file);
  MPI_Info_set(info, "romio_cb_write", "enable");
  file = open(MPI_COMM_WORLD, path("steady"), kNew, info);
  AgainAndAgain steady(file, {kinds[10]});
  for (int number = 0; number < 50; ++number) steady.step(number);
  steady.compare();
  MPI_File_close(&file);
  for (Kind& kind : kinds) MPI_Type_free(&kind.type);
  MPI_Info_free(&info);
}

}  // namespace cases

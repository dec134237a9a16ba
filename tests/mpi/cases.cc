// Single rules of MPI-IO that random programs do not reach: errors of requests, links, sequential
// files, large counts, hints, handlers. Two ranks; returns 0 if all hold, and names those that do
// not. Any MPI-IO should pass it.
//   cases FOLDER [at-server]    all rules but these:
//   cases FOLDER local|served   what of our own hints a program sees, without and with a server
//   cases FOLDER striped        those of files whose stripes are known
//   cases FOLDER unreserved     that of space, also of more than there is
//   cases FOLDER sessions       that of programs without MPI_Init, if the MPI has sessions
//   cases FOLDER threads        those of several threads
//   cases FOLDER readers        that of many ranks
#include "cases.h"
#include <mpi.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cases {

int rank = 0, wrong = 0;
std::string folder;

void check(bool holds, const char* what) {
  if (holds) return;
  ++wrong;
  std::fprintf(stderr, "rank %d: %s\n", rank, what);
}

std::string path(const char* name) {
  return folder + "/" + name;
}

MPI_File open(MPI_Comm comm, const std::string& name, int amode, MPI_Info info) {
  MPI_File file = MPI_FILE_NULL;
  check(MPI_File_open(comm, name.c_str(), amode, info, &file) == MPI_SUCCESS, "open");
  return file;
}

MPI_Info hinted(std::initializer_list<std::pair<const char*, const char*>> hints) {
  MPI_Info info;
  MPI_Info_create(&info);
  for (const auto& [key, value] : hints) MPI_Info_set(info, key, value);
  return info;
}

}  // namespace cases

namespace {

using namespace cases;

bool exists(const std::string& name) {
  struct stat st;
  return ::lstat(name.c_str(), &st) == 0;
}

// The error of a write comes with whichever call completes it, and is never lost on the way.
void failed_requests() {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  MPI_File file = open(MPI_COMM_SELF, path(rank ? "full1" : "full0"), kNew);
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::vector<char> data(100000);
  const auto start = [&](MPI_Request* request) {
    check(MPI_File_iwrite_at(file, 0, data.data(), 100000, MPI_BYTE, request) == MPI_SUCCESS,
          "iwrite_at begins");
  };
  MPI_Request both[2];
  int index, flag = 0;
  start(&both[0]);
  start(&both[1]);
  check(MPI_Waitany(2, both, &index, MPI_STATUS_IGNORE) != MPI_SUCCESS, "first Waitany");
  check(MPI_Waitany(2, both, &index, MPI_STATUS_IGNORE) != MPI_SUCCESS, "second Waitany");
  MPI_Request one;
  start(&one);
  while (!flag) MPI_Request_get_status(one, &flag, MPI_STATUS_IGNORE);
  check(MPI_Wait(&one, MPI_STATUS_IGNORE) != MPI_SUCCESS, "Wait after Request_get_status");
  start(&both[0]);
  both[1] = MPI_REQUEST_NULL;
  flag = 0;
  int code = MPI_SUCCESS;
  MPI_Status statuses[2];
  while (!flag) code = MPI_Testall(2, both, &flag, statuses);
  check(code == MPI_ERR_IN_STATUS && statuses[0].MPI_ERROR != MPI_SUCCESS, "Testall");
  ::setrlimit(RLIMIT_FSIZE, &before);
  MPI_File_close(&file);
}

// What MPI refuses has no result.
void refused_tests() {
  const std::string name = path(rank ? "refused1" : "refused0");
  MPI_File file = open(MPI_COMM_SELF, name, kNew);
  MPI_Request request;
  MPI_File_iwrite_at(file, 0, "x", 1, MPI_CHAR, &request);
  for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  int done = 1 << 30;
  check(MPI_Testsome(1, &request, &done, nullptr, MPI_STATUSES_IGNORE) != MPI_SUCCESS,
        "Testsome without a place for its result");
  for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
  check(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS, "Wait after that");
  MPI_File_close(&file);
}

void names() {
  if (rank != 0) return;
  MPI_File file = open(MPI_COMM_SELF, path("target"), kNew);
  MPI_File_close(&file);
  check(::symlink("target", path("link").c_str()) == 0, "symlink");
  check(MPI_File_delete(path("link").c_str(), MPI_INFO_NULL) == MPI_SUCCESS, "delete a link");
  check(!exists(path("link")) && exists(path("target")), "a link is deleted, not what it names");
  ::mkdir(path("a").c_str(), 0755);
  ::mkdir(path("b").c_str(), 0755);
  for (const char* name : {"a/x", "b/x"}) {
    file = open(MPI_COMM_SELF, path(name), kNew);
    MPI_File_close(&file);
  }
  check(::chdir(path("a").c_str()) == 0, "chdir");
  file = open(MPI_COMM_SELF, "x", MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
  check(::chdir(path("b").c_str()) == 0, "chdir");
  MPI_File_close(&file);
  check(!exists(path("a/x")) && exists(path("b/x")), "deleted on close is what was opened");
  check(::symlink("../b/made", path("a/dangling").c_str()) == 0, "symlink");
  file = open(MPI_COMM_SELF, path("a/dangling"), kNew);
  MPI_File_close(&file);
  check(exists(path("b/made")), "a link that leads to nothing yet");
}

// Every rank of a sequential file goes on where the shared pointer is, whoever came first.
void sequential() {
  MPI_File file =
      open(MPI_COMM_WORLD, path("tape"), MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
  if (rank == 1) ::usleep(100000);
  MPI_File_write_shared(file, rank ? "1111" : "0000", 4, MPI_CHAR, MPI_STATUS_IGNORE);
  MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL);
  MPI_Offset at = -1;
  MPI_Datatype etype, filetype;
  char representation[MPI_MAX_DATAREP_STRING];
  MPI_File_get_view(file, &at, &etype, &filetype, representation);
  check(at == 8, "displacement of a sequential file");
  // What MPI forbids of one: its size, and places that are asked for or given.
  for (const int code :
       {MPI_File_set_size(file, 100), MPI_File_preallocate(file, 100),
        MPI_File_seek_shared(file, 5, MPI_SEEK_SET), MPI_File_get_position_shared(file, &at)}) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    check(error_class == MPI_ERR_UNSUPPORTED_OPERATION, "a call that a sequential file forbids");
  }
  check(MPI_File_get_byte_offset(file, 3, &at) == MPI_SUCCESS && at == 11,
        "byte offsets, which a sequential file has");
  MPI_File_close(&file);
}

#if MPI_VERSION >= 4
void large_counts() {
  MPI_Datatype type;
  MPI_Type_vector_c(1000, 1, 2, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_File file = open(MPI_COMM_SELF, path(rank ? "large1" : "large0"), kNew);
  check(MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL) == MPI_SUCCESS,
        "a view of a type made with large counts");
  MPI_Offset at = 0;
  MPI_File_get_byte_offset(file, 999, &at);
  check(at == 999 * 8, "its offsets");
  MPI_File_close(&file);
  MPI_Type_free(&type);
}
#endif

// One rank's bad argument is everybody's error, and nobody waits for ever.
void one_bad_rank() {
  MPI_File file = open(MPI_COMM_WORLD, path("bad"), kNew);
  char byte = 0;
  check(MPI_File_write_all(file, &byte, rank ? -1 : 1, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS,
        "write_all with a bad count on one rank");
  check(MPI_File_write_ordered(file, &byte, rank ? -1 : 1, MPI_BYTE, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS,
        "write_ordered with a bad count on one rank");
  check(MPI_File_set_size(file, rank ? 10 : 20) != MPI_SUCCESS, "set_size with different sizes");
  check(MPI_File_set_view(file, rank ? -5 : 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL) !=
            MPI_SUCCESS,
        "set_view with a bad displacement on one rank");
  MPI_File_close(&file);
  const int amode = rank ? MPI_MODE_RDONLY : MPI_MODE_RDWR;
  check(MPI_File_open(MPI_COMM_WORLD, path("bad").c_str(), amode, MPI_INFO_NULL, &file) !=
            MPI_SUCCESS,
        "open with different modes");
}

// The same of non-blocking collectives, when they complete; and no rank needs another to come to
// its Wait.
void collective_requests() {
  MPI_File file = open(MPI_COMM_WORLD, path("together"), kNew);
  std::vector<char> data(100000, static_cast<char>('a' + rank));
  const auto start = [&](MPI_Offset at, int count, MPI_Request* request) {
    return MPI_File_iwrite_at_all(file, at, data.data(), count, MPI_BYTE, request);
  };
  MPI_Request one, two[2];
  if (rank == 1) {
    check(start(0, -1, &one) != MPI_SUCCESS, "iwrite_at_all with a bad count");
  } else {
    check(start(0, 1, &one) == MPI_SUCCESS, "iwrite_at_all begins");
    check(MPI_Wait(&one, MPI_STATUS_IGNORE) != MPI_SUCCESS, "Wait, of another rank's bad count");
  }
  const auto pair = [&] {
    check(start(rank * 100000, 100000, &two[0]) == MPI_SUCCESS, "iwrite_at_all begins");
    check(start(rank * 100000, 10, &two[1]) == MPI_SUCCESS, "another one begins");
  };
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 150000;
  if (rank == 1) ::setrlimit(RLIMIT_FSIZE, &small);
  pair();
  int flag = 0, code = MPI_SUCCESS;
  while (!flag) code = MPI_Test(&two[1 - rank], &flag, MPI_STATUS_IGNORE);
  check((code == MPI_SUCCESS) == (rank == 0), "Test: the second is good, the first is not");
  code = MPI_Wait(&two[rank], MPI_STATUS_IGNORE);
  check((code == MPI_SUCCESS) == (rank == 1), "Wait: likewise, in the other order");
  ::setrlimit(RLIMIT_FSIZE, &before);
  pair();
  check(MPI_Waitall(2, two, MPI_STATUSES_IGNORE) == MPI_SUCCESS, "good ones after bad ones");
  for (int i = 0; i < 100; ++i) {
    pair();
    char token = 0;
    if (rank == 1) MPI_Recv(&token, 1, MPI_CHAR, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(MPI_Waitall(2, two, MPI_STATUSES_IGNORE) == MPI_SUCCESS, "Waitall");
    if (rank == 0) MPI_Send(&token, 1, MPI_CHAR, 1, 5, MPI_COMM_WORLD);
  }
  MPI_File_close(&file);
}

// A rank may be any number of calls ahead: its own calls go on, and one that fails at once returns.
void far_ahead() {
  constexpr int kCalls = 100, kBad = 70;
  MPI_File file = open(MPI_COMM_WORLD, path("ahead"), kNew);
  std::vector<MPI_Request> requests(kCalls, MPI_REQUEST_NULL);
  std::vector<int> data(kCalls), back(2 * kCalls + 1);
  int token = 4711;
  const auto at = [](int ints) { return MPI_Offset(ints) * MPI_Offset(sizeof(int)); };
  if (rank == 1) MPI_Recv(&token, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < kCalls; ++i) {
    const bool bad = rank == 0 && i == kBad;
    data[size_t(i)] = 2 * i + rank;
    check((MPI_File_iwrite_at_all(file, at(2 * i + rank), &data[size_t(i)], bad ? -1 : 1, MPI_INT,
                                  &requests[size_t(i)]) != MPI_SUCCESS) == bad,
          "one of many pending calls begins, if its arguments are good");
  }
  if (rank == 0) {
    MPI_Request own;
    MPI_File_iwrite_at(file, at(2 * kCalls), &token, 1, MPI_INT, &own);
    check(MPI_Wait(&own, MPI_STATUS_IGNORE) == MPI_SUCCESS,
          "a rank's own call behind pending ones");
    MPI_Send(&token, 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
  }
  for (int i = 0; i < kCalls; ++i)
    check((MPI_Wait(&requests[size_t(i)], MPI_STATUS_IGNORE) == MPI_SUCCESS) ==
              (rank == 0 || i != kBad),
          "Wait, of one of many pending calls");
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(file);
  MPI_File_read_at(file, 0, back.data(), 2 * kCalls + 1, MPI_INT, MPI_STATUS_IGNORE);
  for (int i = 0; i < 2 * kCalls; ++i)
    check(back[size_t(i)] == (i == 2 * kBad ? 0 : i), "what many pending calls wrote");
  check(back.back() == 4711, "what a rank's own call wrote behind pending ones");
  MPI_File_close(&file);
}

// What became of each of many pending calls is known to all, however many have failed since.
void many_failures() {
  constexpr int kCalls = 150;
  const auto bad = [](int call) { return call % 7 == 0; };
  MPI_File file = open(MPI_COMM_WORLD, path("failures"), kNew);
  std::vector<MPI_Request> requests(kCalls, MPI_REQUEST_NULL);
  std::vector<MPI_Status> statuses(kCalls);
  const char byte = 'x';
  for (int i = 0; i < kCalls; ++i)
    MPI_File_iwrite_at_all(file, 2 * i + rank, &byte, bad(i) && rank == 1 ? -1 : 1, MPI_BYTE,
                           &requests[size_t(i)]);
  MPI_Barrier(MPI_COMM_WORLD);
  ::usleep(100000);  // all have ended, and nobody has asked
  const int code = MPI_Waitall(kCalls, requests.data(), statuses.data());
  if (rank == 0) check(code == MPI_ERR_IN_STATUS, "Waitall, of calls that failed elsewhere");
  for (int i = 0; rank == 0 && i < kCalls; ++i)
    check((statuses[size_t(i)].MPI_ERROR != MPI_SUCCESS) == bad(i),
          "what became of one of many pending calls");
  MPI_File_close(&file);
}

// Of a read that the end of the file cuts short, whole elements come, also of an item that is not
// whole; and a type may be freed while it is under way.
void short_conversions() {
  MPI_Datatype row, again;
  MPI_Type_contiguous(4, MPI_INT, &row);
  MPI_Type_commit(&row);
  MPI_Type_contiguous(4, MPI_INT, &again);  // to count with
  MPI_Type_commit(&again);
  MPI_File file = open(MPI_COMM_SELF, path(rank ? "short1" : "short0"), kNew);
  std::vector<int> numbers(12), back(12, -1);
  for (int i = 0; i < 12; ++i) numbers[static_cast<size_t>(i)] = i + 1;
  MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "external32", MPI_INFO_NULL);
  MPI_File_write_at(file, 0, numbers.data(), 12, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_set_size(file, 6 * 4 + 3);  // a row, two numbers, a part of one
  MPI_Request request;
  MPI_Status status;
  MPI_File_iread_at(file, 0, back.data(), 3, row, &request);
  MPI_Type_free(&row);
  check(MPI_Wait(&request, &status) == MPI_SUCCESS, "a short read");
  int elements = 0, count = 0;
  MPI_Get_elements(&status, again, &elements);
  MPI_Get_count(&status, again, &count);
  check(elements == 6 && count == MPI_UNDEFINED, "how many elements came");
  for (size_t i = 0; i < 12; ++i)
    check(back[i] == (i < 6 ? numbers[i] : -1), "what came of a short read, and nothing else");
  MPI_File_close(&file);
  MPI_Type_free(&again);
}

void hints() {
  MPI_Info info, effective;
  MPI_Info_create(&info);
  MPI_Info_set(info, "cb_buffer_size", "1048576");
  MPI_Info_set(info, "romio_cb_write", "nonsense");
  MPI_Info_set(info, "romio_cb_alltoall", "enable");
  MPI_File file = open(MPI_COMM_SELF, path(rank ? "hints1" : "hints0"), kNew, info);
  MPI_File_get_info(file, &effective);
  char value[MPI_MAX_INFO_VAL] = "";
  int found = 0;
  MPI_Info_get(effective, "cb_buffer_size", MPI_MAX_INFO_VAL - 1, value, &found);
  check(found && std::strcmp(value, "1048576") == 0, "a hint that is honoured");
  MPI_Info_get(effective, "romio_cb_alltoall", MPI_MAX_INFO_VAL - 1, value, &found);
  check(found && std::strcmp(value, "enable") == 0, "the hint of how data is exchanged");
  MPI_Info_get(effective, "romio_cb_write", MPI_MAX_INFO_VAL - 1, value, &found);
  check(!found || std::strcmp(value, "nonsense") != 0, "a value that makes no sense");
  MPI_Info_free(&effective);
  MPI_Info_free(&info);
  MPI_File_close(&file);
}

std::string effective(MPI_File file, const char* key) {
  MPI_Info info;
  MPI_File_get_info(file, &info);
  char value[MPI_MAX_INFO_VAL] = "";
  int found = 0;
  MPI_Info_get(info, key, MPI_MAX_INFO_VAL - 1, value, &found);
  MPI_Info_free(&info);
  return found ? value : "none";
}

// Values that are in effect, not those that were wished for.
void effective_hints(bool at_server) {
  MPI_Info info = hinted({{"cb_nodes", "100"}});
  MPI_File file = open(MPI_COMM_WORLD, path("effective"), kNew, info);
  check(effective(file, "cb_nodes") == "2", "as many aggregators as there are ranks");
  MPI_File_set_info(file, info);
  check(effective(file, "cb_nodes") == "2", "the same, said later");
  MPI_File_close(&file);
  MPI_Info_free(&info);
  file = open(MPI_COMM_WORLD, path("effective"), MPI_MODE_RDWR);
  check(effective(file, "cb_buffer_size") == (at_server ? "16777216" : "2097152"),
        "the buffer of an aggregator");
  MPI_File_close(&file);
}

// Each rank's pieces lie in the holes of the other's; both write again and again, at once.
void sieved_writes(bool served) {
  MPI_Info info = hinted(
      {{"romio_ds_write", "enable"}, {"ind_wr_buffer_size", "3000"}, {"start_iodevice", "1"}});
  MPI_File file = open(MPI_COMM_WORLD, path("sieved"), kNew, info);
  check(effective(file, "romio_ds_write") == (served ? "enable" : "none"), "romio_ds_write");
  check(effective(file, "ind_wr_buffer_size") == (served ? "3000" : "none"), "ind_wr_buffer_size");
  check(effective(file, "start_iodevice") == "1", "start_iodevice");
  constexpr int kPiece = 50, kPieces = 400, kSize = 2 * kPiece * kPieces;
  MPI_Datatype pieces;
  MPI_Type_vector(kPieces, kPiece, 2 * kPiece, MPI_BYTE, &pieces);
  MPI_Type_commit(&pieces);
  MPI_File_set_view(file, rank * kPiece, MPI_BYTE, pieces, "native", MPI_INFO_NULL);
  for (int round = 0; round < 50; ++round) {
    const std::vector<char> mine(kSize / 2, static_cast<char>(2 * round + rank));
    check(MPI_File_write_at(file, 0, mine.data(), kSize / 2, MPI_BYTE, MPI_STATUS_IGNORE) ==
              MPI_SUCCESS,
          "a scattered write");
    std::vector<char> back(kSize / 2);
    MPI_File_read_at(file, 0, back.data(), kSize / 2, MPI_BYTE, MPI_STATUS_IGNORE);
    check(back == mine, "what a rank wrote while another wrote in the gaps");
  }
  MPI_File_close(&file);
  MPI_Type_free(&pieces);
  MPI_Info_free(&info);
}

void all_rules(bool at_server) {
  without_communicators();
  failed_requests();
  refused_tests();
  names();
  MPI_Barrier(MPI_COMM_WORLD);
  sequential();
#if MPI_VERSION >= 4
  large_counts();
  session_communicators();
#endif
  handlers();
  handlers_that_leave();
  one_bad_rank();
  opened_again();
  progress_while_opening();
  between_groups();
  collective_requests();
  far_ahead();
  many_failures();
  short_conversions();
  external32();
  registered_representations();
  hints();
  effective_hints(at_server);
  cut_short();
  preallocated(false);
  persistent_realms();
  changing_types();
  many_pieces();
  pieces_far_apart();
  irregular_views();
  views_that_come_again();
  own_pieces();
  buffers_beyond_a_limit();
  full_disk_together();
  no_memory_together();
  progress_while_waiting();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string which = argc > 2 ? argv[2] : "";
  folder = argc > 1 ? argv[1] : ".";
#if MPI_VERSION >= 4
  if (which == "sessions") return without_init();
#endif
  const bool threads = which == "threads";
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (which.empty() || which == "at-server")
    all_rules(!which.empty());
  else if (which == "readers")
    many_readers(), many_writers(), own_pieces();
  else if (which == "nodes")
    writers_on_two_nodes();
  else if (which == "striped")
    striped_files(), realms_given(), changing_types();
  else if (which == "unreserved")
    preallocated(true);
  else if (which == "watched")
    watched_files();
  else if (which == "views")
    views_that_come_again();
  else if (!threads)
    sieved_writes(which == "served");
  else if (level == MPI_THREAD_MULTIPLE)
    closed_beside_an_open(), realms_beside_a_thread(), realms_beside_busy_threads();
  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%d rules broken\n", all);
  MPI_Finalize();
  return all != 0;
}

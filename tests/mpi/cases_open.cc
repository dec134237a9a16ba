// Files that are opened on one communicator, one after the other and at the same time.
#include <mpi.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "cases.h"

namespace cases {
namespace {

int attributes = 0;  // that were copied and not deleted
int copy_attribute(MPI_Comm, int, void*, void* value, void* copy, int* flag) {
  *static_cast<void**>(copy) = value;
  *flag = 1;
  return ++attributes, MPI_SUCCESS;
}
int delete_attribute(MPI_Comm, int, void*, void*) {
  return --attributes, MPI_SUCCESS;
}

MPI_Offset shared_position(MPI_File file) {
  MPI_Offset at = -1;
  MPI_File_get_position_shared(file, &at);
  return at;
}

bool opens(MPI_Comm comm, const std::string& name, int amode) {
  MPI_File file;
  if (MPI_File_open(comm, name.c_str(), amode, MPI_INFO_NULL, &file) != MPI_SUCCESS) return false;
  MPI_File_close(&file);
  return true;
}

void write_shared(MPI_Comm comm, MPI_File file, int times) {
  for (int i = 0; i < times; ++i)
    MPI_File_write_shared(file, "12345", 5, MPI_CHAR, MPI_STATUS_IGNORE);
  MPI_Barrier(comm);
}

// The pointer of one is not the next one's, nor that of another that is open.
void shared_pointers(MPI_Comm comm) {
  for (int times = 1; times < 4; ++times) {
    MPI_File one = open(comm, path("one"), kNew), two = open(comm, path("two"), kNew);
    check(shared_position(one) == 0 && shared_position(two) == 0, "a shared pointer begins at 0");
    MPI_Barrier(comm);
    write_shared(comm, one, times);
    write_shared(comm, two, 2 * times);
    check(shared_position(one) == 10 * times, "a shared pointer beside another file's");
    check(shared_position(two) == 20 * times, "a shared pointer of a second file");
    MPI_File_close(times % 2 ? &one : &two);
    MPI_File_close(times % 2 ? &two : &one);
  }
}

// Files that are there, but not the same one on all ranks; and one of two names.
void different_files(MPI_Comm comm) {
  const std::string mine = path(rank ? "mine1" : "mine0");
  check(opens(MPI_COMM_SELF, mine, kNew), "a file of one rank");
  if (rank == 0) {
    check(opens(MPI_COMM_SELF, path("common"), kNew), "a file of both");
    check(::link(path("common").c_str(), path("also").c_str()) == 0, "link");
  }
  MPI_Barrier(comm);
  for (int i = 0; i < 2; ++i) {
    MPI_File file = MPI_FILE_NULL;
    int error_class = MPI_SUCCESS;
    MPI_Error_class(MPI_File_open(comm, mine.c_str(), MPI_MODE_RDWR, MPI_INFO_NULL, &file),
                    &error_class);
    check(error_class == MPI_ERR_NOT_SAME && file == MPI_FILE_NULL, "ranks that name two files");
    check(opens(comm, path(rank ? "common" : "also"), MPI_MODE_RDWR), "one file by two names");
  }
}

// On one rank or both; the next open is not touched by it.
void failed_opens(MPI_Comm comm) {
  check(opens(comm, path("there"), kNew), "a new file");
  for (int i = 0; i < 2; ++i) {
    check(!opens(comm, path("there"), rank ? MPI_MODE_RDONLY : MPI_MODE_RDWR), "different modes");
    check(!opens(comm, path("never"), kNew | (rank ? MPI_MODE_RDONLY : 0)), "a bad mode");
    check(!opens(comm, rank ? "" : path("never"), kNew), "no name");
    check(!opens(comm, path("never"), MPI_MODE_RDWR), "a file that nobody made");
    check(!opens(comm, path(rank ? "never" : "there"), MPI_MODE_RDWR), "another name");
    check(!opens(comm, path("there"), kNew | MPI_MODE_EXCL), "a file that is there already");
    check(opens(comm, path("there"), MPI_MODE_RDWR), "a file after failures");
  }
  check(opens(comm, path("there"), MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE), "to be deleted");
  check(!opens(comm, path("there"), MPI_MODE_RDWR), "one that was deleted");
  check(opens(comm, path("there"), kNew | MPI_MODE_EXCL), "in its place");
}

}  // namespace

// Which we do not serve: said on both sides, and nobody waits.
void between_groups() {
  MPI_Comm own, between;
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &own);
  MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - rank, 7, &between);
  MPI_File file = MPI_FILE_NULL;
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_File_open(between, path("between").c_str(), kNew, MPI_INFO_NULL, &file),
                  &error_class);
  check(error_class == MPI_ERR_COMM && file == MPI_FILE_NULL, "an intercommunicator");
  MPI_Comm_free(&between);
  MPI_Comm_free(&own);
}

namespace {

// An MPI may run out of communicators, of which each file has one. The error is one of opening, on
// all ranks, whatever the handler of the communicator does: here it would end the program.
void opened_without(const char* what, bool expected) {
  MPI_File file = MPI_FILE_NULL;
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_File_open(MPI_COMM_WORLD, path("alone").c_str(), kNew, MPI_INFO_NULL, &file),
                  &error_class);
  check((error_class == MPI_SUCCESS) == expected && (file != MPI_FILE_NULL) == expected, what);
  check(expected || error_class == MPI_ERR_OTHER, what);
  if (file == MPI_FILE_NULL) return;
  check(MPI_File_write_at_all(file, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE) == MPI_SUCCESS,
        what);
  MPI_File_close(&file);
}

constexpr size_t kMostComms = 3000;
std::vector<MPI_Comm> all_communicators(MPI_Comm of) {
  std::vector<MPI_Comm> comms(1);
  MPI_Comm_dup(of, &comms[0]);
  MPI_Comm_set_errhandler(comms[0], MPI_ERRORS_RETURN);
  for (MPI_Comm more; comms.size() < kMostComms && MPI_Comm_dup(comms[0], &more) == MPI_SUCCESS;)
    comms.push_back(more);
  return comms;
}

}  // namespace

void without_communicators() {
  std::vector<MPI_Comm> comms;
  if (rank == 1) comms = all_communicators(MPI_COMM_SELF);
  int none = comms.size() > 1 && comms.size() < kMostComms;
  MPI_Bcast(&none, 1, MPI_INT, 1, MPI_COMM_WORLD);
  opened_without("a file when one rank has no communicator", !none);
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  comms = all_communicators(MPI_COMM_WORLD);
  opened_without("a file when there is no communicator", !none);
  MPI_Comm_free(&comms.back());
  comms.pop_back();
  opened_without("a file when there is one", true);
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  opened_without("a file when there are communicators again", true);
}

// MPI goes on while a rank waits for others in an open, whatever messages nobody has taken yet.
void progress_while_opening() {
  check(opens(MPI_COMM_WORLD, path("progress"), kNew), "the first file of a communicator");
  const int tag = 32767;  // the largest that every MPI has
  std::vector<char> big(8 << 20, 'x');
  const int size = static_cast<int>(big.size());
  MPI_Request request = MPI_REQUEST_NULL;
  char small = 's';
  if (rank == 1) MPI_Isend(&small, 1, MPI_CHAR, 0, tag, MPI_COMM_WORLD, &request);
  if (rank == 0) MPI_Probe(1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 0) MPI_Isend(big.data(), size, MPI_CHAR, 1, 5, MPI_COMM_WORLD, &request);
  if (rank == 1) MPI_Recv(big.data(), size, MPI_CHAR, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  check(opens(MPI_COMM_WORLD, path("progress"), kNew), "an open while a message is under way");
  if (rank == 0) MPI_Recv(&small, 1, MPI_CHAR, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void opened_again() {
  int key;
  MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, nullptr);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_attr(comm, key, &attributes);
  ++attributes;
  shared_pointers(comm);
  different_files(comm);
  failed_opens(comm);
  MPI_Comm part;  // another order of ranks
  MPI_Comm_split(comm, 0, -rank, &part);
  MPI_Comm_set_attr(part, key, &attributes);
  ++attributes;
  shared_pointers(part);
  MPI_Comm_free(&part);

  MPI_File file = open(comm, path("outlives"), kNew);
  MPI_Comm_free(&comm);
  MPI_File_write_at_all(file, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE);
  MPI_Offset size = 0;
  MPI_File_get_size(file, &size);
  check(size == 2, "a file whose communicator was freed");
  check(MPI_File_close(&file) == MPI_SUCCESS, "and its end");
  check(attributes == 0, "attributes of a communicator go with it and its files");
  MPI_Comm_free_keyval(&key);
}

// Which rank closes first, and which opens first, is nobody's business.
void closed_beside_an_open() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_File before = open(comm, path("beside0"), kNew);
  for (int i = 1; i < 300; ++i) {
    std::thread closing([before]() mutable { MPI_File_close(&before); });
    if (i % 3 == rank) std::this_thread::yield();
    MPI_File file = open(comm, path(i % 2 ? "beside1" : "beside0"), kNew);
    closing.join();
    const int mine = 1000 * i + rank;
    int back[2] = {};
    MPI_File_write_ordered(file, &mine, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Barrier(comm);
    MPI_File_read_at_all(file, 0, back, 2, MPI_INT, MPI_STATUS_IGNORE);
    check(back[0] == 1000 * i && back[1] == 1000 * i + 1, "a file opened beside a close");
    before = file;
  }
  MPI_File_close(&before);
  MPI_Comm_free(&comm);
}

}  // namespace cases

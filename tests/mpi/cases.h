// What the single rules (cases.cc and cases_*.cc) share.
#pragma once

#include <mpi.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace cases {

extern int rank, wrong;
extern std::string folder;

void check(bool holds, const char* what);  // counts and names what does not
std::string path(const char* name);        // in the folder
MPI_File open(MPI_Comm comm, const std::string& name, int amode, MPI_Info info = MPI_INFO_NULL);
MPI_Info hinted(std::initializer_list<std::pair<const char*, const char*>> hints);  // to be freed

// The most memory that the process had so far, or since it was told to forget that.
long peak_kib();
void forget_peak();

constexpr int kNew = MPI_MODE_CREATE | MPI_MODE_RDWR;

// Rules of opening and closing (cases_open.cc).
void opened_again();
void progress_while_opening();
void between_groups();
void without_communicators();  // before any other
void closed_beside_an_open();

#if MPI_VERSION >= 4
// Rules of sessions (cases_sessions.cc).
void session_communicators();
int without_init();  // instead of MPI_Init; what the program is to return
#endif

// Rules of error handlers (cases_handlers.cc).
void handlers();
void handlers_that_leave();

// Rules of sizes (cases_sizes.cc).
void cut_short();
void preallocated(bool without_room);

// Rules of data representations (cases_represented.cc).
void external32();
void registered_representations();

// Rules of collective calls that go together (cases_together.cc).
void persistent_realms();
void many_pieces();
void pieces_far_apart();
void buffers_beyond_a_limit();
void full_disk_together();
void no_memory_together();
void progress_while_waiting();
void many_readers();
void striped_files();
void realms_given();
void changing_types();
void realms_beside_a_thread();
void realms_beside_busy_threads();

// Rules of irregular views in them (cases_views.cc).
void irregular_views();
void views_that_come_again();

// Rules of what ranks and aggregators exchange in them (cases_exchange.cc).
void watched_files();
void many_writers();
void own_pieces();
void writers_on_two_nodes();

}  // namespace cases

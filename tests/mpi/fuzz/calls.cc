#include "calls.h"

namespace fuzz {
namespace {

int start_at(const Access& a, MPI_File f, void* b, int n, MPI_Datatype t, MPI_Status* s,
             MPI_Request* r) {
  MPI_Offset o = a.offset;
  if (a.how == How::split)
    return a.write ? MPI_File_write_at_all_begin(f, o, b, n, t)
                   : MPI_File_read_at_all_begin(f, o, b, n, t);
  if (a.how == How::nonblocking && a.collective)
    return a.write ? MPI_File_iwrite_at_all(f, o, b, n, t, r)
                   : MPI_File_iread_at_all(f, o, b, n, t, r);
  if (a.how == How::nonblocking)
    return a.write ? MPI_File_iwrite_at(f, o, b, n, t, r) : MPI_File_iread_at(f, o, b, n, t, r);
  if (a.collective)
    return a.write ? MPI_File_write_at_all(f, o, b, n, t, s)
                   : MPI_File_read_at_all(f, o, b, n, t, s);
  return a.write ? MPI_File_write_at(f, o, b, n, t, s) : MPI_File_read_at(f, o, b, n, t, s);
}

int start_own(const Access& a, MPI_File f, void* b, int n, MPI_Datatype t, MPI_Status* s,
              MPI_Request* r) {
  if (a.how == How::split)
    return a.write ? MPI_File_write_all_begin(f, b, n, t) : MPI_File_read_all_begin(f, b, n, t);
  if (a.how == How::nonblocking && a.collective)
    return a.write ? MPI_File_iwrite_all(f, b, n, t, r) : MPI_File_iread_all(f, b, n, t, r);
  if (a.how == How::nonblocking)
    return a.write ? MPI_File_iwrite(f, b, n, t, r) : MPI_File_iread(f, b, n, t, r);
  if (a.collective)
    return a.write ? MPI_File_write_all(f, b, n, t, s) : MPI_File_read_all(f, b, n, t, s);
  return a.write ? MPI_File_write(f, b, n, t, s) : MPI_File_read(f, b, n, t, s);
}

int start_shared(const Access& a, MPI_File f, void* b, int n, MPI_Datatype t, MPI_Status* s,
                 MPI_Request* r) {
  if (a.how == How::nonblocking)
    return a.write ? MPI_File_iwrite_shared(f, b, n, t, r) : MPI_File_iread_shared(f, b, n, t, r);
  return a.write ? MPI_File_write_shared(f, b, n, t, s) : MPI_File_read_shared(f, b, n, t, s);
}

int start_ordered(const Access& a, MPI_File f, void* b, int n, MPI_Datatype t, MPI_Status* s) {
  if (a.how == How::split)
    return a.write ? MPI_File_write_ordered_begin(f, b, n, t)
                   : MPI_File_read_ordered_begin(f, b, n, t);
  return a.write ? MPI_File_write_ordered(f, b, n, t, s) : MPI_File_read_ordered(f, b, n, t, s);
}

}  // namespace

int start(const Access& a, MPI_File file, void* buffer, MPI_Datatype type, MPI_Status* status,
          MPI_Request* request) {
  int n = static_cast<int>(a.count);
  switch (a.where) {
    case Where::at:
      return start_at(a, file, buffer, n, type, status, request);
    case Where::own:
      return start_own(a, file, buffer, n, type, status, request);
    case Where::shared:
      return start_shared(a, file, buffer, n, type, status, request);
    case Where::ordered:
      return start_ordered(a, file, buffer, n, type, status);
  }
  return MPI_ERR_OTHER;
}

int end_split(const Access& a, MPI_File f, void* b, MPI_Status* s) {
  if (a.where == Where::at)
    return a.write ? MPI_File_write_at_all_end(f, b, s) : MPI_File_read_at_all_end(f, b, s);
  if (a.where == Where::own)
    return a.write ? MPI_File_write_all_end(f, b, s) : MPI_File_read_all_end(f, b, s);
  return a.write ? MPI_File_write_ordered_end(f, b, s) : MPI_File_read_ordered_end(f, b, s);
}

}  // namespace fuzz

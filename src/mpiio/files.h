// Files: which handles are open files. A program that uses one it has closed, or never opened, is
// told so (MPI_ERR_FILE) and does not crash. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "mpiio/file.h"

namespace forebay::mpiio {

class Files {
 public:
  MPI_File add(std::shared_ptr<File> file);     // and gives it a number for Fortran
  std::shared_ptr<File> find(MPI_File handle);  // null: none
  std::shared_ptr<File> remove(MPI_File handle);

  MPI_File numbered(MPI_Fint number);
  std::vector<MPI_File> all();

 private:
  std::mutex mutex_;
  std::unordered_map<MPI_File, std::shared_ptr<File>> open_;
  std::vector<MPI_File> numbers_;  // number 0 is MPI_FILE_NULL
};

}  // namespace forebay::mpiio

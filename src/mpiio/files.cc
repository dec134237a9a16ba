#include "mpiio/files.h"

#include <algorithm>

namespace forebay::mpiio {

MPI_File Files::add(std::shared_ptr<File> file) {
  auto handle = reinterpret_cast<MPI_File>(file.get());
  std::lock_guard lock(mutex_);
  if (numbers_.empty()) numbers_.push_back(MPI_FILE_NULL);
  auto free = std::find(numbers_.begin() + 1, numbers_.end(), MPI_FILE_NULL);
  file->number = static_cast<MPI_Fint>(free - numbers_.begin());
  if (free == numbers_.end())
    numbers_.push_back(handle);
  else
    *free = handle;
  open_[handle] = std::move(file);
  return handle;
}

std::shared_ptr<File> Files::find(MPI_File handle) {
  std::lock_guard lock(mutex_);
  auto it = open_.find(handle);
  return it == open_.end() ? nullptr : it->second;
}

std::shared_ptr<File> Files::remove(MPI_File handle) {
  std::lock_guard lock(mutex_);
  auto it = open_.find(handle);
  if (it == open_.end()) return nullptr;
  auto file = std::move(it->second);
  open_.erase(it);
  numbers_[static_cast<size_t>(file->number)] = MPI_FILE_NULL;
  return file;
}

MPI_File Files::numbered(MPI_Fint number) {
  std::lock_guard lock(mutex_);
  const auto at = static_cast<size_t>(number);
  return number > 0 && at < numbers_.size() ? numbers_[at] : MPI_FILE_NULL;
}

std::vector<MPI_File> Files::all() {
  std::lock_guard lock(mutex_);
  std::vector<MPI_File> handles;
  for (const auto& [handle, file] : open_) handles.push_back(handle);
  return handles;
}

}  // namespace forebay::mpiio

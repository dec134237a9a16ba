#include "elf_file.h"

#include <elf.h>

#include <cstring>
#include <optional>

namespace forebay {
namespace {

// Nothing where the file ends before.
template <class T>
std::optional<T> read_at(const std::string& bytes, uint64_t at) {
  T out;
  if (at > bytes.size() || bytes.size() - at < sizeof out) return std::nullopt;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

std::string text_at(const std::string& bytes, uint64_t at) {
  return at < bytes.size() ? std::string(bytes.c_str() + at) : std::string();
}

std::vector<Elf64_Phdr> parts_of(const std::string& bytes) {
  std::vector<Elf64_Phdr> parts;
  const auto header = read_at<Elf64_Ehdr>(bytes, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return parts;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    const auto part =
        read_at<Elf64_Phdr>(bytes, header->e_phoff + uint64_t{i} * sizeof(Elf64_Phdr));
    if (part) parts.push_back(*part);
  }
  return parts;
}

// Where in the file the byte is that is loaded to this address.
uint64_t place_of(const std::vector<Elf64_Phdr>& parts, uint64_t address) {
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type == PT_LOAD && address >= part.p_vaddr && address - part.p_vaddr < part.p_filesz)
      return address - part.p_vaddr + part.p_offset;
  }
  return UINT64_MAX;
}

std::vector<std::string> libraries_of(const std::string& bytes,
                                      const std::vector<Elf64_Phdr>& parts,
                                      const Elf64_Phdr& dynamic) {
  std::vector<uint64_t> names;
  uint64_t strings = UINT64_MAX;
  for (uint64_t at = 0; at < dynamic.p_filesz; at += sizeof(Elf64_Dyn)) {
    const auto entry = read_at<Elf64_Dyn>(bytes, dynamic.p_offset + at);
    if (!entry || entry->d_tag == DT_NULL) break;
    if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
    if (entry->d_tag == DT_STRTAB) strings = place_of(parts, entry->d_un.d_ptr);
  }
  std::vector<std::string> all;
  if (strings >= bytes.size()) return all;
  for (const uint64_t name : names) {
    if (name < bytes.size()) all.push_back(text_at(bytes, strings + name));
  }
  return all;
}

}  // namespace

Elf read_elf(const std::string& bytes) {
  Elf elf;
  const std::vector<Elf64_Phdr> parts = parts_of(bytes);
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type == PT_INTERP) elf.interpreter = text_at(bytes, part.p_offset);
    if (part.p_type == PT_DYNAMIC) elf.needed = libraries_of(bytes, parts, part);
  }
  return elf;
}

}  // namespace forebay

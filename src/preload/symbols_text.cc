// Text that libc would put or take around our descriptors and streams: formatted output to a
// descriptor, and wide characters, which libc does not know for streams like ours (it crashes).
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wchar.h>

#include "preload/shim.h"

using namespace forebay::preload;

namespace {

constexpr int kNoReads = 0x4, kEndSeen = 0x10, kErrorSeen = 0x20;  // glibc's, in FILE::_flags

int print_to(int fd, const char* format, va_list more) {
  char* text = nullptr;
  const int size = ::vasprintf(&text, format, more);
  if (size < 0) return -1;
  ssize_t done = 0;
  while (done < size) {
    const ssize_t n = ::write(fd, text + done, static_cast<size_t>(size - done));
    if (n <= 0) break;
    done += n;
  }
  ::free(text);
  return done == size ? size : -1;
}

// Is it a stream of ours? Then it is one of wide characters from now on.
bool is_ours(FILE* file) {
  int* const orientation = stream_orientation(file);
  if (orientation) *orientation = 1;
  return orientation != nullptr;
}

wint_t get(FILE* file) {
  mbstate_t state = {};
  for (int i = 0; i < MB_LEN_MAX; ++i) {
    const int c = ::getc_unlocked(file);
    if (c == EOF && i == 0) return WEOF;
    if (c == EOF) break;
    const char byte = static_cast<char>(c);
    wchar_t wide = 0;
    const size_t n = ::mbrtowc(&wide, &byte, 1, &state);
    if (n == static_cast<size_t>(-1)) break;
    if (n != static_cast<size_t>(-2)) return static_cast<wint_t>(wide);
  }
  file->_flags |= kErrorSeen;
  errno = EILSEQ;
  return WEOF;
}

wint_t put(wchar_t wide, FILE* file) {
  char bytes[MB_LEN_MAX];
  mbstate_t state = {};
  const size_t n = ::wcrtomb(bytes, wide, &state);
  if (n == static_cast<size_t>(-1)) return file->_flags |= kErrorSeen, WEOF;
  return ::fwrite_unlocked(bytes, 1, n, file) == n ? static_cast<wint_t>(wide) : WEOF;
}

int put_all(const wchar_t* text, FILE* file) {
  for (; *text; ++text)
    if (put(*text, file) == WEOF) return -1;
  return 1;
}

int print_wide(FILE* file, const wchar_t* format, va_list more) {
  constexpr size_t kMost = size_t{1} << 28;
  for (size_t room = 1024; room <= kMost; room *= 4) {
    auto* const text = static_cast<wchar_t*>(::malloc(room * sizeof(wchar_t)));
    if (!text) return -1;
    va_list again;
    va_copy(again, more);
    const int size = ::vswprintf(text, room, format, again);
    va_end(again);
    const int done = size < 0 ? -1 : put_all(text, file);
    ::free(text);
    if (size >= 0) return done < 0 ? -1 : size;
  }
  return errno = EOVERFLOW, -1;
}

// A stream of the kernel's with these bytes; null and errno.
FILE* stream_of_bytes(const char* bytes, size_t size) {
  const int fd = ::memfd_create("forebay-text", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  FILE* const made = ::pwrite64(fd, bytes, size, 0) == static_cast<ssize_t>(size)
                         ? next_pointer<"fdopen", FILE*>(fd, "r")
                         : nullptr;
  if (!made) ::close(fd);
  return made;
}

// libc scans wide characters on its own streams only: it gets one of the bytes that follow, and
// ours goes as far as it went. If it saw the end of them, and there is more, it gets more.
template <Name kName>
int scan_wide(FILE* file, const wchar_t* format, va_list more) {
  constexpr size_t kMost = size_t{1} << 28;
  if (file->_flags & kNoReads) return errno = EBADF, EOF;
  const off64_t from = ::ftello64(file);
  if (from < 0) return EOF;
  for (size_t room = 1024; room <= kMost; room *= 8) {
    auto* const bytes = static_cast<char*>(::malloc(room));
    if (!bytes) return EOF;
    const size_t size = ::fread_unlocked(bytes, 1, room, file);
    FILE* const copy = ::ferror_unlocked(file) ? nullptr : stream_of_bytes(bytes, size);
    ::free(bytes);
    if (!copy) return EOF;
    va_list again;
    va_copy(again, more);
    const int done = next<kName, int>(copy, format, again);
    va_end(again);
    const int kept = errno;
    const int flags = copy->_flags & (kEndSeen | kErrorSeen);
    const off64_t by = ::ftello64(copy);
    ::fclose(copy);
    const bool cut = (flags & kEndSeen) && size == room;
    if (by < 0 || ::fseeko64(file, cut ? from : from + by, SEEK_SET) != 0) return EOF;
    if (cut) continue;
    file->_flags |= flags;
    errno = kept;
    return done;
  }
  return errno = EOVERFLOW, EOF;
}

struct Locked {
  FILE* file;
  explicit Locked(FILE* one) : file(one) { ::flockfile(file); }
  ~Locked() { ::funlockfile(file); }
  Locked(const Locked&) = delete;
};

}  // namespace

extern "C" {

// ---- Formatted, to a descriptor ----

int fb_vdprintf(int fd, const char* format, va_list more) {
  return is_served(fd) ? print_to(fd, format, more) : next<"vdprintf", int>(fd, format, more);
}
int fb_dprintf(int fd, const char* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vdprintf(fd, format, more);
  va_end(more);
  return done;
}
int fb_vdprintf_chk(int fd, int flag, const char* format, va_list more) {
  return is_served(fd) ? print_to(fd, format, more)
                       : next<"__vdprintf_chk", int>(fd, flag, format, more);
}
int fb_dprintf_chk(int fd, int flag, const char* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vdprintf_chk(fd, flag, format, more);
  va_end(more);
  return done;
}

FOREBAY_EXPORT(dprintf, fb_dprintf);
FOREBAY_EXPORT(vdprintf, fb_vdprintf);
FOREBAY_EXPORT(__dprintf_chk, fb_dprintf_chk);
FOREBAY_EXPORT(__vdprintf_chk, fb_vdprintf_chk);

// ---- Wide characters, one by one ----

wint_t fb_fgetwc(FILE* file) {
  if (!is_ours(file)) return next<"fgetwc", wint_t>(file);
  const Locked lock(file);
  return get(file);
}
wint_t fb_fgetwc_unlocked(FILE* file) {
  return is_ours(file) ? get(file) : next<"fgetwc_unlocked", wint_t>(file);
}
wint_t fb_getwchar() {
  return fb_fgetwc(stdin);
}
wint_t fb_fputwc(wchar_t wide, FILE* file) {
  if (!is_ours(file)) return next<"fputwc", wint_t>(wide, file);
  const Locked lock(file);
  return put(wide, file);
}
wint_t fb_fputwc_unlocked(wchar_t wide, FILE* file) {
  return is_ours(file) ? put(wide, file) : next<"fputwc_unlocked", wint_t>(wide, file);
}
wint_t fb_putwchar(wchar_t wide) {
  return fb_fputwc(wide, stdout);
}
wint_t fb_ungetwc(wint_t wide, FILE* file) {
  if (!is_ours(file)) return next<"ungetwc", wint_t>(wide, file);
  if (wide == WEOF) return WEOF;
  char bytes[MB_LEN_MAX];
  mbstate_t state = {};
  size_t n = ::wcrtomb(bytes, static_cast<wchar_t>(wide), &state);
  if (n == static_cast<size_t>(-1)) return WEOF;
  while (n > 0)
    if (::ungetc(static_cast<unsigned char>(bytes[--n]), file) == EOF) return WEOF;
  return wide;
}
int fb_fwide(FILE* file, int mode) {
  int* const orientation = stream_orientation(file);
  if (!orientation) return next<"fwide", int>(file, mode);
  if (*orientation == 0 && mode != 0) *orientation = mode > 0 ? 1 : -1;
  return *orientation;
}

FOREBAY_EXPORT(fgetwc, fb_fgetwc);
FOREBAY_EXPORT(getwc, fb_fgetwc);
FOREBAY_EXPORT(fgetwc_unlocked, fb_fgetwc_unlocked);
FOREBAY_EXPORT(getwc_unlocked, fb_fgetwc_unlocked);
FOREBAY_EXPORT(getwchar, fb_getwchar);
FOREBAY_EXPORT(getwchar_unlocked, fb_getwchar);
FOREBAY_EXPORT(fputwc, fb_fputwc);
FOREBAY_EXPORT(putwc, fb_fputwc);
FOREBAY_EXPORT(fputwc_unlocked, fb_fputwc_unlocked);
FOREBAY_EXPORT(putwc_unlocked, fb_fputwc_unlocked);
FOREBAY_EXPORT(putwchar, fb_putwchar);
FOREBAY_EXPORT(putwchar_unlocked, fb_putwchar);
FOREBAY_EXPORT(ungetwc, fb_ungetwc);
FOREBAY_EXPORT(fwide, fb_fwide);

// ---- Wide lines and formats ----

wchar_t* fb_fgetws(wchar_t* to, int room, FILE* file) {
  if (!is_ours(file)) return next_pointer<"fgetws", wchar_t*>(to, room, file);
  if (room <= 0) return nullptr;
  const Locked lock(file);
  int n = 0;
  while (n + 1 < room) {
    const wint_t wide = get(file);
    if (wide == WEOF) break;
    to[n++] = static_cast<wchar_t>(wide);
    if (wide == L'\n') break;
  }
  if (n == 0 && room > 1) return nullptr;
  to[n] = L'\0';
  return to;
}
wchar_t* fb_fgetws_chk(wchar_t* to, size_t size, int room, FILE* file) {
  if (!is_ours(file)) return next_pointer<"__fgetws_chk", wchar_t*>(to, size, room, file);
  if (room > 0 && static_cast<size_t>(room) > size) ::abort();
  return fb_fgetws(to, room, file);
}
int fb_fputws(const wchar_t* text, FILE* file) {
  if (!is_ours(file)) return next<"fputws", int>(text, file);
  const Locked lock(file);
  return put_all(text, file);
}
int fb_vfwprintf(FILE* file, const wchar_t* format, va_list more) {
  if (!is_ours(file)) return next<"vfwprintf", int>(file, format, more);
  const Locked lock(file);
  return print_wide(file, format, more);
}
int fb_vfwprintf_chk(FILE* file, int flag, const wchar_t* format, va_list more) {
  if (!is_ours(file)) return next<"__vfwprintf_chk", int>(file, flag, format, more);
  return fb_vfwprintf(file, format, more);
}
int fb_vwprintf(const wchar_t* format, va_list more) {
  return fb_vfwprintf(stdout, format, more);
}
int fb_vwprintf_chk(int flag, const wchar_t* format, va_list more) {
  return fb_vfwprintf_chk(stdout, flag, format, more);
}
int fb_fwprintf(FILE* file, const wchar_t* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vfwprintf(file, format, more);
  va_end(more);
  return done;
}
int fb_fwprintf_chk(FILE* file, int flag, const wchar_t* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vfwprintf_chk(file, flag, format, more);
  va_end(more);
  return done;
}
int fb_wprintf(const wchar_t* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vfwprintf(stdout, format, more);
  va_end(more);
  return done;
}
int fb_wprintf_chk(int flag, const wchar_t* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vfwprintf_chk(stdout, flag, format, more);
  va_end(more);
  return done;
}

FOREBAY_EXPORT(fgetws, fb_fgetws);
FOREBAY_EXPORT(fgetws_unlocked, fb_fgetws);
FOREBAY_EXPORT(__fgetws_chk, fb_fgetws_chk);
FOREBAY_EXPORT(__fgetws_unlocked_chk, fb_fgetws_chk);
FOREBAY_EXPORT(fputws, fb_fputws);
FOREBAY_EXPORT(fputws_unlocked, fb_fputws);
FOREBAY_EXPORT(vfwprintf, fb_vfwprintf);
FOREBAY_EXPORT(__vfwprintf_chk, fb_vfwprintf_chk);
FOREBAY_EXPORT(vwprintf, fb_vwprintf);
FOREBAY_EXPORT(__vwprintf_chk, fb_vwprintf_chk);
FOREBAY_EXPORT(fwprintf, fb_fwprintf);
FOREBAY_EXPORT(__fwprintf_chk, fb_fwprintf_chk);
FOREBAY_EXPORT(wprintf, fb_wprintf);
FOREBAY_EXPORT(__wprintf_chk, fb_wprintf_chk);

// ---- Wide input by format; as programs of older standards and of C99 mean it ----

int fb_vfwscanf(FILE* file, const wchar_t* format, va_list more) {
  if (!is_ours(file)) return next<"vfwscanf", int>(file, format, more);
  const Locked lock(file);
  return scan_wide<"vfwscanf">(file, format, more);
}
int fb_vfwscanf_c99(FILE* file, const wchar_t* format, va_list more) {
  if (!is_ours(file)) return next<"__isoc99_vfwscanf", int>(file, format, more);
  const Locked lock(file);
  return scan_wide<"__isoc99_vfwscanf">(file, format, more);
}
int fb_fwscanf(FILE* file, const wchar_t* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vfwscanf(file, format, more);
  va_end(more);
  return done;
}
int fb_fwscanf_c99(FILE* file, const wchar_t* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vfwscanf_c99(file, format, more);
  va_end(more);
  return done;
}
int fb_vwscanf(const wchar_t* format, va_list more) {
  return fb_vfwscanf(stdin, format, more);
}
int fb_vwscanf_c99(const wchar_t* format, va_list more) {
  return fb_vfwscanf_c99(stdin, format, more);
}
int fb_wscanf(const wchar_t* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vfwscanf(stdin, format, more);
  va_end(more);
  return done;
}
int fb_wscanf_c99(const wchar_t* format, ...) {
  va_list more;
  va_start(more, format);
  const int done = fb_vfwscanf_c99(stdin, format, more);
  va_end(more);
  return done;
}

FOREBAY_EXPORT(vfwscanf, fb_vfwscanf);
FOREBAY_EXPORT(fwscanf, fb_fwscanf);
FOREBAY_EXPORT(vwscanf, fb_vwscanf);
FOREBAY_EXPORT(wscanf, fb_wscanf);
FOREBAY_EXPORT(__isoc99_vfwscanf, fb_vfwscanf_c99);
FOREBAY_EXPORT(__isoc99_fwscanf, fb_fwscanf_c99);
FOREBAY_EXPORT(__isoc99_vwscanf, fb_vwscanf_c99);
FOREBAY_EXPORT(__isoc99_wscanf, fb_wscanf_c99);
}

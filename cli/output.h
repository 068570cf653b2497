// All that the program prints. Results go to stdout and must arrive: what cannot be written is remembered,
// and finish_output() makes it an error. Notes go to stderr and may get lost.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace braid {

void open_output();                // before anything else: closed standard streams must not become files
void put(std::string_view text);   // to stdout
void flush_output();               // a reader sees it now
int finish_output(int code);       // at the end: `code`, or 1 with a message if something did not arrive
void note(std::string_view text);  // to stderr, readable()

template <class... T>
void say(fmt::format_string<T...> format, T&&... args) {
  put(fmt::format(format, std::forward<T>(args)...));
}

template <class... T>
void tell(fmt::format_string<T...> format, T&&... args) {
  note(fmt::format(format, std::forward<T>(args)...));
}

// Red and bold if `fd` is a terminal and NO_COLOR is not set; the text alone says the same. Not for note(),
// which escapes control characters.
std::string red(int fd, std::string_view text);
std::string human_bytes(double bytes);           // "1.2 KB", "34.5 MB", "5.6 GB"
std::string counted(size_t n, const char* one);  // "1 thread", "2 threads"

// Names and values come from files and command lines: control characters are escaped, long lines cut in the
// middle, and of many lines the first are left.
std::string readable(std::string_view text);

}  // namespace braid

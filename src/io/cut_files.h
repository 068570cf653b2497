// A mapped file that another program cuts short ends this one with SIGBUS as soon as it reads what is gone.
#pragma once

#include <cstddef>
#include <string>

namespace braid {

// For programs, once at their start: such an end becomes a message on stderr that names the file, and exit
// code
// 1. The library by itself leaves signals alone.
void report_cut_files();

// For MappedFile.
void note_mapping(const void* data, size_t size, const std::string& path);
void forget_mapping(const void* data);

}  // namespace braid

// For tests: an empty folder that is removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace braid {

class TestDir {
 public:
  TestDir() : path_(testing::TempDir() + "braid_io_XXXXXX") {
    if (!mkdtemp(path_.data())) ADD_FAILURE() << "no temporary folder " << path_;
  }
  TestDir(const TestDir&) = delete;
  TestDir& operator=(const TestDir&) = delete;
  ~TestDir() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {  // sorted, hidden ones too
    std::vector<std::string> names;
    for (const auto& e : std::filesystem::directory_iterator(path_)) names.push_back(e.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

inline void put(const std::string& path, const std::string& text) {
  std::filesystem::remove(path);  // a file cut to nothing and written again may wait for the disk
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline std::string get(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The failure of a Result or Status, or "no error".
template <class R>
std::string what(const R& r) {
  return r ? "no error" : r.error().what + " | " + r.error().fix;
}

inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != text.npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << part << "\" in: " << text;
}

}  // namespace braid

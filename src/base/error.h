// Errors as values, for mistakes a user can make (a missing file, a bad option, a damaged checkpoint).
//
//   Result<Config> load(const std::string& path);
//   auto config = load("config.json");
//   if (!config) return config.error();          // passes up, or is printed once by the command line
//   use(*config);
//
// Mistakes of the programmer are stopped by check() in check.h. Kernels cannot fail.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"

namespace braid {

struct [[nodiscard]] Error {
  std::string what;      // what is wrong, naming the file, field or tensor
  std::string fix = {};  // what to do about it; may be empty
};

[[noreturn]] void no_value(std::string_view why, Where at = Where::here());

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::move(value)) {}
  Result(Error error) : v_(std::move(error)) {}

  explicit operator bool() const { return v_.index() == 0; }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }
  const Error& error() const { return std::get<1>(v_); }

 private:
  T& checked() {
    if (v_.index() != 0) [[unlikely]]
      no_value(v_.index() == 1 ? std::get<1>(v_).what : "Result holds no value");
    return *std::get_if<0>(&v_);
  }
  std::variant<T, Error> v_;
};

// A Result without a value: success, or the error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return !error_.has_value(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

// One finding of a validation: all of them are reported at once.
struct Problem {
  std::string where;  // the field, e.g. "layers[1].mixer.heads"
  std::string what;   // what is wrong with its value
  std::string fix;    // a value or action that would be right
};

// Joins problems into one error, a line each. Of many alike the first three and their number: a file can have
// thousands of them.
Error to_error(const std::string& title, const std::vector<Problem>& problems);
// Of options, which are named first: "--steps is 0" with its fix, or all of them, a line each.
Error wrong_options(const std::vector<Problem>& problems);

}  // namespace braid

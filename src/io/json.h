// JSON text and files. Nothing here throws; errors name the file, line and column.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "io/json_fwd.h"

// Instantiated once, in json.cpp: saves a tenth of the compile time of each file that uses JSON.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
extern template class nlohmann::detail::serializer<nlohmann::ordered_json>;

namespace braid {

inline constexpr size_t kMaxJsonDepth = 200;  // deeper is refused: much of what walks JSON recurses

enum class DuplicateKeys : bool { kLastWins, kRefuse };

// All of these build their values in one way, with one limit of depth. Of a key that appears twice the last
// value wins, in ordered JSON at the place of the first. With sorted keys: finding one of many is fast.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& name_for_errors,
                                  DuplicateKeys duplicates = DuplicateKeys::kLastWins);
Result<nlohmann::json> load_sorted_json(const std::string& path,
                                        DuplicateKeys duplicates = DuplicateKeys::kLastWins);
// With keys in the order of the text: what a user wrote and a template shows again.
Result<Json> parse_ordered_json(std::string_view text, const std::string& name_for_errors);
Result<Json> load_json(const std::string& path);
// The same where Python may have written NaN, Infinity and -Infinity as bare words: they become strings.
Result<Json> load_python_json(const std::string& path);

// Atomic, indented, with a newline at the end. NaN and infinity become null: JSON has no word for them.
Status save_json(const std::string& path, const Json& value);

// For files too large or too hostile to be built in memory: a handler of events. It refuses what it reads
// with `return fail("why")`.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& problem() const { return problem_; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) final;
  bool binary(nlohmann::json::binary_t&) final { return fail("binary value"); }

 protected:
  virtual std::string context() const { return ""; }  // put before errors of syntax
  bool fail(std::string why) { return problem_ = std::move(why), false; }

 private:
  std::string problem_;
};
Status parse_json_events(std::string_view text, const std::string& name_for_errors, JsonEvents& handler);

// A name from a file, safe to print: quoted, escaped and cut to a readable length.
std::string in_quotes(std::string_view name);
// A value from a file, safe to print: its JSON, cut to 60 bytes.
std::string json_excerpt(const Json& value);

}  // namespace braid

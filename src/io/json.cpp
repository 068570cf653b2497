#include "io/json.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "io/file.h"

namespace braid {
namespace {

using nlohmann::json;

// Reads the text and tells how far the parser has come, which its events do not.
struct Cursor {
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* p = nullptr;
  size_t* read = nullptr;

  reference operator*() const { return *p; }
  Cursor& operator++() { return ++p, ++*read, *this; }
  Cursor operator++(int) {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return p == other.p; }
};

std::string place(std::string_view text, size_t read) {
  const std::string_view before = text.substr(0, read > 0 ? read - 1 : 0);
  const size_t line = std::count(before.begin(), before.end(), '\n'), newline = before.rfind('\n');
  const size_t column = newline == before.npos ? before.size() : before.size() - newline - 1;
  return "line " + std::to_string(line + 1) + ", column " + std::to_string(column + 1);
}

// nlohmann's own tree builder has no depth limit, and with a callback takes quadratic time on wide objects.
class Builder final : public JsonEvents {
 public:
  explicit Builder(DuplicateKeys duplicates) : duplicates_(duplicates) {}

  json root;

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(json::number_integer_t v) override { return put(v); }
  bool number_unsigned(json::number_unsigned_t v) override { return put(v); }
  bool number_float(json::number_float_t v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& k) override {
    const auto [at, fresh] = stack_.back()->get_ref<json::object_t&>().try_emplace(k);
    if (!fresh && duplicates_ == DuplicateKeys::kRefuse)
      return fail("the key " + in_quotes(k) + " appears twice");
    member_ = &at->second;
    return true;
  }

 private:
  json* slot() {
    if (stack_.empty()) return &root;
    return stack_.back()->is_array() ? &stack_.back()->get_ref<json::array_t&>().emplace_back() : member_;
  }
  bool put(json v) { return *slot() = std::move(v), true; }
  bool open(json v) {
    if (stack_.size() == kMaxJsonDepth)
      return fail("nested more than " + std::to_string(kMaxJsonDepth) + " levels deep");
    json* at = slot();
    *at = std::move(v);
    stack_.push_back(at);  // stays put: its parent does not grow while it is open
    return true;
  }
  bool close() { return stack_.pop_back(), true; }

  DuplicateKeys duplicates_;
  std::vector<json*> stack_;  // the open objects and arrays
  json* member_ = nullptr;    // where the value of the last key goes
};

}  // namespace

bool JsonEvents::parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong; last read: 'token'"
  std::string_view what = e.what();
  if (const size_t id = what.find("] "); what.starts_with('[') && id != what.npos) what.remove_prefix(id + 2);
  if (const size_t at = what.find(": "); what.starts_with("parse error") && at != what.npos)
    what.remove_prefix(at + 2);
  std::string text(what.substr(0, 200));  // the token may be as long as the file
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';  // nor need it be text
  return fail(context() + text);
}

Status parse_json_events(std::string_view text, const std::string& name, JsonEvents& handler) {
  const auto error = [&](size_t read, const std::string& why) {
    return Error{name + ": " + place(text, read) + ": " + why, "correct the file or fetch it again"};
  };
  // The parser would take a zero byte for the end of the text and not look at the rest.
  if (const size_t zero = text.find('\0'); zero != text.npos) return error(zero + 1, "a zero byte");
  size_t read = 0;
  const Cursor begin{text.data(), &read}, end{text.data() + text.size(), &read};
  try {
    if (json::sax_parse(begin, end, &handler)) return {};
  } catch (const std::exception& e) {  // out of memory
    return error(read, e.what());
  }
  return error(read, handler.problem());
}

Result<json> parse_json(std::string_view text, const std::string& name, DuplicateKeys duplicates) {
  Builder builder(duplicates);
  if (Status s = parse_json_events(text, name, builder); !s) return s.error();
  return std::move(builder.root);
}

Result<json> load_sorted_json(const std::string& path, DuplicateKeys duplicates) {
  const auto text = read_text(path);
  if (!text) return text.error();
  return parse_json(*text, path, duplicates);
}

Result<Json> load_json(const std::string& path) {
  Result<json> sorted = load_sorted_json(path);
  if (!sorted) return sorted.error();
  return Json(*sorted);
}

Status save_json(const std::string& path, const Json& value) {
  std::string text;
  try {
    text = value.dump(2) + "\n";
  } catch (const std::exception& e) {  // a string that is not UTF-8
    return Error{"cannot write " + path + ": " + e.what(), "use UTF-8 text only"};
  }
  return write_atomic(path, text);
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kLongest = 120;
  const std::string text =
      json(name.substr(0, kLongest)).dump(-1, ' ', false, json::error_handler_t::replace);
  return name.size() > kLongest ? text + "..." : text;
}

}  // namespace braid

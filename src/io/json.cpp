#include "io/json.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/file.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;
template class nlohmann::detail::serializer<nlohmann::ordered_json>;

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

// Python writes NaN, Infinity and -Infinity as bare words.
std::string with_quoted_words(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    size_t length = 0;
    if (quoted && text[i] == '\\')
      out += text[i++];  // what it escapes follows
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted)
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (length == 0 && text.compare(i, word.size(), word) == 0) length = word.size();
    if (length > 0) {
      out += '"' + text.substr(i, length) + '"';
      i += length - 1;
    } else if (i < text.size()) {
      out += text[i];
    }
  }
  return out;
}

// Which member of an object a key is. Sorted objects find it by themselves; ordered ones look through all
// their keys each time, so they get a table.
template <class J>
struct Level {
  J* value;
  std::unordered_map<std::string, size_t> keys = {};

  std::pair<J*, bool> member(const std::string& k) {
    auto& members = value->template get_ref<typename J::object_t&>();
    if constexpr (std::is_same_v<J, json>) {
      const auto [at, fresh] = members.try_emplace(k);
      return {&at->second, fresh};
    } else {
      const auto [at, fresh] = keys.try_emplace(k, members.size());
      if (fresh) static_cast<typename J::object_t::Container&>(members).emplace_back(k, nullptr);
      return {&members.begin()[static_cast<std::ptrdiff_t>(at->second)].second, fresh};
    }
  }
};

// nlohmann's own tree builder has no depth limit, and with a callback takes quadratic time on wide objects.
template <class J>
class Builder final : public JsonEvents {
 public:
  explicit Builder(DuplicateKeys duplicates) : duplicates_(duplicates) {}

  J root;

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(json::number_integer_t v) override { return put(v); }
  bool number_unsigned(json::number_unsigned_t v) override { return put(v); }
  bool number_float(json::number_float_t v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool start_object(size_t) override { return open(J::object()); }
  bool start_array(size_t) override { return open(J::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& k) override {
    const auto [place, fresh] = stack_.back().member(k);
    if (!fresh && duplicates_ == DuplicateKeys::kRefuse)
      return fail("the key " + in_quotes(k) + " appears twice");
    member_ = place;
    return true;
  }

 private:
  J* slot() {
    if (stack_.empty()) return &root;
    J* parent = stack_.back().value;
    return parent->is_array() ? &parent->template get_ref<typename J::array_t&>().emplace_back() : member_;
  }
  bool put(J v) { return *slot() = std::move(v), true; }
  bool open(J v) {
    if (stack_.size() == kMaxJsonDepth)
      return fail("nested more than " + std::to_string(kMaxJsonDepth) + " levels deep");
    J* at = slot();
    *at = std::move(v);
    stack_.push_back({at});  // stays put: its parent does not grow while it is open
    return true;
  }
  bool close() { return stack_.pop_back(), true; }

  DuplicateKeys duplicates_;
  std::vector<Level<J>> stack_;  // the open objects and arrays
  J* member_ = nullptr;          // where the value of the last key goes
};

template <class J>
Result<J> parse(std::string_view text, const std::string& name, DuplicateKeys duplicates) {
  Builder<J> builder(duplicates);
  if (Status s = parse_json_events(text, name, builder); !s) return s.error();
  return std::move(builder.root);
}

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
  } catch (const std::bad_alloc&) {
    return Error{name + ": out of memory", "free some memory, or give a smaller file"};
  }
  return error(read, handler.problem());
}

Result<json> parse_json(std::string_view text, const std::string& name, DuplicateKeys duplicates) {
  return parse<json>(text, name, duplicates);
}

Result<Json> parse_ordered_json(std::string_view text, const std::string& name) {
  return parse<Json>(text, name, DuplicateKeys::kLastWins);
}

Result<json> load_sorted_json(const std::string& path, DuplicateKeys duplicates) {
  const auto text = read_text(path);
  if (!text) return text.error();
  return parse_json(*text, path, duplicates);
}

Result<Json> load_json(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return text.error();
  return parse_ordered_json(*text, path);
}

Result<Json> load_python_json(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return text.error();
  return parse_ordered_json(with_quoted_words(*text), path);
}

Status save_json(const std::string& path, const Json& value) {
  std::string text;
  try {
    text = value.dump(2) + "\n";
  } catch (const Json::exception&) {
    return Error{path + ": cannot be written: a name or text in it is not UTF-8", "use UTF-8 text only"};
  }
  return write_atomic(path, text);
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kLongest = 120;
  const std::string text =
      json(name.substr(0, kLongest)).dump(-1, ' ', false, json::error_handler_t::replace);
  return name.size() > kLongest ? text + "..." : text;
}

std::string json_excerpt(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

}  // namespace braid

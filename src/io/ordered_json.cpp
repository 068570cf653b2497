#include "io/ordered_json.h"

#include <unordered_map>
#include <vector>

#include "io/file.h"

namespace braid {
namespace {

// Finds keys by a table of its own: Json looks through all keys of an object for each one.
class OrderedBuilder final : public JsonEvents {
 public:
  Json root;

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(nlohmann::json::number_integer_t v) override { return put(v); }
  bool number_unsigned(nlohmann::json::number_unsigned_t v) override { return put(v); }
  bool number_float(nlohmann::json::number_float_t v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& k) override {
    Level& level = stack_.back();
    auto& members = level.value->get_ref<Json::object_t&>();
    const auto [at, fresh] = level.keys.try_emplace(k, members.size());
    if (fresh) static_cast<Json::object_t::Container&>(members).emplace_back(k, nullptr);
    member_ = &members.begin()[static_cast<std::ptrdiff_t>(at->second)].second;
    return true;
  }

 private:
  struct Level {
    Json* value;
    std::unordered_map<std::string, size_t> keys = {};
  };

  Json* slot() {
    if (stack_.empty()) return &root;
    Json* parent = stack_.back().value;
    return parent->is_array() ? &parent->get_ref<Json::array_t&>().emplace_back() : member_;
  }
  bool put(Json v) { return *slot() = std::move(v), true; }
  bool open(Json v) {
    if (stack_.size() == kMaxJsonDepth)
      return fail("nested more than " + std::to_string(kMaxJsonDepth) + " levels deep");
    Json* at = slot();
    *at = std::move(v);
    stack_.push_back({at});  // stays put: its parent does not grow while it is open
    return true;
  }
  bool close() { return stack_.pop_back(), true; }

  std::vector<Level> stack_;  // the open objects and arrays
  Json* member_ = nullptr;    // where the value of the last key goes
};

}  // namespace

Result<Json> parse_ordered_json(std::string_view text, const std::string& name) {
  OrderedBuilder builder;
  if (Status s = parse_json_events(text, name, builder); !s) return s.error();
  return std::move(builder.root);
}

Result<Json> load_ordered_json(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return text.error();
  return parse_ordered_json(*text, path);
}

}  // namespace braid

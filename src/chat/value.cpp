#include "chat/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chat/text.h"

namespace braid::chat {
namespace {

void add_child(Object& parent, const Value& child) {
  parent.depth = std::max(parent.depth, child.depth() + 1);
  parent.weight += child.weight();
  if (parent.depth > kMaxValueDepth) throw Failure{"values are nested too deep"};
  if (parent.weight > kMaxValueWeight) throw Failure{"a list or dict is too large"};
}

template <class T>
std::shared_ptr<T> make_container(Values items) {
  auto s = std::make_shared<T>();
  s->depth = 1;
  for (const Value& v : items) add_child(*s, v);
  s->items = std::move(items);
  return s;
}

}  // namespace

Value::Value(std::string text, bool markup) : kind_(Kind::kString) {
  auto t = std::make_shared<Text>();
  t->weight = 1 + text.size() / 64;
  t->text = std::move(text);
  t->markup = markup;
  object_ = std::move(t);
}
const std::string& Value::text() const { return as<Text>().text; }
bool Value::markup() const { return is_string() && as<Text>().markup; }
const Values& Value::items() const { return is(Kind::kView) ? as<View>().items : as<Sequence>().items; }

Value undefined(std::string message) {
  auto info = std::make_shared<UndefinedInfo>();
  info->message = std::move(message);
  return {Kind::kUndefined, std::move(info)};
}

Value make_list(Values items) { return {Kind::kList, make_container<Sequence>(std::move(items))}; }

Value make_tuple(Values items, bool group) {
  auto s = make_container<Sequence>(std::move(items));
  s->group = group;
  return {Kind::kTuple, std::move(s)};
}

Value make_view(Values items, const char* name) {
  auto s = make_container<View>(std::move(items));
  s->name = name;
  return {Kind::kView, std::move(s)};
}

Value make_iterator(Values items) { return {Kind::kIterator, make_container<Iterator>(std::move(items))}; }

Value make_dict(std::shared_ptr<Dict> dict) {
  dict->depth = 1;
  for (const auto& [k, v] : dict->items) add_child(*dict, k), add_child(*dict, v);
  return {Kind::kDict, std::move(dict)};
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : items)
    if (k.is_string() && k.text() == key) return &v;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  check_hashable(key);
  for (const auto& [k, v] : items)
    if (equal(k, key)) return &v;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  if (const Value* old = find(key))
    *const_cast<Value*>(old) = std::move(value);
  else
    items.emplace_back(std::move(key), std::move(value));
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [k, v] : items)
    if (k == name) return &v;
  return nullptr;
}

const char* type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return v.as<View>().name;
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
  }
  return "";
}

std::string described(const Value& v) {
  return v.is(Kind::kNone) ? "None" : std::string(type_name(v)) + " object";
}

bool truth(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return v.boolean();
    case Kind::kInt:
      return v.integer() != 0;
    case Kind::kFloat:
      return v.number() != 0;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kFunction:
      return true;
    default:
      return length(v) != 0;
  }
}

void check_hashable(const Value& v) {
  if (v.is(Kind::kList) || v.is(Kind::kDict) ||
      (v.is(Kind::kView) && std::string_view(v.as<View>().name) != "dict_values"))
    throw Failure{fmt::format("unhashable type: '{}'", type_name(v))};
  if (v.is(Kind::kTuple))
    for (const Value& item : v.items()) check_hashable(item);
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
    // 64 bits of mantissa hold every int64 and every double.
    const auto wide = [](const Value& v) {
      return v.is_integer() ? static_cast<long double>(v.integer()) : static_cast<long double>(v.number());
    };
    return wide(a) == wide(b);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.object() == b.object() ||
             std::ranges::equal(a.items(), b.items(),
                                [](const Value& x, const Value& y) { return equal(x, y); });
    case Kind::kDict: {
      const auto &x = a.as<Dict>(), &y = b.as<Dict>();
      if (&x == &y) return true;
      if (x.items.size() != y.items.size()) return false;
      for (const auto& [k, v] : x.items) {
        const Value* other = y.find(k);
        if (!other || !equal(v, *other)) return false;
      }
      return true;
    }
    case Kind::kRange: {
      const auto &x = a.as<Range>(), &y = b.as<Range>();
      return x.length == y.length &&
             (x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step)));
    }
    case Kind::kView: {  // keys and items compare as sets
      const auto &x = a.as<View>(), &y = b.as<View>();
      if (&x == &y) return true;
      if (std::string_view(x.name) == "dict_values" || std::string_view(y.name) == "dict_values")
        return false;
      return x.items.size() == y.items.size() && std::ranges::all_of(x.items, [&](const Value& v) {
               return std::ranges::any_of(y.items, [&](const Value& w) { return equal(v, w); });
             });
    }
    default:
      return a.object() == b.object();
  }
}

bool identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.boolean() == b.boolean();
    case Kind::kInt:
      return a.integer() == b.integer();
    case Kind::kFloat:
      return a.number() == b.number();
    case Kind::kString:
      return a.text() == b.text();
    default:
      return a.object() == b.object();
  }
}

int order(const Value& a, const Value& b, const char* op) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
    const auto wide = [](const Value& v) {
      return v.is_integer() ? static_cast<long double>(v.integer()) : static_cast<long double>(v.number());
    };
    const long double x = wide(a), y = wide(b);
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
  }
  for (const Value* v : {&a, &b})
    if (v->is_undefined()) throw Failure{v->as<UndefinedInfo>().message};
  if (a.is_string() && b.is_string()) {
    const int c = a.text().compare(b.text());  // the order of UTF-8 bytes is that of code points
    return c < 0 ? -1 : c > 0;
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Values &x = a.items(), &y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i])) return order(x[i], y[i], op);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  throw Failure{
      fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b))};
}

std::string str(const Value& v) {
  if (v.is_undefined()) return "";
  if (v.is_string()) return v.text();
  return repr(v);
}

std::string repr(const Value& v) {
  const auto list = [&](const Values& items) {
    std::string out;
    for (const Value& item : items) {
      if (!out.empty()) out += ", ";
      out += repr(item);
    }
    return out;
  };
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return v.boolean() ? "True" : "False";
    case Kind::kInt:
      return std::to_string(v.integer());
    case Kind::kFloat:
      return float_text(v.number());
    case Kind::kString:
      return v.markup() ? "Markup(" + repr_text(v.text()) + ")" : repr_text(v.text());
    case Kind::kList:
      return "[" + list(v.items()) + "]";
    case Kind::kTuple:
      return "(" + list(v.items()) + (v.items().size() == 1 ? ",)" : ")");
    case Kind::kView:
      return std::string(v.as<View>().name) + "([" + list(v.items()) + "])";
    case Kind::kDict: {
      std::string out;
      for (const auto& [k, x] : v.as<Dict>().items) {
        if (!out.empty()) out += ", ";
        out += repr(k) + ": " + repr(x);
      }
      return "{" + out + "}";
    }
    case Kind::kRange: {
      const auto& r = v.as<Range>();
      const std::string ends = fmt::format("{}, {}", r.start, r.stop);
      return r.step == 1 ? "range(" + ends + ")" : fmt::format("range({}, {})", ends, r.step);
    }
    default:
      throw Failure{fmt::format("a {} cannot be printed", type_name(v))};
  }
}

bool walkable(const Value& v) {
  switch (v.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kFunction:
      return false;
    default:
      return true;
  }
}

Cursor::Cursor(Value v) : v_(std::move(v)) {
  if (!walkable(v_)) throw Failure{fmt::format("'{}' object is not iterable", type_name(v_))};
}

bool Cursor::next(Value& item) {
  switch (v_.kind()) {
    case Kind::kString: {
      const std::string& s = v_.text();
      if (at_ >= s.size()) return false;
      const size_t start = at_;
      next_point(s, at_);
      item = Value(s.substr(start, at_ - start));
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      if (at_ >= v_.items().size()) return false;
      item = v_.items()[at_++];
      return true;
    case Kind::kDict:
      if (at_ >= v_.as<Dict>().items.size()) return false;
      item = v_.as<Dict>().items[at_++].first;
      return true;
    case Kind::kRange: {
      const auto& r = v_.as<Range>();
      if (static_cast<int64_t>(at_) >= r.length) return false;
      item = Value(r.start + r.step * static_cast<int64_t>(at_++));
      return true;
    }
    case Kind::kIterator: {
      const auto& it = v_.as<Iterator>();
      if (it.at >= it.items.size()) return false;
      item = std::move(it.items[it.at++]);
      return true;
    }
    default:
      return false;  // undefined
  }
}

int64_t length(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(count_points(v.text()));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return static_cast<int64_t>(v.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(v.as<Dict>().items.size());
    case Kind::kRange:
      return v.as<Range>().length;
    default:
      return -1;
  }
}

namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& v, int level) {
    budget_.step();
    switch (v.kind()) {
      case Kind::kNone:
        return put("null");
      case Kind::kBool:
        return put(v.boolean() ? "true" : "false");
      case Kind::kInt:
        return put(std::to_string(v.integer()));
      case Kind::kFloat:
        return put(number(v.number()));
      case Kind::kString:
        return quote(v.text());
      case Kind::kList:
      case Kind::kTuple: {
        if (v.items().empty()) return put("[]");
        put("[");
        bool first = true;
        for (const Value& item : v.items()) {
          next_item(first, level + 1);
          write(item, level + 1);
        }
        line(level);
        return put("]");
      }
      case Kind::kDict:
        return object(v.as<Dict>(), level);
      default:
        throw Failure{fmt::format("Object of type {} is not JSON serializable", type_name(v))};
    }
  }

  std::string out;

 private:
  void put(std::string_view s) {
    budget_.take(s.size());
    if (out.size() + s.size() > budget_.longest)
      throw Failure{"the template makes a string that is too long"};
    out += s;
  }
  void line(int level) {
    if (!style_.multiline) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(style_.indent);
  }
  void next_item(bool& first, int level) {
    if (!first) put(style_.item_separator);
    first = false;
    line(level);
  }

  static std::string number(double x) {
    return std::isnan(x) ? "NaN" : std::isinf(x) ? (x > 0 ? "Infinity" : "-Infinity") : float_text(x);
  }

  void object(const Dict& d, int level) {
    if (d.items.empty()) return put("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : d.items) items.push_back(&item);
    if (style_.sort_keys)
      std::ranges::stable_sort(
          items, [](const auto* a, const auto* b) { return order(a->first, b->first, "<") == -1; });
    put("{");
    bool first = true;
    for (const auto* item : items) {
      next_item(first, level + 1);
      const Value& key = item->first;
      switch (key.kind()) {
        case Kind::kString:
          quote(key.text());
          break;
        case Kind::kNone:
          put("\"null\"");
          break;
        case Kind::kBool:
          put(key.boolean() ? "\"true\"" : "\"false\"");
          break;
        case Kind::kInt:
          put("\"" + std::to_string(key.integer()) + "\"");
          break;
        case Kind::kFloat:
          put("\"" + number(key.number()) + "\"");
          break;
        default:
          throw Failure{fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key))};
      }
      put(style_.key_separator);
      write(item->second, level + 1);
    }
    line(level);
    put("}");
  }

  void quote(std::string_view text) {
    std::string s = "\"";
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      const char32_t c = next_point(text, at);
      switch (c) {
        case '"':
          s += "\\\"";
          break;
        case '\\':
          s += "\\\\";
          break;
        case '\n':
          s += "\\n";
          break;
        case '\r':
          s += "\\r";
          break;
        case '\t':
          s += "\\t";
          break;
        case '\f':
          s += "\\f";
          break;
        case '\b':
          s += "\\b";
          break;
        default:
          if (c >= 0x10000 && style_.ensure_ascii)
            s += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
          else if (c < ' ' || (c > '~' && style_.ensure_ascii))
            s += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
          else
            s += text.substr(start, at - start);
      }
    }
    put(s + "\"");
  }

  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

std::string json_text(const Value& v, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(v, 0);
  return std::move(writer.out);
}

}  // namespace braid::chat

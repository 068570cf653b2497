#include "eval/rows.h"

#include <fmt/format.h>

#include <charconv>

#include "eval/python_text.h"
#include "eval/wikitext.h"
#include "io/file.h"
#include "tokenizer/utf8.h"

namespace braid {

void EvalRow::wrong(const std::string& what, const std::string& fix) {
  if (status_) status_ = Error{fmt::format("{}: {}", where_, what), fix};
}

const Json* EvalRow::field(const char* name) {
  const auto at = json_.find(name);
  if (at != json_.end()) return &*at;
  wrong(fmt::format("the field '{}' is missing", name),
        "compare the line with the task's data set: it may be damaged, or of another data set");
  return nullptr;
}

std::string EvalRow::as_text(const Json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  wrong(fmt::format("the field '{}' is {}, not a string", name, json_excerpt(value)), "correct this line");
  return {};
}

std::vector<std::string> EvalRow::as_texts(const Json& value, const std::string& name) {
  std::vector<std::string> out;
  if (!value.is_array())
    wrong(fmt::format("the field '{}' is {}, not a list", name, json_excerpt(value)), "correct this line");
  else
    for (const Json& v : value) out.push_back(as_text(v, name));
  return out;
}

std::string EvalRow::text(const char* name) {
  const Json* f = field(name);
  return f ? as_text(*f, name) : std::string();
}

std::vector<std::string> EvalRow::texts(const char* name) {
  const Json* f = field(name);
  return f ? as_texts(*f, name) : std::vector<std::string>();
}

std::string EvalRow::text_in(const char* name, const char* inside) {
  const Json* f = field(name);
  if (!f) return {};
  if (f->is_object() && f->contains(inside))
    return as_text(f->at(inside), fmt::format("{}.{}", name, inside));
  wrong(fmt::format("the field '{}.{}' is missing", name, inside), "correct this line");
  return {};
}

std::vector<std::string> EvalRow::texts_in(const char* name, const char* inside) {
  const Json* f = field(name);
  if (!f) return {};
  if (f->is_object() && f->contains(inside))
    return as_texts(f->at(inside), fmt::format("{}.{}", name, inside));
  wrong(fmt::format("the field '{}.{}' is missing", name, inside), "correct this line");
  return {};
}

size_t EvalRow::index(const char* name, size_t end, size_t first) {
  const Json* f = field(name);
  if (!f) return 0;
  int64_t n = -1;
  if (f->is_number_integer()) {
    n = f->get<int64_t>();
  } else if (f->is_boolean()) {
    n = f->get<bool>();
  } else if (f->is_string()) {
    const std::string s = f->get<std::string>();
    if (std::from_chars(s.data(), s.data() + s.size(), n).ptr != s.data() + s.size()) n = -1;
  }
  const auto low = static_cast<int64_t>(first);
  if (n >= low && n < low + static_cast<int64_t>(end)) return static_cast<size_t>(n - low);
  wrong(fmt::format("the field '{}' is {}, not a number from {} to {}", name, json_excerpt(*f), first,
                    first + end - 1),
        "correct this line");
  return 0;
}

std::vector<std::vector<std::string>> EvalRow::answers(const char* name) {
  std::vector<std::vector<std::string>> out;
  const Json* f = field(name);
  if (!f) return out;
  if (!f->is_array() || f->empty())
    wrong(fmt::format("the field '{}' is {}, not a list of answers", name, json_excerpt(*f)),
          "correct this line");
  else
    for (const Json& v : *f)
      out.push_back(v.is_array() ? as_texts(v, name) : std::vector<std::string>{as_text(v, name)});
  return out;
}

Result<EvalRows> read_eval_rows(const std::string& path) {
  Result<std::string> raw = read_text(path, size_t{1} << 30);
  if (!raw) return raw.error();
  std::string scratch;
  const std::string_view text = valid_utf8(*raw, scratch);
  EvalRows out{.path = path, .rows = {}, .lines = {}};
  const auto add = [&](Json row, size_t line) {
    out.rows.push_back(std::move(row));
    out.lines.push_back(line);
  };
  if (path.ends_with(".raw")) {
    for (const std::string& page : wikitext_pages(text)) add({{"page", page}}, out.rows.size() + 1);
    return out;
  }
  const bool json = path.ends_with(".jsonl");
  size_t line = 0;
  for (const std::string& l : split_at(text, '\n')) {
    ++line;
    if (strip(l).empty()) continue;
    if (!json) {
      add({{"text", l}}, line);
      continue;
    }
    Result<Json> row = parse_ordered_json(l, fmt::format("{}:{}", path, line));
    if (!row) return Error{row.error().what, "correct this line; each line of the file is one JSON object"};
    if (!row->is_object())
      return Error{fmt::format("{}:{}: {} is not an object", path, line, json_excerpt(*row)),
                   "each line of the file is one JSON object"};
    add(*std::move(row), line);
  }
  return out;
}

}  // namespace braid

#include "data/documents.h"

#include <algorithm>
#include <utility>

#include "io/json.h"

namespace braid {
namespace {

constexpr size_t kRead = size_t{1} << 20, kLongestLine = size_t{1} << 30;

bool visible(char c) { return c > ' ' && c < '\x7f'; }

std::string without_gz(const std::string& name) {
  return name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
}

// The next border between two characters of UTF-8.
size_t character_border(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

bool is_safe(std::string_view text, size_t cut) {
  return text[cut - 1] == '\n' && visible(text[cut - 2]) && visible(text[cut]);
}

size_t next_safe_cut(std::string_view text, size_t from) {  // 0: there is none
  for (size_t i = std::max<size_t>(2, from); i < text.size(); ++i)
    if (is_safe(text, i)) return i;
  return 0;
}

}  // namespace

size_t safe_cut(std::string_view text, size_t limit) {
  if (text.empty()) return 0;
  for (size_t i = std::min(limit, text.size() - 1); i >= 2; --i)
    if (is_safe(text, i)) return i;
  return 0;
}

Result<DocumentReader> DocumentReader::open(std::vector<std::string> files, const DocumentOptions& options,
                                            const DocumentPlace& from, size_t longest) {
  DocumentReader reader;
  for (const std::string& file : files) {
    if (without_gz(file).ends_with(".parquet"))
      return Error{file + ": parquet is not read", "convert it to jsonl, e.g. with pyarrow or duckdb"};
    if (const Result<uint64_t> size = file_size(file); !size) return size.error();
  }
  reader.files_ = std::move(files), reader.options_ = options, reader.place_ = from,
  reader.longest_ = longest;
  for (size_t i = 0; i < std::min<size_t>(from.file, reader.files_.size()); ++i)
    reader.finished_bytes_ += *file_size(reader.files_[i]);
  if (from.file < reader.files_.size())
    if (Status s = reader.open_file(); !s) return s.error();
  return reader;
}

Status DocumentReader::open_file() {
  const std::string& path = files_[place_.file];
  Result<InputFile> file = InputFile::open(path, place_.byte);
  if (!file) return file.error();
  file_ = *std::move(file);
  const std::string name = without_gz(path);
  json_ = name.ends_with(".jsonl") || name.ends_with(".ndjson");
  at_end_ = false, at_ = 0;
  buffer_.clear();
  return {};
}

Status DocumentReader::fill_to(size_t bytes) {
  while (!at_end_ && rest().size() < bytes) {
    buffer_.erase(0, std::exchange(at_, 0));
    const size_t old = buffer_.size();
    buffer_.resize(old + kRead);
    const Result<size_t> got = file_->read(std::span(buffer_).subspan(old));
    if (!got) return got.error();
    buffer_.resize(old + *got);
    at_end_ = *got < kRead;
  }
  return {};
}

std::string DocumentReader::take(size_t bytes, size_t skipped) {
  std::string out = buffer_.substr(at_, bytes);
  const std::string_view gone = rest().substr(0, bytes + skipped);
  place_.byte += gone.size();
  place_.line += static_cast<uint64_t>(std::ranges::count(gone, '\n'));
  at_ += gone.size();
  return out;
}

Result<std::optional<DocumentPart>> DocumentReader::next() {
  while (place_.file < files_.size()) {
    Result<std::optional<DocumentPart>> part = json_ ? next_line() : next_text();
    if (!part || *part) return part;
    finished_bytes_ += *file_size(files_[place_.file]);
    file_.reset();
    place_ = {place_.file + 1, 0, 0};
    if (place_.file < files_.size())
      if (Status s = open_file(); !s) return s.error();
  }
  return std::optional<DocumentPart>();
}

Result<std::optional<DocumentPart>> DocumentReader::next_line() {
  for (;;) {
    size_t end = std::string_view::npos;
    for (size_t looked = 0; (end = rest().find('\n', looked)) == std::string_view::npos && !at_end_;) {
      looked = rest().size();
      if (looked > kLongestLine)
        return Error{
            files_[place_.file] + ": line " + std::to_string(place_.line + 1) + " is longer than 1 GiB",
            "is it a jsonl file?"};
      if (Status s = fill_to(looked + 1); !s) return s.error();
    }
    if (rest().empty()) return std::optional<DocumentPart>();
    DocumentPart part{.json = true, .file = place_.file, .line = place_.line + 1};
    part.raw = end == std::string_view::npos ? take(rest().size(), 0) : take(end, 1);
    if (part.raw.find_first_not_of(" \t\r") != std::string::npos) return std::optional(std::move(part));
  }
}

// What is decided here depends on the text that follows and never on how much of it is in the buffer, so that
// a reader that begins at place() gives the same parts.
Result<std::optional<DocumentPart>> DocumentReader::next_text() {
  const std::string& separator = options_.separator;
  const size_t far = 64 * longest_;
  const auto part = [&](size_t bytes, size_t skipped, bool ends) {
    return std::optional(DocumentPart{.raw = take(bytes, skipped), .ends = ends, .file = place_.file});
  };
  // The separator's place if it begins in the first `within` bytes.
  const auto find_separator = [&](size_t within) {
    return separator.empty() ? std::string_view::npos
                             : rest().substr(0, within + separator.size()).find(separator);
  };
  const auto until_separator = [&](size_t at) {
    const size_t after = at + separator.size();
    const size_t line_end_after = after < rest().size() && rest()[after] == '\n';
    const size_t line_end_before = at > 0 && rest()[at - 1] == '\n';
    return part(at - line_end_before, line_end_before + separator.size() + line_end_after, true);
  };
  if (Status s = fill_to(longest_ + separator.size() + 1); !s) return s.error();
  if (rest().empty()) return std::optional<DocumentPart>();
  if (const size_t at = find_separator(longest_); at != std::string_view::npos) return until_separator(at);
  if (rest().size() <= longest_) return part(rest().size(), 0, true);
  if (const size_t cut = safe_cut(rest(), longest_); cut > 0) return part(cut, 0, false);
  // A long line: on to the next place that will do.
  if (Status s = fill_to(far + separator.size() + 1); !s) return s.error();
  const size_t at = find_separator(far), cut = next_safe_cut(rest().substr(0, far), longest_);
  if (at != std::string_view::npos && (cut == 0 || at <= cut)) return until_separator(at);
  if (cut > 0) return part(cut, 0, false);
  if (rest().size() <= far) return part(rest().size(), 0, true);
  return part(character_border(rest(), far), 0, false);
}

uint64_t DocumentReader::file_bytes_read() const {
  return finished_bytes_ + (file_ ? file_->file_bytes_read() : 0);
}

Result<std::string> document_text(DocumentPart part, const DocumentOptions& options,
                                  const std::string& name) {
  if (!part.json) return std::move(part.raw);
  const std::string where = name + ":" + std::to_string(part.line);
  const Result<nlohmann::json> object = parse_json(part.raw, where);
  if (!object) return object.error();
  if (!object->is_object()) return Error{where + ": not a JSON object", "write one object per line"};
  const auto text = object->find(options.field);
  if (text == object->end()) {
    std::string names;
    for (const auto& [key, value] : object->items()) names += (names.empty() ? "" : ", ") + in_quotes(key);
    return Error{
        where + ": has no field '" + options.field + "'",
        "give the name of the text's field with --field; here are " + (names.empty() ? "none" : names)};
  }
  if (!text->is_string())
    return Error{where + ": field '" + options.field + "' is not text", "correct the line"};
  return text->get<std::string>();
}

}  // namespace braid

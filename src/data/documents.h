// Documents of text files, one after another, whatever the size of the files.
//
//   *.jsonl, *.ndjson   an object per line; `field` is the document
//   all else            text: one document, or as many as `separator` makes of it
//
// Each may be gzip. A very long text comes in parts, so that no document is in memory as a whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/input.h"

namespace braid {

struct DocumentOptions {
  std::string field = "text";  // of a line of JSON
  std::string separator = {};  // between documents of a text, without a line end on either side; empty: none
};

struct DocumentPlace {
  uint64_t file = 0, byte = 0, line = 0;  // byte of the unpacked text; line: how many end before it
  bool operator==(const DocumentPlace&) const = default;
};

struct DocumentPart {
  std::string raw = {};  // text, or a line of JSON
  bool json = false;     // then text() reads the field
  bool ends = true;      // the last part of its document
  size_t file = 0;
  uint64_t line = 0;  // of JSON, from 1
};

class DocumentReader {
 public:
  // A part of a text has up to `longest` bytes, or more up to the next safe_cut(); what has none within 64
  // times that is cut between two characters.
  static Result<DocumentReader> open(std::vector<std::string> files, const DocumentOptions& options,
                                     const DocumentPlace& from = {}, size_t longest = kLongestPart);
  Result<std::optional<DocumentPart>> next();            // nothing: the end
  const DocumentPlace& place() const { return place_; }  // where the next part begins
  uint64_t file_bytes_read() const;                      // of all files so far, as they are stored

  static constexpr size_t kLongestPart = size_t{1} << 20;

 private:
  DocumentReader() = default;
  Status open_file();
  Status fill_to(size_t bytes);  // of rest(), or to the end of the file
  Result<std::optional<DocumentPart>> next_line();
  Result<std::optional<DocumentPart>> next_text();
  std::string take(size_t bytes, size_t skipped);
  std::string_view rest() const { return std::string_view(buffer_).substr(at_); }

  std::vector<std::string> files_;
  DocumentOptions options_;
  DocumentPlace place_;
  size_t longest_ = kLongestPart;
  std::optional<InputFile> file_;
  uint64_t finished_bytes_ = 0;  // of the files before this one
  bool json_ = false, at_end_ = false;
  std::string buffer_;
  size_t at_ = 0;
};

// The text of a part. `name` stands for its file in messages.
Result<std::string> document_text(DocumentPart part, const DocumentOptions& options, const std::string& name);

// The last place up to `limit` where byte-level BPE gives the same tokens for both sides as for the whole:
// behind a line end with a visible ASCII character on either side. 0: there is none.
size_t safe_cut(std::string_view text, size_t limit);

}  // namespace braid

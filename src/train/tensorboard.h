// Scalars as TensorBoard reads them: RUN/events.out.tfevents.*, beside metrics.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace braid {

struct Scalar {
  std::string tag;  // "loss", "eval/loss"
  double value;
};

class EventFile {
 public:
  // A new file in `dir` for a run that begins behind `step`: what older files say of later steps is void.
  static Result<EventFile> start(const std::string& dir, uint64_t step);
  Status add(uint64_t step, const std::vector<Scalar>& scalars);

 private:
  explicit EventFile(std::string path) : path_(std::move(path)) {}
  Status append(const std::string& event);
  std::string path_;
};

bool is_event_file(const std::string& name);  // of Braid, without folder

uint32_t crc32c(const void* data, size_t size);  // Castagnoli's, as the records have it

}  // namespace braid

#include "train/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "io/file.h"

namespace braid {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as they are in memory");

// Protocol buffers: a field is (number << 3 | kind), then its value.
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
template <class T>
void put_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_integer(std::string& out, uint32_t field, uint64_t value) {
  put_varint(out, field << 3), put_varint(out, value);
}
void put_double(std::string& out, uint32_t field, double value) {
  put_varint(out, field << 3 | 1), put_raw(out, value);
}
void put_float(std::string& out, uint32_t field, float value) {
  put_varint(out, field << 3 | 5), put_raw(out, value);
}
void put_bytes(std::string& out, uint32_t field, const std::string& value) {
  put_varint(out, field << 3 | 2), put_varint(out, value.size());
  out += value;
}

// Field numbers of TensorFlow's event.proto and summary.proto.
constexpr uint32_t kEventTime = 1, kEventStep = 2, kEventVersion = 3, kEventSummary = 5, kEventSession = 7,
                   kSummaryValue = 1, kValueTag = 1, kValueNumber = 2, kSessionStatus = 1;
constexpr uint64_t kSessionStart = 1;

std::string event_at(uint64_t step) {
  using std::chrono::duration, std::chrono::system_clock;
  std::string event;
  put_double(event, kEventTime, duration<double>(system_clock::now().time_since_epoch()).count());
  put_integer(event, kEventStep, step);
  return event;
}

uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

}  // namespace

uint32_t crc32c(const void* data, size_t size) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? (c >> 1) ^ 0x82f63b78u : c >> 1;
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const auto* p = static_cast<const unsigned char*>(data); size > 0; --size, ++p)
    crc = table[(crc ^ *p) & 0xff] ^ (crc >> 8);
  return ~crc;
}

bool is_event_file(const std::string& name) {
  return name.starts_with("events.out.tfevents.") && name.find(".braid.") != std::string::npos;
}

Result<EventFile> EventFile::start(const std::string& dir, uint64_t step) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  EventFile file(
      fmt::format("{}/events.out.tfevents.{}.{:03}.braid.{}", dir, now / 1000, now % 1000, getpid()));
  std::string version = event_at(0), session = event_at(step + 1), log;
  put_bytes(version, kEventVersion, "brain.Event:2");
  if (Status s = file.append(version); !s) return s.error();
  if (step > 0) {  // a run that goes on
    put_integer(log, kSessionStatus, kSessionStart);
    put_bytes(session, kEventSession, log);
    if (Status s = file.append(session); !s) return s.error();
  }
  return file;
}

Status EventFile::add(uint64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& s : scalars) {
    std::string value;
    put_bytes(value, kValueTag, s.tag);
    put_float(value, kValueNumber, static_cast<float>(s.value));
    put_bytes(summary, kSummaryValue, value);
  }
  std::string event = event_at(step);
  put_bytes(event, kEventSummary, summary);
  return append(event);
}

// A record: its length, the length's checksum, the event, its checksum.
Status EventFile::append(const std::string& event) {
  std::string record;
  put_raw(record, static_cast<uint64_t>(event.size()));
  put_raw(record, masked(crc32c(record.data(), record.size())));
  record += event;
  put_raw(record, masked(crc32c(event.data(), event.size())));
  return append_bytes(path_, record);
}

}  // namespace braid

#include "tokenizer/utf8.h"

#include <cstring>

namespace braid {

Utf8Char read_utf8(std::string_view text, size_t at) {
  const auto b = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const size_t left = text.size() - at;
  const uint8_t first = b(0);
  if (first < 0x80) return {first, 1, Utf8Char::kValid};
  if (first < 0xC2 || first > 0xF4) return {0, 1, Utf8Char::kInvalid};
  const uint8_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte decides about overlong forms, surrogates and what lies above U+10FFFF.
  const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  uint32_t code = first & (0x7F >> length);
  for (uint8_t i = 1; i < length; ++i) {
    if (i == left) return {0, i, Utf8Char::kCut};
    const uint8_t c = b(i);
    if (i == 1 ? c < low || c > high : (c & 0xC0) != 0x80) return {0, i, Utf8Char::kInvalid};
    code = code << 6 | (c & 63);
  }
  return {code, length, Utf8Char::kValid};
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 63));
  if (code < 0x10000) return put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
  put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)),
      put(0x80 | (code & 63));
}

std::string to_utf8(uint32_t code) {
  std::string s;
  append_utf8(s, code);
  return s;
}

namespace {

// How far the text is valid from `at`. Eight ASCII bytes at a time.
size_t valid_until(std::string_view text, size_t at) {
  while (at < text.size()) {
    if (at + 8 <= text.size()) {
      uint64_t eight;
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Char c = read_utf8(text, at);
    if (c.kind != Utf8Char::kValid) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

std::string_view valid_utf8(std::string_view text, std::string& scratch) {
  size_t end = valid_until(text, 0);
  if (end == text.size()) return text;
  scratch.clear();
  for (size_t at = 0;;) {
    scratch.append(text, at, end - at);
    if (end == text.size()) return scratch;
    scratch += kReplacementChar;
    at = end + read_utf8(text, end).bytes;
    end = valid_until(text, at);
  }
}

void move_valid_utf8(std::string& pending, std::string& out, bool last) {
  size_t at = 0;
  while (at < pending.size()) {
    const size_t end = valid_until(pending, at);
    out.append(pending, at, end - at);
    at = end;
    if (at == pending.size()) break;
    const Utf8Char c = read_utf8(pending, at);
    if (c.kind == Utf8Char::kCut && !last) break;
    out += kReplacementChar;
    at += c.bytes;
  }
  pending.erase(0, at);
}

}  // namespace braid

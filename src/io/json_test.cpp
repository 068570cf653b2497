#include "io/json.h"

#include <gtest/gtest.h>

#include "support/test_dir.h"

namespace braid {
namespace {

using nlohmann::json;

std::string parsed(const std::string& text, DuplicateKeys d = DuplicateKeys::kLastWins) {
  const auto r = parse_json(text, "f.json", d);
  return r ? r->dump() : r.error().what;
}

TEST(Json, BuildsWhatTheTextSays) {
  for (const char* text : {"{}", "[]", "null", "true", "-3", "18446744073709551615", "1.5", "\"\\u00e9\"",
                           R"({"a":[1,[2,{"b":{}}],[]],"c":{"d":null},"e":[{"f":1},{"f":2}]})"})
    EXPECT_EQ(parsed(text), json::parse(text).dump());
  EXPECT_EQ(parsed(" \n[1 , 2]\n"), "[1,2]");
}

TEST(Json, ErrorsNameFileLineAndColumn) {
  EXPECT_TRUE(has(parsed("{\n  \"a\": 1,\n  oops\n}"), "f.json: line 3, column 3: "));
  EXPECT_TRUE(has(parsed(""), "f.json: line 1, column 1: "));
  EXPECT_TRUE(has(parsed("[1, 2"), "unexpected end of input"));
  EXPECT_TRUE(has(parsed("{} x"), "line 1, column 4: "));
  EXPECT_TRUE(has(parsed("[1e400]"), "number overflow"));
  EXPECT_TRUE(has(parsed("[nan]"), "invalid literal"));
  EXPECT_TRUE(has(parsed("[\"\xff\"]"), "ill-formed UTF-8"));
  EXPECT_TRUE(has(parsed("[\"\xc3"), "line 1, column "));
  EXPECT_TRUE(has(parsed(std::string("{}\0 hidden", 10)), "line 1, column 3: a zero byte"));
}

TEST(Json, AnErrorStaysShortAndPrintable) {
  const std::string message = parsed("[" + std::string(1000000, 'y') + "\x1b[2J\"");
  EXPECT_LT(message.size(), 300u);
  const std::string token = parsed("[\"" + std::string(1000000, '\xc3'));
  EXPECT_LT(token.size(), 300u);
  for (const char c : message + token) EXPECT_TRUE(c >= ' ' && c <= '~');
}

TEST(Json, DeepNestingIsRefused) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(parsed(nested(kMaxJsonDepth)), nested(kMaxJsonDepth));
  EXPECT_TRUE(has(parsed(nested(kMaxJsonDepth + 1)), "line 1, column 201: nested more than 200 levels deep"));
  EXPECT_TRUE(has(parsed(std::string(10000000, '[')), "nested more than 200"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(has(parsed(objects), "nested more than 200"));
}

TEST(Json, DuplicateKeysAreKeptOrRefusedAsAsked) {
  const std::string text = "{\"a\": 1,\n\"a\": [2]}";
  EXPECT_EQ(parsed(text), R"({"a":[2]})");
  EXPECT_TRUE(
      has(parsed(text, DuplicateKeys::kRefuse), R"(f.json: line 2, column 3: the key "a" appears twice)"));
  EXPECT_EQ(parsed(R"([{"a":1},{"a":2}])", DuplicateKeys::kRefuse), R"([{"a":1},{"a":2}])");
}

TEST(Json, WideFilesTakeLinearTime) {
  std::string text = "{\"k\":0";
  for (int i = 0; i < 200000; ++i) text += ",\"k" + std::to_string(i) + "\":[]";
  EXPECT_EQ(parse_json(text + "}", "f.json")->size(), 200001u);
}

TEST(Json, SavesAndLoads) {
  TestDir dir;
  const json value = {{"b", {1, 2.5}}, {"a", "\xc3\xa9"}};
  ASSERT_TRUE(save_json(dir / "f.json", value));
  EXPECT_EQ(get(dir / "f.json"), "{\n  \"a\": \"\xc3\xa9\",\n  \"b\": [\n    1,\n    2.5\n  ]\n}\n");
  EXPECT_EQ(*load_json(dir / "f.json"), value);
  EXPECT_TRUE(has(what(load_json(dir / "none.json")), "none.json: cannot be opened: No such file"));
  put(dir / "f.json", "{");
  EXPECT_TRUE(has(what(load_json(dir / "f.json")), (dir / "f.json") + ": line 1, column "));
}

TEST(Json, TextThatIsNotUtf8IsNotSaved) {
  TestDir dir;
  put(dir / "f.json", "old");
  EXPECT_TRUE(has(what(save_json(dir / "f.json", json("\xff"))), (dir / "f.json") + ": cannot be written"));
  EXPECT_EQ(get(dir / "f.json"), "old");
}

TEST(Json, QuotedNamesAreSafeToPrint) {
  EXPECT_EQ(in_quotes("model.layers.0"), "\"model.layers.0\"");
  EXPECT_EQ(in_quotes("a\x1b\"\n"), "\"a\\u001b\\\"\\n\"");
  EXPECT_EQ(in_quotes("\xff"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(in_quotes(std::string(1000, 'x')), "\"" + std::string(120, 'x') + "\"...");
}

// Python's bare words outside of strings, also behind an escaped quote or backslash; and the one limit of
// depth.
TEST(Json, PythonsWordsAreReadInOnePass) {
  TestDir dir;
  const auto loaded = [&](const std::string& text) {
    put(dir / "f.json", text);
    const Result<Json> r = load_python_json(dir / "f.json");
    return r ? r->dump() : r.error().what;
  };
  EXPECT_EQ(loaded("[NaN, -Infinity, Infinity, \"NaN\"]"), R"(["NaN","-Infinity","Infinity","NaN"])");
  EXPECT_EQ(loaded(R"({"a\\": NaN, "b": "\\\"NaN"})"), R"({"a\\":"NaN","b":"\\\"NaN"})");
  EXPECT_TRUE(has(loaded("[NaN, " + std::string(400'000, '[')), "nested more than 200"));
  EXPECT_TRUE(has(loaded("\"NaN\\"), "f.json: line 1"));
}

TEST(Json, KeysStayInTheOrderOfTheFile) {
  TestDir dir;
  put(dir / "f.json", R"({"z": 1, "a": 2, "z": 3})");
  EXPECT_EQ(load_json(dir / "f.json")->dump(), R"({"z":3,"a":2})");
}

}  // namespace
}  // namespace braid

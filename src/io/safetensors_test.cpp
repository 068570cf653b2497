#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "io/json.h"
#include "support/test_dir.h"

namespace braid {
namespace {

constexpr DType kAll[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64,
                          DType::kI32, DType::kI16, DType::kI8,   DType::kU8,  DType::kBool};

std::string length_of(uint64_t n) { return {reinterpret_cast<const char*>(&n), 8}; }

// A file with this header, as it stands, and `data` bytes of zeros.
std::string file_of(const std::string& header, size_t data) {
  return length_of(header.size()) + header + std::string(data, '\0');
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string bytes_of(const View& v) { return {static_cast<const char*>(v.data), v.bytes()}; }

Tensor filled(DType dtype, Shape shape, uint64_t seed) {
  Tensor t(dtype, shape);
  Rng rng(seed, "test");
  for (size_t i = 0; i < t.bytes(); ++i)
    static_cast<uint8_t*>(t.data())[i] = static_cast<uint8_t>(rng.below(dtype == DType::kBool ? 2 : 256));
  return t;
}

class SafeTensorsTest : public testing::Test {
 protected:
  std::string path() const { return dir / "m.safetensors"; }
  std::string open_bytes(const std::string& bytes) const {
    put(path(), bytes);
    return what(SafeTensors::open(path()));
  }
  // The error of a file with this header and data; it must name the file and contain every part.
  void expect_error(const std::string& header, size_t data, const std::vector<std::string>& parts) const {
    const std::string error = open_bytes(file_of(header, data));
    EXPECT_TRUE(has(error, path())) << header;
    for (const std::string& part : parts) EXPECT_TRUE(has(error, part)) << header;
  }
  TestDir dir;
};

TEST_F(SafeTensorsTest, EveryDTypeComesBackAsItWasWritten) {
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const DType d : kAll)
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0, 5}, Shape{1, 2, 3, 1, 2, 1}})
      tensors.push_back(filled(d, shape, tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) named.push_back({"t" + std::to_string(i), tensors[i].view()});
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"q\"\n", "\xc3\xa9"}};
  ASSERT_TRUE(write_safetensors(path(), named, metadata));
  auto opened = SafeTensors::open(path());
  ASSERT_TRUE(opened) << what(opened);
  const SafeTensors file = *std::move(opened);
  EXPECT_EQ(file.names().size(), tensors.size());
  EXPECT_EQ(file.metadata(), metadata);
  for (const NamedTensor& t : named) {
    const View* v = file.find(t.name);
    ASSERT_TRUE(v);
    EXPECT_EQ(v->dtype, t.view.dtype);
    EXPECT_EQ(v->shape, t.view.shape);
    EXPECT_EQ(bytes_of(*v), bytes_of(t.view));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(v->data) % dtype_size(v->dtype), 0u);
  }
  EXPECT_EQ(file.find("t"), nullptr);
}

TEST_F(SafeTensorsTest, ATinyFileHasExactlyTheseBytes) {
  const float f[] = {1, -2};
  const uint16_t h[] = {0x3f80};
  const int64_t i[] = {-1};
  const uint8_t u[] = {7};
  const std::vector<NamedTensor> named{{"b", {h, DType::kBF16, {1, 1}}},
                                       {"z", {f, DType::kF32, {2}}},
                                       {"a", {u, DType::kU8, {}}},
                                       {"c", {i, DType::kI64, {1}}}};
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("c":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                             R"("z":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
                             R"("b":{"dtype":"BF16","shape":[1,1],"data_offsets":[16,18]},)"
                             R"("a":{"dtype":"U8","shape":[],"data_offsets":[18,19]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string data("\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x80\x3f\x00\x00\x00\xc0\x80\x3f\x07", 19);
  ASSERT_TRUE(write_safetensors(path(), named, {{"format", "pt"}}));
  EXPECT_EQ(get(path()), length_of(padded.size()) + padded + data);
  ASSERT_TRUE(write_safetensors(path(), {named.rbegin(), named.rend()}, {{"format", "pt"}}));
  EXPECT_EQ(get(path()), length_of(padded.size()) + padded + data);

  ASSERT_TRUE(write_safetensors(path(), {}));
  EXPECT_EQ(get(path()), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_EQ(what(SafeTensors::open(path())), "no error");
}

TEST_F(SafeTensorsTest, UnalignedTensorsAreUsable) {
  const std::string header =
      R"({"b":)" + entry("U8", "[1]", "[0,1]") + R"(,"f":)" + entry("F32", "[2]", "[1,9]") + "}";
  const float want[] = {1.5f, -2};
  for (size_t pad = 0; pad < 8; ++pad) {
    std::string bytes = file_of(header + std::string(pad, ' '), 9);
    std::memcpy(bytes.data() + bytes.size() - 8, want, 8);
    put(path(), bytes);
    auto file = SafeTensors::open(path());
    ASSERT_TRUE(file) << what(file);
    const SafeTensors moved = *std::move(file);
    const auto got = moved.find("f")->as<float>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data()) % 4, 0u);
    EXPECT_EQ(got[0] + got[1], -0.5f);
  }
}

TEST_F(SafeTensorsTest, HeaderLengthsThatLieAreRefused) {
  EXPECT_TRUE(has(open_bytes(""), path() + ": holds 0 bytes, expected at least the 8"));
  EXPECT_TRUE(has(open_bytes("1234567"), "holds 7 bytes"));
  EXPECT_TRUE(has(open_bytes(length_of(0) + "{}"), "header is 0 bytes long"));
  EXPECT_TRUE(
      has(open_bytes(length_of(10) + "{}"), "only 2 follow: the file is cut, at least 8 bytes are missing"));
  EXPECT_TRUE(has(open_bytes(length_of(100'000'001) + "{}"),
                  "header is 100000001 bytes long, expected 2 to 100000000"));
  EXPECT_TRUE(has(open_bytes(length_of(uint64_t{1} << 60) + "{}"), "1152921504606846976 bytes long"));
  EXPECT_TRUE(has(open_bytes(length_of(~uint64_t{0}) + "{}"), "18446744073709551615 bytes long"));
  EXPECT_TRUE(has(what(SafeTensors::open(dir / "none")), "none: cannot be opened: No such file"));
}

TEST_F(SafeTensorsTest, HeadersOfTheWrongFormAreRefused) {
  expect_error("[]", 0, {"does not begin with '{'"});
  expect_error(" {}", 0, {"does not begin with '{'"});
  expect_error("{ ", 0, {"header: line 1, column 2: ", "unexpected end of input"});
  expect_error("{} x", 0, {"line 1, column 4"});
  expect_error(std::string("{}\0\0", 4), 0, {"a zero byte"});
  expect_error(R"({"a":1})", 0, {R"(tensor "a": found a number, expected an object with dtype)"});
  expect_error(R"({"a":null})", 0, {R"(tensor "a": found null)"});
  expect_error(R"({"a":[]})", 0, {R"(tensor "a": found an array)"});
  expect_error(R"({"a":{}})", 0, {R"(tensor "a": dtype is missing)"});
  expect_error(R"({"a":{"dtype":"F32"}})", 0, {R"(tensor "a": shape is missing)"});
  expect_error(R"({"a":{"dtype":"F32","shape":[]}})", 0, {R"(tensor "a": data_offsets is missing)"});
  expect_error(R"({"a":{"dtype":1}})", 0, {R"(tensor "a": dtype: found a number, expected a string)"});
  expect_error(R"({"a":{"dtype":["F32"]}})", 0, {R"(tensor "a": dtype: found an array, expected a string)"});
  expect_error(R"({"a":{"dtype":{}}})", 0, {R"(tensor "a": dtype: found an object)"});
  expect_error(R"({"a":{"shape":"2"}})", 0, {R"(tensor "a": shape: found a string, expected an array)"});
  expect_error(R"({"a":{"shape":2}})", 0, {R"(tensor "a": shape: found a number, expected an array)"});
  expect_error(R"({"a":{"shape":[[2]]}})", 0,
               {R"(tensor "a": shape: found an array, expected a whole number)"});
  expect_error(R"({"a":{"shape":[true]}})", 0, {R"(tensor "a": shape: found a boolean)"});
  expect_error(R"({"a":{"extra\u001b":1}})", 0, {R"(tensor "a": unknown field "extra\u001b")"});
  expect_error(R"({"__metadata__":[]})", 0, {"__metadata__: found an array, expected an object of strings"});
  expect_error(R"({"__metadata__":{"k":1}})", 0, {R"(__metadata__: "k": found a number, expected a string)"});
  expect_error(R"({"__metadata__":{"k":{"l":"m"}}})", 0, {R"(__metadata__: "k": found an object)"});
  expect_error(R"({"a":)" + std::string(1000000, '['), 0, {R"(tensor "a": found an array)"});
}

TEST_F(SafeTensorsTest, UnknownDTypesAreNamed) {
  expect_error(
      R"({"w":)" + entry("F8_E4M3", "[2]", "[0,2]") + "}", 2,
      {R"(tensor "w": dtype: "F8_E4M3" is not supported)", "I64, F64, F32", "convert the checkpoint"});
  expect_error(R"({"w":)" + entry("", "[2]", "[0,2]") + "}", 2,
               {R"(tensor "w": dtype: "" is not supported)"});
}

TEST_F(SafeTensorsTest, ShapesThatAreNotSizesAreRefused) {
  const auto expect = [&](const std::string& shape, const std::string& part) {
    expect_error(R"({"w":)" + entry("F32", shape, "[0,8]") + "}", 8, {"tensor \"w\": ", part});
  };
  expect("[-2]", "shape: found a negative number, expected a whole number from 0");
  expect("[-0]", "shape: found a negative number");
  expect("[2.0]", "shape: found the number 2.0");
  expect("[2e0]", "shape: found the number 2e0");
  expect("[1e400]", "number overflow");
  expect("[9223372036854775808]", "extent 9223372036854775808 is too large");
  expect("[18446744073709551616]", "found the number 18446744073709551616");
  expect("[9223372036854775807]", "is larger than any memory");
  expect("[4294967296,4294967296]", "is larger than any memory");
  expect("[2305843009213693952]", "F32 [2305843009213693952] is larger than any memory");
  expect("[4294967296,4294967296,0]", "is larger than any memory");  // would overflow before the zero
  expect("[1,1,1,1,1,1,2]", "shape: more than 6 extents");
  expect("[3]", "data_offsets span 8 bytes, expected 12 for F32 [3]");
  expect("[]", "data_offsets span 8 bytes, expected 4 for F32 []");
  expect("[0]", "data_offsets span 8 bytes, expected 0");
}

TEST_F(SafeTensorsTest, OffsetsThatAreNotRangesAreRefused) {
  const auto expect = [&](const std::string& offsets, const std::string& part) {
    expect_error(R"({"w":)" + entry("F32", "[2]", offsets) + "}", 8, {"tensor \"w\": ", part});
  };
  expect("[]", "data_offsets: 0 numbers, expected [begin, end]");
  expect("[0]", "data_offsets: 1 numbers, expected [begin, end]");
  expect("[0,8,8]", "data_offsets: more than two numbers");
  expect("8", "data_offsets: found a number, expected an array");
  expect("[0,8.0]", "data_offsets: found the number 8.0");
  expect("[-8,0]", "data_offsets: found a negative number");
  expect("[0,1e400]", "number overflow");
  expect("[0,18446744073709551624]", "found the number 18446744073709551624");
  expect("[8,0]", "data_offsets begin at 8 after their end 0");
  expect("[18446744073709551608,0]", "data_offsets begin at 18446744073709551608 after their end 0");
  expect("[18446744073709551600,18446744073709551608]",
         "begins at byte 18446744073709551600 of the data, expected 0");
  expect("[8,16]", "begins at byte 8 of the data, expected 0: the format allows no holes");
}

TEST_F(SafeTensorsTest, EveryByteBelongsToExactlyOneTensor) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"b":)" + entry("F32", "[2]", b) + R"(,"a":)" + entry("F32", "[2]", a) + "}";
  };
  EXPECT_EQ(open_bytes(file_of(two("[0,8]", "[8,16]"), 16)), "no error");
  EXPECT_EQ(open_bytes(file_of(two("[8,16]", "[0,8]"), 16)), "no error");
  expect_error(two("[0,8]", "[4,12]"), 12,
               {R"(tensor "b": begins at byte 4 of the data, inside tensor "a")", "8"});
  expect_error(two("[0,8]", "[0,8]"), 8, {"begins at byte 0 of the data, inside tensor"});
  expect_error(two("[0,8]", "[12,20]"), 20,
               {R"(tensor "b": begins at byte 12 of the data, expected 8)", "holes"});
  expect_error(two("[0,8]", "[8,16]"), 19, {"3 bytes follow the last tensor"});
  expect_error(two("[0,8]", "[8,16]"), 6,
               {R"(tensor "a": ends at byte 8 of the data, but there are only 6)", "10 bytes are missing"});
  expect_error("{}", 1, {"1 bytes follow the last tensor"});
}

TEST_F(SafeTensorsTest, NamesThatAppearTwiceAreRefused) {
  const std::string a = R"("a":)" + entry("U8", "[0]", "[0,0]");
  expect_error("{" + a + "," + a + "}", 0, {R"(tensor "a": appears twice)"});
  expect_error("{" + a + R"(,"\u0061":)" + entry("U8", "[0]", "[0,0]") + "}", 0,
               {R"(tensor "a": appears twice)"});
  expect_error(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0, {R"(tensor "a": dtype: appears twice)"});
  expect_error(R"({"a":{"shape":[1],"shape":[]}})", 0, {R"(tensor "a": shape: appears twice)"});
  expect_error(R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__ appears twice"});
  expect_error(R"({"__metadata__":{"k":"v","k":"w"}})", 0, {R"(__metadata__: "k": appears twice)"});
}

TEST_F(SafeTensorsTest, ABoolIsZeroOrOne) {
  std::string bytes = file_of(R"({"m":)" + entry("BOOL", "[3]", "[0,3]") + "}", 3);
  bytes[bytes.size() - 2] = 2;
  EXPECT_TRUE(has(open_bytes(bytes), R"(tensor "m": element 1 is 2, expected 0 or 1 in a BOOL)"));
}

TEST_F(SafeTensorsTest, AFileCutAnywhereIsAnErrorThatSaysSo) {
  const Tensor a = filled(DType::kF32, {4, 4}, 1), b = filled(DType::kU8, {5}, 2);
  ASSERT_TRUE(write_safetensors(path(), {{"a", a.view()}, {"b", b.view()}}));
  const std::string whole = get(path());
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string error = open_bytes(whole.substr(0, n));
    EXPECT_TRUE(has(error, n < 8 ? "expected at least the 8" : "bytes are missing")) << n;
    if (n >= whole.size() - 69) {  // within the data, where the end is known
      EXPECT_TRUE(has(error, " " + std::to_string(whole.size() - n) + " bytes are missing"));
    }
  }
  EXPECT_EQ(open_bytes(whole), "no error");
}

// What the header says, read in another way, must be what the views show.
void expect_views_show_the_file(const SafeTensors& file, const std::string& bytes) {
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = parse_json(std::string_view(bytes).substr(8, length), "header");
  ASSERT_TRUE(header) << what(header);
  size_t total = 0;
  for (const std::string& name : file.names()) {
    const View& v = *file.find(name);
    const auto& offsets = (*header)[name]["data_offsets"];
    const uint64_t begin = offsets[0], end = offsets[1];
    ASSERT_LE(8 + length + end, bytes.size());
    ASSERT_EQ(v.bytes(), end - begin);
    ASSERT_EQ(bytes_of(v), bytes.substr(8 + length + begin, end - begin));
    total += v.bytes();
  }
  EXPECT_EQ(8 + length + total, bytes.size());
}

TEST_F(SafeTensorsTest, MutatedFilesAreErrorsOrStillConsistent) {
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const DType d : {DType::kF32, DType::kBF16, DType::kI64, DType::kBool, DType::kU8})
    tensors.push_back(filled(d, {2, 3}, tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) named.push_back({"t" + std::to_string(i), tensors[i].view()});
  ASSERT_TRUE(write_safetensors(path(), named, {{"format", "pt"}}));
  const std::string whole = get(path());
  constexpr std::string_view kAlphabet("0123456789{}[]\",:-.eE \\u\0\xff", 26);
  size_t opened = 0;
  Rng rng(1, "mutations");
  for (uint64_t i = 0; i < 20000; ++i) {
    rng.seek(i);
    std::string bytes = whole;
    for (uint64_t edits = 1 + rng.below(3); edits > 0; --edits) {
      const size_t at = rng.below(bytes.size() + 1);
      const char c =
          rng.below(2) ? kAlphabet[rng.below(kAlphabet.size())] : static_cast<char>(rng.below(256));
      switch (rng.below(5)) {
        case 0:
          if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(8)));
          break;
        case 1:
          if (at < bytes.size()) bytes[at] = c;
          break;
        case 2:
          bytes.insert(at, 1 + rng.below(3), c);
          break;
        case 3:
          bytes.erase(at, 1 + rng.below(rng.below(4) ? 3 : 50));
          break;
        case 4:  // the length with the header, so that the damage is met further in
          if (bytes.size() >= 8) bytes.replace(0, 8, length_of(rng.below(bytes.size() + 2)));
          break;
      }
    }
    put(path(), bytes);
    const auto file = SafeTensors::open(path());
    if (!file) {
      ASSERT_TRUE(has(file.error().what, path())) << i;
      continue;
    }
    ++opened;
    expect_views_show_the_file(*file, bytes);
    if (HasFatalFailure()) FAIL() << "mutation " << i;
  }
  EXPECT_GT(opened, 100u);  // otherwise the views were hardly tested
}

TEST_F(SafeTensorsTest, AFailedWriteKeepsTheOldFile) {
  const Tensor a = filled(DType::kF32, {4}, 1);
  ASSERT_TRUE(write_safetensors(path(), {{"a", a.view()}}));
  const std::string before = get(path());
  EXPECT_TRUE(has(what(write_safetensors(path(), {{"a", a.view()}, {"a", a.view()}})),
                  R"(tensor "a": the name is used twice)"));
  EXPECT_TRUE(has(what(write_safetensors(path(), {{"__metadata__", a.view()}})), "the name is reserved"));
  EXPECT_TRUE(has(what(write_safetensors(path(), {{"\xff", a.view()}})), path() + ": cannot be written"));
  EXPECT_TRUE(has(what(write_safetensors(path(), {{"a", a.view()}}, {{"k", "\xff"}})),
                  path() + ": cannot be written"));
  EXPECT_TRUE(has(what(write_safetensors(dir / "no/m", {{"a", a.view()}})), "there is no folder"));
  EXPECT_EQ(get(path()), before);
  EXPECT_EQ(dir.files().size(), 1u);
}

TEST_F(SafeTensorsTest, AFileMayBeReplacedWhileItIsOpen) {
  const Tensor a = filled(DType::kF32, {4}, 1), b = filled(DType::kF32, {4}, 2);
  ASSERT_TRUE(write_safetensors(path(), {{"w", a.view()}}));
  const auto file = SafeTensors::open(path());
  ASSERT_TRUE(file) << what(file);
  ASSERT_TRUE(write_safetensors(path(), {{"w", b.view()}}));
  EXPECT_EQ(bytes_of(*file->find("w")), bytes_of(a.view()));
  EXPECT_EQ(bytes_of(*SafeTensors::open(path())->find("w")), bytes_of(b.view()));
}

TEST_F(SafeTensorsTest, ShardsAreOneModel) {
  const Tensor a = filled(DType::kF32, {4}, 1), b = filled(DType::kBF16, {3}, 2),
               c = filled(DType::kU8, {1}, 3);
  ASSERT_TRUE(
      write_safetensors(dir / "s1.safetensors", {{"a", a.view()}, {"c", c.view()}}, {{"format", "pt"}}));
  ASSERT_TRUE(write_safetensors(dir / "s2.safetensors", {{"b", b.view()}}, {{"format", "pt"}}));
  put(dir / "model.safetensors.index.json",
      R"({"metadata":{"total_size":23},"weight_map":{"a":"s1.safetensors","b":"s2.safetensors","c":"s1.safetensors"}})");
  auto model = SafeTensors::open_model(dir.path());
  ASSERT_TRUE(model) << what(model);
  const SafeTensors moved = *std::move(model);
  EXPECT_EQ(moved.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(bytes_of(*moved.find("a")), bytes_of(a.view()));
  EXPECT_EQ(bytes_of(*moved.find("b")), bytes_of(b.view()));
  EXPECT_EQ(bytes_of(*moved.find("c")), bytes_of(c.view()));
  EXPECT_EQ(moved.metadata().at("format"), "pt");

  ASSERT_TRUE(write_safetensors(dir / "model.safetensors", {{"one", a.view()}}));
  EXPECT_EQ(SafeTensors::open_model(dir.path() + "/")->names(), std::vector<std::string>{"one"});
}

TEST_F(SafeTensorsTest, AnIndexThatDoesNotFitItsShardsIsRefused) {
  const Tensor a = filled(DType::kF32, {4}, 1);
  ASSERT_TRUE(write_safetensors(dir / "s1.safetensors", {{"a", a.view()}}));
  const std::string index = dir / "model.safetensors.index.json";
  const auto expect = [&](const std::string& text, const std::string& part) {
    put(index, text);
    const std::string error = what(SafeTensors::open_sharded(index));
    EXPECT_TRUE(has(error, part)) << text;
    EXPECT_TRUE(has(error, index)) << text;
  };
  const auto map = [](const std::string& file) { return R"({"weight_map":{"a":")" + file + R"("}})"; };
  expect(R"({"weight_map":{"a":"s1.safetensors","x":"s1.safetensors"}})",
         R"(1 tensor is missing from s1.safetensors: "x")");
  expect(map("s2.safetensors"), "s2.safetensors: cannot be opened: No such file");
  expect("[]", "weight_map: expected an object");
  expect("{}", "weight_map: expected an object");
  expect(R"({"weight_map":{}})", "weight_map: expected an object");
  expect(R"({"weight_map":["a"]})", "weight_map: expected an object");
  expect(R"({"weight_map":{"a":1}})", R"(tensor "a": expected the name of a file)");
  expect(R"({"weight_map":{"a":"s1.safetensors","a":"s1.safetensors"}})", R"(the key "a" appears twice)");
  for (const char* bad : {"../s1.safetensors", "/s1.safetensors", "./s1.safetensors", "..", ".", "",
                          "a/../s1", "s1.safetensors\\u0000.x", "a\\\\b"})
    expect(map(bad), "is not a plain file name");
  put(dir / "s3.safetensors", "short");
  expect(map("s3.safetensors"), "s3.safetensors: holds 5 bytes");
}

TEST_F(SafeTensorsTest, AFolderWithoutAModelSaysWhatWasLookedFor) {
  EXPECT_TRUE(has(what(SafeTensors::open_model(dir.path())),
                  "neither model.safetensors nor model.safetensors.index.json"));
  EXPECT_TRUE(has(what(SafeTensors::open_model(dir / "none")), "none: does not exist"));
}

}  // namespace
}  // namespace braid

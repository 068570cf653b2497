#include "io/hash.h"

#include "support/test_dir.h"

namespace braid {
namespace {

TEST(Hash, SeparatesFieldsAndSeesEveryBit) {
  EXPECT_NE(Hash().text("ab").text("c").hex(), Hash().text("a").text("bc").hex());
  EXPECT_NE(Hash().text(std::string(1, '\0')).hex(), Hash().text("").hex());
  EXPECT_EQ(Hash().text("ab").hex().size(), 16u);
  const std::string text = "nineteen characters";
  for (size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ (1 << bit));
      EXPECT_NE(Hash().text(other).hex(), Hash().text(text).hex()) << i << " " << bit;
    }
}

// Files that were saved hold it: another value would make all of them damaged.
TEST(Hash, IsTheOneThatSavedFilesHave) {
  EXPECT_EQ(Hash().hex(), "0000000000000000");
  EXPECT_EQ(Hash().number(1).hex(), "2fe94f82b3c6ef37");
}

TEST(Hash, OfAFileIsThatOfItsBytes) {
  TestDir dir;
  put(dir / "a", "hello, file");
  EXPECT_EQ(*file_hash(dir / "a"), Hash().text("hello, file").hex());
  EXPECT_TRUE(has(what(file_hash(dir / "none")), "No such file"));
}

}  // namespace
}  // namespace braid

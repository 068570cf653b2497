#include "infer/conversation.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/json.h"
#include "model/config_json.h"
#include "model/model.h"
#include "model/presets.h"
#include "support/test_dir.h"
#include "support/test_kernels.h"

namespace braid {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if name %}[{{ name }}]{% endif %}"
    "{% if messages and messages[-1].content == 'refuse' %}{{ raise_exception('refused') }}{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

class ConversationTest : public testing::Test {
 protected:
  ConversationTest() {
    model_.model = Model::create(*parse_config(*preset_config("gdn-h1", "tiny", 256), ""));
    model_.model->init(1);
    model_.tokenizer = Tokenizer::bytes();
    EXPECT_TRUE(write_atomic(dir_ / "chat.jinja", kTemplate));
  }
  Conversation open(const ConversationOptions& options) {
    return *Conversation::open(dir_ / "chat.jinja", model_, context_, options);
  }
  Conversation open() {
    return open({.system = "be brief", .generate = {.sampler = {.temperature = 0}, .max_tokens = 8}});
  }
  static std::string said(Conversation& c) {
    const Result<Reply> r = c.answer([](std::string_view) {});
    EXPECT_TRUE(r) << r.error().what;
    return r ? r->text : "";
  }
  const TestDir dir_;
  TextModel model_;
  Context context_{{.threads = 1, .kernels = test_kernels()}};
};

TEST_F(ConversationTest, AnswersGrowTheMessagesAndTurnsRememberTheirPrompt) {
  Conversation c = open();
  c.ask("one");
  std::string shown;
  const Result<Reply> first = c.answer([&](std::string_view s) { shown += s; });
  ASSERT_TRUE(first) << first.error().what;
  EXPECT_EQ(shown, first->text);
  EXPECT_EQ(first->recalled.cached, 0u);
  EXPECT_EQ(first->generated.tokens.size(), 8u);
  EXPECT_EQ(first->prompt_tokens, std::string("<system>be brief\n<user>one\n<assistant>").size());
  c.ask("two");
  const Result<Reply> second = c.answer([](std::string_view) {});
  ASSERT_TRUE(second) << second.error().what;
  EXPECT_GE(second->recalled.cached, first->prompt_tokens);
  // The same messages without a memory of them: the same answer.
  Conversation fresh = open();
  ASSERT_TRUE(c.undo_answer());
  ASSERT_TRUE(fresh.set_messages(c.messages()));
  const Result<Reply> again = fresh.answer([](std::string_view) {});
  ASSERT_TRUE(again);
  EXPECT_EQ(again->recalled.cached, 0u);
  EXPECT_EQ(again->text, second->text);
}

TEST_F(ConversationTest, CanBeTakenBackAndBegunAnew) {
  Conversation c = open();
  const std::string start = c.messages();
  EXPECT_EQ(start, R"([{"role":"system","content":"be brief"}])");
  EXPECT_FALSE(c.undo());
  EXPECT_FALSE(c.undo_answer());
  c.ask("one");
  EXPECT_TRUE(c.answerable());
  const std::string answer = said(c);
  EXPECT_FALSE(c.answerable());
  EXPECT_TRUE(c.undo_answer());
  EXPECT_EQ(said(c), answer);  // greedy: again
  EXPECT_TRUE(c.undo());       // question and answer
  EXPECT_EQ(c.messages(), start);
  c.ask("one");
  c.reset();
  EXPECT_EQ(c.messages(), start);
  c.set_system("");
  EXPECT_EQ(c.messages(), "[]");
}

TEST_F(ConversationTest, AFailedAnswerLeavesTheMessages) {
  Conversation c = open();
  c.ask("refuse");
  const std::string before = c.messages();
  const Result<Reply> r = c.answer([](std::string_view) {});
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().what.find("refused"), std::string::npos) << r.error().what;
  EXPECT_EQ(c.messages(), before);
  for (const char* bad : {"{", "{}", "[1]", R"([{"content": "x"}])", R"([{"role": 1}])"})
    EXPECT_FALSE(c.set_messages(bad)) << bad;
  EXPECT_EQ(c.messages(), before);
}

TEST_F(ConversationTest, VariablesReachTheTemplate) {
  Conversation plain = open(), named = open();
  plain.ask("x"), named.ask("x");
  named.set_variable("name", "\"Ada\"");
  const Result<Reply> a = plain.answer([](std::string_view) {}), b = named.answer([](std::string_view) {});
  ASSERT_TRUE(a && b);
  EXPECT_EQ(b->prompt_tokens, a->prompt_tokens + std::string("[Ada]").size());
  const Result<std::string> text =
      render_chat(dir_ / "chat.jinja", R"({"messages": [{"role": "user", "content": "x"}], "name": "Ada"})");
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(*text, "<user>x\n[Ada]");
  EXPECT_FALSE(render_chat(dir_ / "chat.jinja", "[]"));
}

TEST_F(ConversationTest, IsCancelledBeforeAToken) {
  int asked = 0;
  Conversation c = open({.generate = {.sampler = {.temperature = 0}, .max_tokens = 8, .cancelled = [&] {
                                        return ++asked > 3;
                                      }}});
  c.ask("one");
  const Result<Reply> r = c.answer([](std::string_view) {});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->generated.why, "cancelled");
  EXPECT_EQ(r->generated.tokens.size(), 3u);
}

TEST_F(ConversationTest, NeedsATokenizerAndATemplate) {
  EXPECT_FALSE(Conversation::open(dir_ / "none.jinja", model_, context_));
  model_.tokenizer.reset();
  EXPECT_FALSE(Conversation::open(dir_ / "chat.jinja", model_, context_));
}

}  // namespace
}  // namespace braid
